/* Some samples and some classes of an open dataset, in every container. */
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "tests/formats/samples.h"

enum { TRAIN = 60, VAL = 9 };

/* The containers that fpack writes, and records of both forms. */
static const DatasetPlan plans[] = {
    {.container = FSH_CONTAINER_SHARDS, .shard_count = 3, .train_count = TRAIN, .val_count = VAL},
    {.container = FSH_CONTAINER_SHARDS, .form = FSH_RECORD_COMPACT, .train_count = TRAIN, .val_count = VAL},
    {.container = FSH_CONTAINER_LMDB, .train_count = TRAIN, .val_count = VAL},
    {.container = FSH_CONTAINER_TAR, .train_count = TRAIN, .val_count = VAL},
    {.container = FSH_CONTAINER_SHARDS, .kind = FSH_KIND_PAIRS, .train_count = TRAIN, .val_count = VAL},
};
enum { PLANS = sizeof plans / sizeof *plans };

static FshDataset *open_plan(TestFolder *folder, size_t index)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    const char *path = test_path(folder, "set-%zu", index);
    assert_ok(file_make_folders(path, &error), &error);
    samples_write_dataset(&plans[index], path);
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

static const FshSplit *choose(FshDataset *dataset, const uint64_t *chosen, uint64_t count)
{
    const FshSplit *split = NULL;
    FshError error = {0};
    assert_ok(fsh_split_choose(dataset, fsh_split(dataset, "train"), chosen, count, &split, &error), &error);
    return split;
}

TEST_IN_FOLDER(test_a_chosen_split_has_the_samples_that_were_chosen, folder)
{
    static const uint64_t chosen[] = {0, 1, 13, 19, 20, 21, 40, 47, 59};
    enum { COUNT = sizeof chosen / sizeof *chosen };
    for (size_t p = 0; p < PLANS; p++) {
        FshDataset *dataset = open_plan(folder, p);
        const FshSplit *all = fsh_split(dataset, "train"), *split = choose(dataset, chosen, COUNT);
        FshError error = {0};
        uint64_t bytes = 0, labelled = 0;
        assert_int_equal(split->sample_count, COUNT);
        assert_int_equal(split->info->sample_count, COUNT);
        assert_string_equal(split->info->name, "train");
        for (uint64_t i = 0; i < COUNT; i++) {
            FshSample sample, other;
            char here[256], there[256];
            fsh_sample_prefetch(split, i, true);
            assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
            assert_ok(fsh_sample_verify(split, i, &error), &error);
            assert_ok(fsh_sample_check_read(split, &sample, &error), &error);
            assert_ok(fsh_sample_get(all, chosen[i], &other, &error), &error);
            assert_int_equal(sample.index, i);
            assert_int_equal(fsh_sample_label(split, i), fsh_sample_label(all, chosen[i]));
            assert_ptr_equal(sample.fields[0].data, other.fields[0].data);
            assert_string_equal(fsh_sample_where(split, i, here, sizeof here),
                                fsh_sample_where(all, chosen[i], there, sizeof there));
            labelled += sample.label >= 0;
            sample.index = chosen[i];
            sample_assert_equal(&sample, &plans[p], "train", chosen[i]);
        }
        for (size_t c = 0; split->info->class_counts && c < SAMPLES_CLASS_COUNT; c++)
            bytes += split->info->class_counts[c];
        assert_int_equal(bytes, labelled);
        assert_int_equal(fsh_sample_get(split, COUNT, &(FshSample){0}, &error), FSH_ERR_NOT_FOUND);
        assert_true(fsh_split_bytes(split) > 0 && fsh_split_bytes(split) < fsh_split_bytes(all));
        assert_int_equal(all->sample_count, TRAIN);
        fsh_close(&dataset);
    }
}

/* What is resident is told of the chosen records alone. */
TEST_IN_FOLDER(test_a_chosen_split_is_brought_in_by_itself, folder)
{
    static const uint64_t chosen[] = {2, 3, 4, 30};
    for (size_t p = 0; p < PLANS; p++) {
        FshDataset *dataset = open_plan(folder, p);
        const FshSplit *split = choose(dataset, chosen, 4);
        FshError error = {0};
        FshResidency all, some;
        assert_ok(fsh_split_residency(fsh_split(dataset, "train"), &all, &error), &error);
        assert_ok(fsh_split_cache(split, FSH_CACHE_RAM, 2, &error), &error);
        assert_ok(fsh_split_residency(split, &some, &error), &error);
        assert_true(some.bytes > 0 && some.bytes < all.bytes / 4);
        assert_int_equal(some.resident_bytes, some.bytes);
        if (plans[p].container == FSH_CONTAINER_SHARDS)
            assert_int_equal(some.bytes, fsh_split_bytes(split));
        fsh_close(&dataset);
    }
}

TEST_IN_FOLDER(test_classes_that_are_left_are_renumbered, folder)
{
    static const size_t classes[] = {2, 0};
    static const int64_t now[SAMPLES_CLASS_COUNT] = {1, FSH_NO_LABEL, 0};
    for (size_t p = 0; p < PLANS - 1; p++) {
        FshDataset *dataset = open_plan(folder, p);
        const FshSplit *train = fsh_split(dataset, "train");
        FshError error = {0};
        int64_t before[TRAIN];
        const uint64_t first = train->info->class_counts[0];
        for (uint64_t i = 0; i < TRAIN; i++)
            before[i] = fsh_sample_label(train, i);
        assert_ok(fsh_set_classes(dataset, classes, 2, &error), &error);
        assert_int_equal(fsh_manifest(dataset)->class_count, 2);
        assert_string_equal(fsh_manifest(dataset)->class_names[0], samples_class_names[2]);
        assert_int_equal(train->info->class_counts[1], first);
        for (uint64_t i = 0; i < TRAIN; i++) {
            FshSample sample;
            const int64_t expected = before[i] < 0 ? FSH_NO_LABEL : now[before[i]];
            assert_ok(fsh_sample_get(train, i, &sample, &error), &error);
            assert_int_equal(sample.label, expected);
            assert_int_equal(fsh_sample_label(train, i), expected);
            assert_ok(fsh_sample_verify(train, i, &error), &error);
        }
        const FshSplit *chosen = choose(dataset, (const uint64_t[]){0, 1, 2, 3}, 4);
        assert_int_equal(chosen->info->class_counts[0], 1);
        assert_int_equal(chosen->info->class_counts[1], 2);
        assert_int_equal(fsh_set_classes(dataset, classes, 1, &error), FSH_ERR_USAGE);
        fsh_close(&dataset);
    }
}

TEST_IN_FOLDER(test_what_is_no_choice_is_refused, folder)
{
    FshDataset *dataset = open_plan(folder, 0);
    const FshSplit *train = fsh_split(dataset, "train"), *split = NULL;
    FshError error = {0};
    const uint64_t twice[] = {3, 3}, beyond[] = {TRAIN};
    assert_int_equal(fsh_split_choose(dataset, train, twice, 2, &split, &error), FSH_ERR_USAGE);
    assert_int_equal(fsh_split_choose(dataset, train, beyond, 1, &split, &error), FSH_ERR_USAGE);
    assert_null(split);
    assert_int_equal(fsh_set_classes(dataset, (const size_t[]){1, 1}, 2, &error), FSH_ERR_USAGE);
    fsh_close(&dataset);
    assert_ok(fsh_open(&dataset, test_path(folder, "set-0"), &error), &error);
    assert_int_equal(fsh_set_classes(dataset, (const size_t[]){SAMPLES_CLASS_COUNT}, 1, &error),
                     FSH_ERR_USAGE);
    fsh_close(&dataset);
}

/* ---- records over each other ---- */

/* Makes every value of an LMDB that has pages of its own end with the file. Returns how many there are. */
static size_t stretch_values(uint8_t *bytes, size_t length)
{
    enum { PAGE = 4096, LEAF = 2, IN_OVERFLOW = 1 };
    size_t count = 0;
    for (size_t page = 2 * PAGE; page < length; page += PAGE) {
        if (load_le16(bytes + page + 10) != LEAF || load_le64(bytes + page) != page / PAGE)
            continue;
        for (unsigned i = 16; i < load_le16(bytes + page + 12); i += 2) {
            uint8_t *node = bytes + page + load_le16(bytes + page + i);
            if (load_le16(node + 4) != IN_OVERFLOW)
                continue;
            const uint64_t number = load_le64(node + 8 + load_le16(node + 6));
            store_le32(node, (uint32_t)(length - number * PAGE - 16));
            count++;
        }
    }
    return count;
}

/* Nobody looks at every record of an LMDB that is opened. */
TEST_IN_FOLDER(test_records_over_each_other_are_no_more_than_their_file, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 40, .payload_bytes_max = 20000};
    const uint64_t samples[] = {0, 2, 3, 5, 6, 9, 11, 14, 15, 17, 21, 25};
    samples_write_dataset(&plan, folder->path);
    const char *path = test_path(folder, "train.lmdb/data.mdb");
    size_t length = 0;
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    assert_true(stretch_values(bytes, length) > 10);
    test_file_write(path, (const char *)bytes, length);
    free(bytes);
    FshError error = {0};
    FshDataset *dataset = NULL;
    const FshSplit *chosen = NULL;
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    const FshSplit *all = fsh_split(dataset, "train");
    assert_int_equal(fsh_split_bytes(all), length);
    assert_ok(fsh_split_choose(dataset, all, samples, sizeof samples / sizeof *samples, &chosen, &error),
              &error);
    assert_int_equal(fsh_split_bytes(chosen), length);
    fsh_close(&dataset);
}
