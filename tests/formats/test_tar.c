#include "tests/formats/test_tar.h"

#include <string.h>

#include "tar/tar_write.h"

void test_tar_add(TestTar *tar, const char *path, const void *bytes, size_t length)
{
    FshError error = {0};
    size_t at = 0;
    assert_ok(tar_entry_append(&tar->bytes, &tar->scratch, path, bytes, length, 0, &at, &error), &error);
}

void test_tar_add_text(TestTar *tar, const char *path, const char *text)
{
    test_tar_add(tar, path, text, strlen(text));
}

const char *test_tar_save(TestTar *tar, TestFolder *folder, const char *name)
{
    FshError error = {0};
    const char *path = test_path(folder, "%s", name);
    assert_ok(tar_end_append(&tar->bytes, &error), &error);
    test_file_write(path, tar->bytes.bytes, tar->bytes.length);
    buffer_free(&tar->bytes);
    buffer_free(&tar->scratch);
    return path;
}

FshDataset *test_dataset_open(const char *path)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

void assert_open_refused(const char *path, FshStatus status, const char *part)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    FshStatus found = fsh_open(&dataset, path, &error);
    if (found != status)
        fail_msg("%s gives %d: %s", path, found, error.message);
    assert_null(dataset);
    assert_contains(error.message, part);
    assert_contains(error.message, path);
}

void test_sample_get(const FshDataset *dataset, const char *split, uint64_t index, FshSample *sample)
{
    FshError error = {0};
    assert_non_null(fsh_split(dataset, split));
    assert_ok(fsh_sample_get(fsh_split(dataset, split), index, sample, &error), &error);
}

void assert_key(const FshSample *sample, const char *key)
{
    assert_int_equal(sample->key_bytes, strlen(key));
    assert_memory_equal(sample->key, key, sample->key_bytes);
}
