/* golden.h - the golden files of golden/make_golden.py: inputs that are computed, results that are
 * summarised.
 *
 * A tensor of inputs is a function of its name and the index (golden_generate); a result is stored as norm,
 * sum and a few values at places that follow from its size. Whatever is wrong with a file fails the running
 * test. */
#ifndef FSHARD_TESTS_TRAINER_GOLDEN_H
#define FSHARD_TESTS_TRAINER_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* Returns $FSHARD_SOURCE/tests/trainer/golden/NAME; the caller releases it with json_decref. */
json_t *golden_load(const char *name);

/* Returns the entry of an array whose "name" is this; NULL if there is none. */
json_t *golden_find(json_t *array, const char *name);
/* Each returns a required member. */
const char *golden_text(const json_t *object, const char *key);
int64_t golden_integer(const json_t *object, const char *key);
double golden_real(const json_t *object, const char *key);
/* Sets shape to the spec's "shape" and returns the rank. */
int golden_shape(const json_t *spec, int64_t shape[4]);
/* Returns the number of elements of the spec's "shape". */
size_t golden_count(const json_t *spec);

/* Sets values to the `count` values in [-1, 1) that belong to a name. */
void golden_uniform(const char *name, double *values, size_t count);
/* Sets the golden_count(spec) values to what spec {name, shape, scale, offset, levels} stands for. */
void golden_generate(const json_t *spec, float *values);
void golden_generate_bytes(const json_t *spec, uint8_t *values);

/* Returns the relative error of values against summary {norm, sum, samples, floor}: the largest of ||a - b||
 * / ||b|| over the samples (||b|| being at least the share that so many values have of the tensor's norm),
 * the error of the norm, and the error of the sum relative to norm * sqrt(count). Infinite if anything is not
 * finite. */
double golden_error(const json_t *summary, const float *values, size_t count);

/* Returns the worst relative error of a case of a file; document: the file; context: the caller's. */
typedef double (*GoldenCaseError)(json_t *document, json_t *c, const void *context);
/* Prints the worst relative error of each case of a file. Fails the running test where one is not below
 * tolerance, or where there are fewer than `least` cases. */
void golden_compare_cases(const char *name, size_t least, double tolerance, GoldenCaseError case_error,
                          const void *context);

#endif
