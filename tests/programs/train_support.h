/* train_support.h - ftrain run from outside, and the small datasets that its tests run it on.
 *
 *   TEST_IN_FOLDER(test_one_class_is_refused, folder)
 *   {
 *       DatasetSpec spec = train_plain;
 *       spec.class_count = 1;
 *       REFUSED(1, "at least two class folders", test_path(*state, "out"), make_set(*state, &spec));
 *   }
 *
 * Whatever cannot be done fails the running test. ftrain runs with one thread unless a test gives --jobs
 * first: these networks are small, and threads that wait for each other take long on a busy machine. */
#ifndef FSHARD_TESTS_PROGRAMS_TRAIN_SUPPORT_H
#define FSHARD_TESTS_PROGRAMS_TRAIN_SUPPORT_H

#include <jansson.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"

/* ---- datasets ---- */

enum { COLOURS_EDGE = 32, COLOURS = 3 };

/* Packs images that are easy to tell apart, red, green and blue noise: class folders under FOLDER/images,
 * then fpack. Returns FOLDER/shards. */
const char *pack_colours(TestFolder *folder, int train_count, int val_count);
/* Packs the same images under other names than "red", "green" and "blue". */
const char *pack_named(TestFolder *folder, const char *const names[COLOURS], int train_count, int val_count);

/* 40 and 8 raw images of 32 x 32 pixels, 4 classes, two shards. */
extern const DatasetSpec train_plain;
/* Pairs whose target is the negative of the input: easy to learn, and the input is far from it. Sizes differ
 * in evaluation. */
extern const DatasetSpec train_negatives;
/* Four pairs of 16 x 16 pixels, none to evaluate on: for networks without norms. */
extern const DatasetSpec train_few_pairs;
/* Makes FOLDER/set and returns its path. */
const char *make_set(TestFolder *folder, const DatasetSpec *spec);

/* Changes a bit in the pixels of a sample of FOLDER/set, so that the sample's checksum no longer fits. */
void spoil_sample(TestFolder *folder, const char *split_name, uint64_t index);

/* ---- running ---- */

/* Runs ftrain with the arguments, NULL at the end; fails with all its output if it ends with another
 * status. */
RunResult expect_train(int exit_status, const RunOptions *options, const char *const *arguments);

#define TRAIN(exit_status, ...) expect_train((exit_status), NULL, (const char *const[]){__VA_ARGS__, NULL})
/* Runs ftrain with the arguments, sends it the signal when it has written the file stop_at (RunOptions), and
 * fails if it does not end with exit_status. */
RunResult stop_train(const char *stop_at, int signal_number, int exit_status, const char *const *arguments);
/* Kills ftrain at its first checkpoint in FOLDER/stopped. Its step may be later than the first that one was
 * due at: a newer checkpoint takes the place of one whose writing has not begun. */
void kill_train(const char *const *arguments);
/* Runs ftrain and looks at nothing but its exit status, which must be 0. */
#define TRAINED(...)                                                                                         \
    do {                                                                                                     \
        RunResult trained_ = TRAIN(0, __VA_ARGS__);                                                          \
        run_result_free(&trained_);                                                                          \
    } while (0)
/* Runs ftrain; asserts the exit status and that standard error holds `part`. */
#define SAYS(exit_status, part, ...)                                                                         \
    do {                                                                                                     \
        RunResult said_ = TRAIN((exit_status), __VA_ARGS__);                                                 \
        assert_contains(said_.err, (part));                                                                  \
        run_result_free(&said_);                                                                             \
    } while (0)

/* Asserts that ftrain fails with that status and `part` in its message, and leaves nothing at `output`. */
void expect_refusal(int exit_status, const char *part, const char *output, const char *const *arguments);

#define REFUSED(exit_status, part, output, ...)                                                              \
    expect_refusal((exit_status), (part), (output), (const char *const[]){__VA_ARGS__, output, NULL})

/* ---- what it has left ---- */

/* Returns a member of an object; fails the test where it is no number. */
double number_of(const json_t *object, const char *name);
/* Each returns a new reference. */
json_t *read_json(const char *text);
json_t *read_json_file(const char *path);
size_t count_lines(const char *text);

/* Returns the value under this heading in row `row` of OUTPUT/summary.csv, counted from 0 below the head. */
double summary_number(const char *output, size_t row, const char *column);
/* Returns summary.csv without the column of time; the caller frees it. */
char *summary_without_time(const char *output);

bool same_bytes(const char *a, const char *b);
/* Asserts whether last.safetensors of FOLDER/a and FOLDER/b are the same. */
void assert_same_file(TestFolder *folder, const char *a, const char *b, bool same);
/* Changes the first `from` in a file to `to`, which is as long. */
void replace_in_file(const char *path, const char *from, const char *to);
/* Makes a safetensors file one without checksums, as others write them: for a test that changes more of
 * it. */
void forget_checksums(const char *path);

/* What every run leaves beside tables, weights and checkpoint: config.json and model.safetensors (classes),
 * TensorBoard's events, report.html. */
enum { REPORT_FILES = 4 };

#endif
