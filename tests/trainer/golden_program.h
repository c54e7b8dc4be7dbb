/* golden_program.h - a program against a golden file: inputs written, results compared. Whatever fails ends
 * the running test. */
#ifndef FSHARD_TESTS_TRAINER_GOLDEN_PROGRAM_H
#define FSHARD_TESTS_TRAINER_GOLDEN_PROGRAM_H

#include "tests/trainer/golden.h"
#include "trainer/backend/backend.h"

/* How far a result may be from PyTorch's: on the CPU; on a GPU, whose sums run in other orders. PyTorch's own
 * float32 is off by up to 2.3e-4 where a sum nearly cancels (gamma of xresnet18's self-attention). */
#define GOLDEN_TOLERANCE     1e-4
#define GOLDEN_TOLERANCE_GPU 5e-4

void golden_check(FshStatus status, const char *name, const FshError *error);
/* Returns the device that golden files are compared on: FSHARD_GOLDEN_DEVICE, or "cpu". */
const char *golden_device(void);
/* Returns the tolerance there. */
double golden_tolerance(void);
/* Opens its backend, with two threads on the CPU. */
Backend *golden_backend(void);

void golden_write_input(Program *program, const char *name, const void *values, size_t bytes);
void golden_write_labels(Program *program, const char *name, const json_t *labels);
/* Writes the bytes of an image to the input of the spec's name. */
void golden_write_bytes(Program *program, const json_t *spec);
/* Writes what each spec stands for to the parameter or buffer, else the input, of its name. */
void golden_write_generated(State *state, Program *program, json_t *specs);
/* Returns the worst error of the expected tensors; prints each error that is too large, with name in
 * front. */
double golden_compare(State *state, Program *program, json_t *expected, const char *name);

#endif
