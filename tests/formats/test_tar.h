/* test_tar.h - tars made for a test, and what opening them gives. Whatever should work and does not fails the
 * running test. */
#ifndef FSHARD_TESTS_FORMATS_TEST_TAR_H
#define FSHARD_TESTS_FORMATS_TEST_TAR_H

#include "common/file.h"
#include "formats/fshard.h"
#include "tests/support/support.h"

/* Zeroed: empty. */
typedef struct TestTar {
    Buffer bytes, scratch;
} TestTar;

/* What passes for an image where nobody decodes it. */
#define JPEG "\xFF\xD8\xFF picture"
#define PNG  "\x89PNG\r\n\x1A\n picture"

void test_tar_add(TestTar *tar, const char *path, const void *bytes, size_t length);
void test_tar_add_text(TestTar *tar, const char *path, const char *text);
/* Writes the tar with its end marker as FOLDER/name and empties tar; returns the path. */
const char *test_tar_save(TestTar *tar, TestFolder *folder, const char *name);

/* Opens the dataset; the caller closes it with fsh_close. */
FshDataset *test_dataset_open(const char *path);
/* Asserts that fsh_open gives this status and a message with the path and `part` in it. */
void assert_open_refused(const char *path, FshStatus status, const char *part);
/* Gets the sample, which borrows from the dataset; fails the test on errors. */
void test_sample_get(const FshDataset *dataset, const char *split, uint64_t index, FshSample *sample);
void assert_key(const FshSample *sample, const char *key);

#endif
