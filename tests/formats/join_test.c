/* Datasets in different containers as one. */
#include <string.h>

#include "common/file.h"
#include "tests/formats/samples.h"

/* What the same samples, of counts of their own, are packed in. */
static const DatasetPlan plans[] = {
    {.container = FSH_CONTAINER_SHARDS, .shard_count = 3, .train_count = 40, .val_count = 9},
    {.container = FSH_CONTAINER_LMDB, .train_count = 30, .val_count = 8},
    {.container = FSH_CONTAINER_SHARDS, .form = FSH_RECORD_COMPACT, .train_count = 20, .val_count = 7},
    {.container = FSH_CONTAINER_TAR, .train_count = 10, .val_count = 6},
};
enum { PLANS = sizeof plans / sizeof *plans };

TEST_IN_FOLDER(test_every_container_is_joined, folder)
{
    static const char *const names[] = {"train", "val"};
    FshDataset *members[PLANS], *joined = NULL;
    FshError error = {0};
    for (size_t i = 0; i < PLANS; i++) {
        const char *path = test_path(folder, "set%zu", i);
        assert_ok(file_make_folders(path, &error), &error);
        samples_write_dataset(&plans[i], path);
        assert_ok(fsh_open(&members[i], path, &error), &error);
    }
    assert_ok(fsh_join(&joined, members, PLANS, &error), &error);
    assert_int_equal(fsh_member_count(joined), PLANS);
    for (size_t s = 0; s < 2; s++) {
        const FshSplit *split = fsh_split(joined, names[s]);
        uint64_t index = 0;
        for (size_t i = 0; i < PLANS; i++) {
            const uint64_t count = s ? plans[i].val_count : plans[i].train_count;
            for (uint64_t k = 0; k < count; k++, index++) {
                FshSample sample;
                assert_ok(fsh_sample_get(split, index, &sample, &error), &error);
                assert_int_equal(sample.index, index);
                sample.index = k; /* as the member has it */
                sample_assert_equal(&sample, &plans[i], names[s], k);
                assert_int_equal(sample.label, fsh_sample_label(split, index));
                assert_ok(fsh_sample_verify(split, index, &error), &error);
            }
            assert_int_equal(fsh_split_member_end(split, i), index);
        }
        assert_int_equal(split->sample_count, index);
        assert_int_equal(fsh_sample_get(split, index, &(FshSample){0}, &error), FSH_ERR_NOT_FOUND);
    }
    FshResidency residency;
    assert_ok(fsh_split_cache(fsh_split(joined, "train"), FSH_CACHE_RAM, 2, &error), &error);
    assert_ok(fsh_split_residency(fsh_split(joined, "train"), &residency, &error), &error);
    assert_true(residency.bytes > 0 && residency.resident_bytes == residency.bytes);
    fsh_split_drop(fsh_split(joined, "train"));
    fsh_close(&joined);
    assert_null(joined);
}

TEST(test_none_are_not_joined)
{
    FshDataset *members[] = {NULL}, *joined = NULL;
    FshError error = {0};
    assert_int_equal(fsh_join(&joined, members, 0, &error), FSH_ERR_USAGE);
    assert_null(joined);
}

TEST_IN_FOLDER(test_what_cannot_be_joined_is_closed, folder)
{
    static const DatasetPlan pairs = {
        .container = FSH_CONTAINER_SHARDS, .kind = FSH_KIND_PAIRS, .shard_count = 1, .train_count = 5};
    FshDataset *members[2], *joined = NULL;
    FshError error = {0};
    for (size_t i = 0; i < 2; i++) {
        const char *path = test_path(folder, "set%zu", i);
        assert_ok(file_make_folders(path, &error), &error);
        samples_write_dataset(i ? &pairs : &plans[0], path);
        assert_ok(fsh_open(&members[i], path, &error), &error);
    }
    assert_int_equal(fsh_join(&joined, members, 2, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "set1: holds pairs of images, and ");
    assert_true(!joined && !members[0] && !members[1]);
    for (size_t i = 0; i < 2; i++)
        assert_ok(fsh_open(&members[i], test_path(folder, "set0"), &error), &error);
    assert_int_equal(fsh_join(&joined, members, 2, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "set0: is the same dataset as ");
}
