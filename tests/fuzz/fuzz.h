/* fuzz.h - what the fuzz targets share. docs/fuzzing.md says how they are run.
 *
 * A target is one file, fuzz_NAME.c, with LLVMFuzzerTestOneInput: hostile bytes in, always 0 out. What it
 * finds out about them must agree with itself (fuzz_expect); all else is for the sanitizers to say. Each
 * target is built twice: with libFuzzer, by the preset "fuzz", and in every build with fuzz_main.c, which
 * only plays the saved corpus.
 *
 * Threads: one input at a time. */
#ifndef FSHARD_TESTS_FUZZ_FUZZ_H
#define FSHARD_TESTS_FUZZ_FUZZ_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/error.h"

/* Runs the target. bytes are exactly length long, so that a read past their end is seen. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

/* Makes checksums right again after a mutation, so that the fuzzer gets past them; bits of choice tell which.
 * Only targets of formats with checksums have it: see fuzz_mutator.c. */
void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice);

/* Aborts, naming `what`, unless `holds`: that is a find. */
void fuzz_expect(bool holds, const char *what);

#ifdef __clang_analyzer__
/* Tells the analyzer, which does not look into fuzz_support.c, what holds afterwards. */
#define fuzz_expect(holds, what) ((holds) ? (void)(what) : abort())
#endif

/* Aborts, printing what, the status and the message, unless the status is FSH_OK. */
void fuzz_expect_ok(FshStatus status, const FshError *error, const char *what);

/* Reads all of bytes, for the sanitizers to see. NULL is fine if length is 0. */
void fuzz_touch(const void *bytes, size_t length);

/* The input as a file without a name on any disk: for readers that take a path. */
typedef struct FuzzFile {
    int descriptor;
    char path[64]; /* /proc/self/fd/N */
} FuzzFile;

FuzzFile fuzz_file_open(const uint8_t *bytes, size_t length);
void fuzz_file_close(FuzzFile *file);

/* The input as FOLDER/name in a new folder in memory (/dev/shm; TMPDIR where there is none). */
typedef struct FuzzFolder {
    char path[64];
    char file[128];
} FuzzFolder;

FuzzFolder fuzz_folder_open(const char *name, const uint8_t *bytes, size_t length);
/* Writes the input into its file again with the right checksum (common/seal.h), where it is a JSON object: a
 * mark is read only then. */
void fuzz_folder_seal(const FuzzFolder *folder, const uint8_t *bytes, size_t length);
/* Removes another file from it, if it is there. */
void fuzz_folder_empty(const FuzzFolder *folder, const char *name);
/* Removes the folder and all files in it. */
void fuzz_folder_close(FuzzFolder *folder);

/* Opens a dataset by path and does all that can be done with it: reads and verifies each sample, checks the
 * whole (fsh_check) and compares the answers: what has no problem must open, read and verify. */
void fuzz_dataset(const char *path);

#endif
