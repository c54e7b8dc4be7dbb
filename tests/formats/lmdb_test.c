#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lmdb.h>

#include "common/file.h"
#include "common/random.h"
#include "common/bytes.h"
#include "formats/lmdb_reader.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "tests/formats/samples.h"

static const DatasetPlan small_plan = {.container = FSH_CONTAINER_LMDB, .train_count = 12};

static const char *write_small_lmdb(TestFolder *folder)
{
    const char *path = test_path(folder, "train.lmdb");
    samples_write_file(&small_plan, "train", path, 0, 0, small_plan.train_count, NULL);
    return path;
}

static uint64_t count_problems(const char *path, FshCheckLevel level)
{
    FshError error = {0};
    uint64_t count = 0;
    assert_ok(fsh_check(path, level, 1, NULL, NULL, &count, &error), &error);
    return count;
}

/* ---- round trips ---- */

TEST_IN_FOLDER(test_what_is_written_is_read, folder)
{
    static const DatasetPlan plans[] = {
        {.container = FSH_CONTAINER_LMDB, .train_count = 700, .val_count = 9}, /* a tree of two levels */
        {.container = FSH_CONTAINER_LMDB, .kind = FSH_KIND_PAIRS, .train_count = 30, .val_count = 3},
        {.container = FSH_CONTAINER_LMDB, .train_count = 1},
        {.container = FSH_CONTAINER_LMDB, .train_count = 0, .val_count = 1},
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        FshError error = {0};
        FshDataset *dataset = NULL;
        const char *path = test_path(folder, "%zu", i);
        assert_ok(file_make_folders(path, &error), &error);
        samples_write_dataset(&plans[i], path);
        assert_ok(fsh_open(&dataset, path, &error), &error);
        samples_assert_split(dataset, &plans[i], "train", plans[i].train_count);
        if (plans[i].val_count)
            samples_assert_split(dataset, &plans[i], "val", plans[i].val_count);
        FshSample sample;
        assert_int_equal(fsh_sample_get(fsh_split(dataset, "train"), plans[i].train_count, &sample, &error),
                         FSH_ERR_NOT_FOUND);
        fsh_close(&dataset);
        assert_int_equal(count_problems(path, FSH_CHECK_QUICK), 0);
        assert_int_equal(count_problems(path, FSH_CHECK_RECORDS), 0);
        /* dataset.json and one data.mdb for each split: no lock file, no temporary file. */
        assert_int_equal(test_count_files(path), plans[i].val_count ? 3 : 2);
    }
}

TEST_IN_FOLDER(test_records_are_those_of_shards, folder)
{
    DatasetPlan plan = {.train_count = 60};
    FshError error = {0};
    FshDataset *shards = NULL, *lmdb = NULL;
    const char *shard_path = test_path(folder, "train-00000-of-00001.fshard");
    samples_write_file(&plan, "train", shard_path, 0, 0, plan.train_count, NULL);
    plan.container = FSH_CONTAINER_LMDB;
    const char *lmdb_path = test_path(folder, "train.lmdb");
    samples_write_file(&plan, "train", lmdb_path, 0, 0, plan.train_count, NULL);
    assert_ok(fsh_open(&shards, shard_path, &error), &error);
    assert_ok(fsh_open(&lmdb, lmdb_path, &error), &error);
    assert_int_equal(fsh_split_bytes(fsh_split(shards, "train")), fsh_split_bytes(fsh_split(lmdb, "train")));
    for (uint64_t i = 0; i < plan.train_count; i++) {
        FshSample a, b;
        assert_ok(fsh_sample_get(fsh_split(shards, "train"), i, &a, &error), &error);
        assert_ok(fsh_sample_get(fsh_split(lmdb, "train"), i, &b, &error), &error);
        size_t bytes = fsh_record_bytes(&a, FSH_RECORD_ALIGNED);
        assert_int_equal(bytes, fsh_record_bytes(&b, FSH_RECORD_ALIGNED));
        /* From the field table to the end: the records themselves, byte for byte. */
        assert_memory_equal(a.key - 96, b.key - 96, bytes);
    }
    assert_int_equal(fsh_manifest(lmdb)->splits[0].class_counts[0],
                     fsh_manifest(shards)->splits[0].class_counts[0]);
    fsh_close(&shards);
    fsh_close(&lmdb);
}

/* The library that everyone else reads it with, opened as fshard(5) says. */
TEST_IN_FOLDER(test_liblmdb_reads_the_same, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 500, .payload_bytes_max = 9000};
    FshError error = {0};
    FshDataset *dataset = NULL;
    const char *path = test_path(folder, "train.lmdb/");
    samples_write_file(&plan, "train", path, 0, 0, plan.train_count, NULL);
    assert_ok(fsh_open(&dataset, path, &error), &error);
    MDB_env *environment = NULL;
    MDB_txn *transaction = NULL;
    MDB_dbi database = 0;
    MDB_stat statistics;
    assert_int_equal(mdb_env_create(&environment), 0);
    assert_int_equal(mdb_env_open(environment, path, MDB_RDONLY | MDB_NOLOCK, 0), 0);
    assert_int_equal(mdb_txn_begin(environment, NULL, MDB_RDONLY, &transaction), 0);
    assert_int_equal(mdb_dbi_open(transaction, NULL, 0, &database), 0);
    assert_int_equal(mdb_stat(transaction, database, &statistics), 0);
    assert_int_equal(statistics.ms_entries, plan.train_count + 1);
    for (uint64_t i = 0; i < plan.train_count; i++) {
        char digits[32];
        (void)snprintf(digits, sizeof digits, "%010llu", (unsigned long long)i);
        MDB_val key = {.mv_size = 10, .mv_data = digits}, value;
        assert_int_equal(mdb_get(transaction, database, &key, &value), 0);
        FshSample theirs = {.index = i};
        RecordHead head;
        assert_ok(fsh_record_parse(value.mv_data, value.mv_size, FSH_RECORD_ALIGNED, &theirs, &head, &error),
                  &error);
        assert_int_equal(head.record_bytes, value.mv_size);
        sample_assert_equal(&theirs, &plan, "train", i);
    }
    MDB_val key = {.mv_size = 7, .mv_data = "~fshard"}, value;
    assert_int_equal(mdb_get(transaction, database, &key, &value), 0);
    char *text = strndup(value.mv_data, value.mv_size);
    assert_contains(text, "\"count\":500");
    assert_contains(text, "\"version\":1");
    free(text);
    mdb_txn_abort(transaction);
    mdb_env_close(environment);
    samples_assert_split(dataset, &plan, "train", plan.train_count);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_the_map_grows_as_needed, folder)
{
    /* 40 MiB and more than two batches, from a map of 1 MiB. */
    const DatasetPlan plan = {
        .container = FSH_CONTAINER_LMDB, .train_count = 83, .payload_bytes_max = 2000000};
    FshError error = {0};
    FshDataset *dataset = NULL;
    const char *path = test_path(folder, "train.lmdb");
    samples_write_file(&plan, "train", path, 0, 0, plan.train_count, NULL);
    assert_true(test_file_size(test_path(folder, "train.lmdb/data.mdb")) > 36 << 20);
    assert_ok(fsh_open(&dataset, path, &error), &error);
    samples_assert_split(dataset, &plan, "train", plan.train_count);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_same_samples_give_same_bytes, folder)
{
    const DatasetPlan plan = {
        .container = FSH_CONTAINER_LMDB, .train_count = 900, .payload_bytes_max = 60000};
    FshFileInfo first, second;
    samples_write_file(&plan, "train", test_path(folder, "a.lmdb"), 0, 0, plan.train_count, &first);
    void *litter = malloc(5 << 20); /* what malloc gives next is not clean */
    memset(litter, 0x5A, 5 << 20);
    free(litter);
    samples_write_file(&plan, "train", test_path(folder, "b.lmdb"), 0, 0, plan.train_count, &second);
    size_t a_bytes = 0, b_bytes = 0;
    char *a = test_file_read(test_path(folder, "a.lmdb/data.mdb"), &a_bytes);
    char *b = test_file_read(test_path(folder, "b.lmdb/data.mdb"), &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    assert_int_equal(first.bytes, a_bytes);
    assert_true(memcmp(a, b, a_bytes) == 0);
    assert_memory_equal(first.hash.bytes, second.hash.bytes, sizeof first.hash.bytes);
    free(a);
    free(b);
    free(first.name);
    free(second.name);
}

/* ---- threads ---- */

typedef struct Reader {
    const FshSplit *split;
    uint64_t seed;
    uint64_t wrong;
    pthread_t thread;
} Reader;

static void *read_at_random(void *argument)
{
    Reader *reader = argument;
    Random random;
    random_start(&random, reader->seed, 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t index = random_below(&random, (uint32_t)reader->split->sample_count);
        FshSample sample;
        char key[64];
        int length = snprintf(key, sizeof key, "%s/image-%llu",
                              samples_class_names[index % SAMPLES_CLASS_COUNT], (unsigned long long)index);
        reader->wrong += fsh_sample_get(reader->split, index, &sample, NULL) != FSH_OK ||
                         sample.index != index || sample.key_bytes != (size_t)length ||
                         memcmp(sample.key, key, sample.key_bytes) != 0 ||
                         fsh_sample_verify(reader->split, index, NULL) != FSH_OK;
    }
    return NULL;
}

TEST_IN_FOLDER(test_many_threads_read_at_once, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 300};
    FshError error = {0};
    FshDataset *dataset = NULL;
    samples_write_dataset(&plan, folder->path);
    assert_ok(fsh_open(&dataset, folder->path, &error), &error);
    Reader readers[8];
    for (size_t i = 0; i < 8; i++) {
        readers[i] = (Reader){.split = fsh_split(dataset, "train"), .seed = i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_at_random, &readers[i]), 0);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(readers[i].wrong, 0);
    }
    fsh_close(&dataset);
}

/* ---- damage ---- */

/* Reads all records by the tree alone. What it finds is what the walk finds, and where the walk finds nothing
 * wrong neither does it. */
static void find_exact(const uint8_t *bytes, size_t length)
{
    LmdbView view, walked;
    FshError error = {0}, walk_error = {0};
    const FshStatus walk_status = fsh_lmdb_parse(&walked, bytes, length, &walk_error);
    const FshStatus status = fsh_lmdb_open(&view, bytes, length, &error);
    if (status) { /* in the words of the walk */
        assert_int_equal(status, walk_status);
        assert_string_equal(error.message, walk_error.message);
    } else if (!walk_status) {
        assert_int_equal(view.record_count, walked.record_count);
        assert_ptr_equal(view.metadata, walked.metadata);
        assert_ptr_equal(view.dictionary, walked.dictionary);
    }
    volatile uint8_t sum = 0;
    for (uint64_t i = 0; !status && view.tree.bytes && i < view.record_count; i++) {
        IndexRow row;
        if (fsh_lmdb_find(&view.tree, i, &row, &error)) {
            if (!walk_status)
                fail_msg("record %llu: %s", (unsigned long long)i, error.message);
            continue;
        }
        for (uint64_t j = 0; j < row.record_bytes; j += 64)
            sum = (uint8_t)(sum + bytes[row.offset + j]);
        if (!walk_status)
            assert_int_equal(row.offset, fsh_index_row_load(walked.rows.bytes + i * INDEX_ROW_BYTES).offset);
    }
    fsh_lmdb_free(&view);
    fsh_lmdb_free(&walked);
}

/* Parses a copy of exactly `length` bytes and reads all it leads to, so that a sanitizer sees every read
 * outside. */
static void walk_exact(const char *bytes, size_t length)
{
    LmdbView view;
    uint8_t *exact = malloc(length ? length : 1);
    memcpy(exact, bytes, length);
    find_exact(exact, length);
    if (fsh_lmdb_parse(&view, exact, length, NULL) == FSH_OK) {
        uint8_t sum = 0;
        for (uint64_t i = 0; i < view.record_count; i++) {
            IndexRow row = fsh_index_row_load(view.rows.bytes + i * INDEX_ROW_BYTES);
            for (uint64_t j = 0; j < row.record_bytes; j++) {
                sum += exact[row.offset + j];
            }
        }
        for (size_t j = 0; j < view.metadata_bytes; j++) {
            sum += (uint8_t)view.metadata[j];
        }
        exact[0] = sum;
        fsh_lmdb_free(&view);
    }
    free(exact);
}

TEST_IN_FOLDER(test_damaged_pages_are_refused_or_harmless, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 250};
    size_t length = 0;
    samples_write_file(&plan, "train", test_path(folder, "train.lmdb"), 0, 0, plan.train_count, NULL);
    char *bytes = test_file_read(test_path(folder, "train.lmdb/data.mdb"), &length);
    /* Headers and node tables of every page, byte by byte; then bytes anywhere. */
    static const unsigned char values[] = {0x01, 0x40, 0x80, 0xFF};
    for (size_t page = 0; page < length; page += 4096) {
        for (size_t at = page; at < page + (page < 8192 ? 160 : 48); at++) {
            for (size_t v = 0; v < sizeof values; v++) {
                char kept = bytes[at];
                bytes[at] ^= (char)values[v];
                walk_exact(bytes, length);
                bytes[at] = kept;
            }
        }
    }
    Random random;
    random_start(&random, 5, 6);
    for (int i = 0; i < 3000; i++) {
        size_t at = random_below(&random, (uint32_t)length);
        char kept = bytes[at];
        bytes[at] = (char)random_u32(&random);
        walk_exact(bytes, length);
        bytes[at] = kept;
    }
    for (size_t cut = 0; cut < length; cut += 509) {
        LmdbView view;
        assert_int_not_equal(fsh_lmdb_parse(&view, (const uint8_t *)bytes, cut, NULL), FSH_OK);
    }
    free(bytes);
}

/* Each number of each node of the tree, set to what hurts. */
TEST_IN_FOLDER(test_hostile_nodes_are_refused_or_harmless, folder)
{
    static const uint8_t values[] = {0, 1, 2, 0x7F, 0x80, 0xFF};
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 40, .payload_bytes_max = 6000};
    size_t length = 0, in_overflow = 0;
    samples_write_file(&plan, "train", test_path(folder, "train.lmdb"), 0, 0, plan.train_count, NULL);
    char *text = test_file_read(test_path(folder, "train.lmdb/data.mdb"), &length);
    uint8_t *bytes = (uint8_t *)text;
    for (size_t page = 8192; page < length; page += 4096) {
        unsigned lower = load_le16(bytes + page + 12);
        if (load_le16(bytes + page + 10) > 2 || load_le64(bytes + page) != page / 4096)
            continue;
        for (unsigned i = 16; i < lower; i += 2) {
            uint8_t *node = bytes + page + load_le16(bytes + page + i);
            bool overflow = load_le16(bytes + page + 10) == 2 && load_le16(node + 4) == 1;
            size_t number_bytes = overflow ? 8 + 10 + 8 : 8; /* with the page number after the key */
            in_overflow += overflow;
            for (size_t at = 0; at < number_bytes; at++) {
                for (size_t v = 0; v < sizeof values; v++) {
                    uint8_t kept = node[at];
                    node[at] = values[v];
                    walk_exact(text, length);
                    node[at] = kept;
                }
            }
        }
    }
    assert_true(in_overflow > 5);
    free(text);
}

TEST_IN_FOLDER(test_a_tree_that_is_not_what_its_meta_page_says_is_refused, folder)
{
    static const size_t places[] = {94, 120, 121, 128, 135}; /* depth, entries, root */
    size_t length = 0;
    write_small_lmdb(folder);
    char *bytes = test_file_read(test_path(folder, "train.lmdb/data.mdb"), &length);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        LmdbView view;
        bytes[places[i]] ^= 1; /* in both, whichever is the newer */
        bytes[4096 + places[i]] ^= 1;
        assert_int_not_equal(fsh_lmdb_parse(&view, (const uint8_t *)bytes, length, NULL), FSH_OK);
        bytes[places[i]] ^= 1;
        bytes[4096 + places[i]] ^= 1;
    }
    free(bytes);
}

/* Returns where a leaf page begins in the file. which: 0 is the first. */
static size_t find_leaf_page(const uint8_t *bytes, size_t length, unsigned which)
{
    for (size_t page = 8192; page < length; page += 4096)
        if (load_le16(bytes + page + 10) == 2 && load_le64(bytes + page) == page / 4096 && which-- == 0)
            return page;
    fail_msg("there are not so many leaves");
    return 0;
}

/* What is damaged in the middle of the tree is told when it is needed, and by who checks; in the same words,
 * which the walk over all pages had for it too. */
TEST_IN_FOLDER(test_a_damaged_page_is_told_at_use, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 250};
    static const struct {
        const char *name, *words;
        size_t at; /* in the page */
        uint8_t value;
    } damages[] = {
        {"flags", "is no leaf page", 10, 1},
        {"number", "is no leaf page", 0, 0xEE},
        {"place of a node", ": node 0 lies outside", 16, 1},
        {"key", "was expected: not written by fshard, or damaged", 0, 0},
        {"node flags", "node flags", 0, 0},
    };
    samples_write_dataset(&plan, folder->path);
    const char *path = test_path(folder, "train.lmdb/data.mdb");
    size_t length = 0;
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    const size_t page = find_leaf_page(bytes, length, 3);
    uint8_t *node = bytes + page + load_le16(bytes + page + 16);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        FshError error = {0}, walked = {0};
        FshDataset *dataset = NULL;
        LmdbView view;
        uint8_t *at = strcmp(damages[i].name, "key") == 0          ? node + 8
                      : strcmp(damages[i].name, "node flags") == 0 ? node + 4
                                                                   : bytes + page + damages[i].at;
        const uint8_t kept = *at;
        *at = damages[i].value ? damages[i].value : (uint8_t)(kept ^ 0x40);
        test_file_write(path, (const char *)bytes, length);
        assert_ok(fsh_open(&dataset, folder->path, &error), &error);
        const FshSplit *split = fsh_split(dataset, "train");
        uint64_t failed = 0;
        for (uint64_t j = 0; j < split->sample_count; j++) {
            FshSample sample;
            if (fsh_sample_get(split, j, &sample, &error) == FSH_OK) {
                assert_int_equal(fsh_sample_label(split, j), sample.label);
                continue;
            }
            failed++;
            assert_contains(error.message, damages[i].words);
            assert_contains(error.message, "train.lmdb record ");
            assert_int_equal(fsh_sample_label(split, j), FSH_NO_LABEL);
        }
        assert_in_range(failed, 1, 60);
        assert_true(fsh_split_bytes(split) > 0);
        fsh_close(&dataset);
        assert_int_not_equal(fsh_lmdb_parse(&view, bytes, length, &walked), FSH_OK);
        assert_contains(walked.message, damages[i].words);
        assert_int_equal(count_problems(folder->path, FSH_CHECK_QUICK), 1);
        *at = kept;
    }
    free(bytes);
}

/* Who looks for one key goes by the keys of branches, so who checks looks at them too. */
TEST_IN_FOLDER(test_a_wrong_key_in_a_branch_is_found, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 250};
    size_t length = 0, changed = 0;
    samples_write_file(&plan, "train", test_path(folder, "train.lmdb"), 0, 0, plan.train_count, NULL);
    uint8_t *bytes = (uint8_t *)test_file_read(test_path(folder, "train.lmdb/data.mdb"), &length);
    const uint8_t *meta = load_le64(bytes + 144) > load_le64(bytes + 4096 + 144) ? bytes : bytes + 4096;
    uint8_t *root = bytes + 4096 * load_le64(meta + 128);
    assert_int_equal(load_le16(root + 10), 1);
    for (unsigned i = 18; i < load_le16(root + 12); i += 2) {
        uint8_t *node = root + load_le16(root + i), *digit = node + 8 + 9;
        /* One less than a 0 is still after the key before: it parts the same keys. */
        for (int step = *digit == '0' ? 1 : -1; load_le16(node + 6) == 10 && step <= 1; step += 2) {
            LmdbView view;
            FshError error = {0};
            *digit = (uint8_t)(*digit + step);
            assert_int_equal(fsh_lmdb_parse(&view, bytes, length, &error), FSH_ERR_CORRUPT);
            assert_contains(error.message, "is out of order");
            *digit = (uint8_t)(*digit - step);
            changed++;
        }
    }
    assert_true(changed > 4);
    free(bytes);
}

TEST_IN_FOLDER(test_branches_in_a_circle_end, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 250};
    FshError error = {0};
    LmdbView view;
    size_t length = 0;
    samples_write_file(&plan, "train", test_path(folder, "train.lmdb"), 0, 0, plan.train_count, NULL);
    char *text = test_file_read(test_path(folder, "train.lmdb/data.mdb"), &length);
    uint8_t *bytes = (uint8_t *)text;
    /* Every child of every branch page is the page itself, and the tree is as deep as it may be. */
    for (size_t page = 8192; page < length; page += 4096) {
        uint8_t *at = bytes + page;
        if (at[10] != 1 || at[11] != 0)
            continue;
        for (unsigned i = 16; i < at[12] + 256U * at[13]; i += 2) {
            uint8_t *node = at + at[i] + 256 * at[i + 1];
            node[0] = (uint8_t)(page / 4096);
            node[1] = (uint8_t)(page / 4096 >> 8);
        }
    }
    bytes[94] = bytes[4096 + 94] = 32;
    assert_int_equal(fsh_lmdb_parse(&view, bytes, length, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "is no leaf page");
    free(text);
}

TEST_IN_FOLDER(test_every_changed_byte_is_found_by_the_manifest, folder)
{
    const DatasetPlan plan = {.container = FSH_CONTAINER_LMDB, .train_count = 2};
    samples_write_dataset(&plan, folder->path);
    const char *path = test_path(folder, "train.lmdb/data.mdb");
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    for (size_t i = 0; i < length; i += i % 4096 < 160 ? 1 : 61) {
        bytes[i] ^= 4;
        test_file_write(path, bytes, length);
        bytes[i] ^= 4;
        if (count_problems(folder->path, FSH_CHECK_QUICK) == 0)
            fail_msg("a change of byte %zu is not found", i);
    }
    free(bytes);
}

/* ---- writing, the other ways ---- */

TEST_IN_FOLDER(test_nothing_stays_without_finish, folder)
{
    FshError error = {0};
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    assert_ok(fsh_writer_open(&writer, test_path(folder, "train.lmdb"), &options, &error), &error);
    fsh_writer_close(&writer);
    assert_false(file_exists(test_path(folder, "train.lmdb")));
}

TEST_IN_FOLDER(test_force_replaces_and_failure_keeps_the_old, folder)
{
    FshError error = {0};
    FshWriter *writer = NULL;
    const char *path = write_small_lmdb(folder);
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    assert_int_equal(fsh_writer_open(&writer, path, &options, &error), FSH_ERR_EXISTS);
    assert_null(writer);
    test_file_write_text(test_path(folder, "train.lmdb/lock.mdb"), "of another program");

    options.force = true;
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    fsh_writer_close(&writer); /* given up */
    FshDataset *dataset = NULL;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    samples_assert_split(dataset, &small_plan, "train", small_plan.train_count);
    fsh_close(&dataset);

    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    assert_ok(fsh_writer_finish(writer, NULL, &error), &error);
    fsh_writer_close(&writer);
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 0);
    fsh_close(&dataset);
    assert_int_equal(test_count_files(path), 1);
}

TEST_IN_FOLDER(test_a_file_in_the_way_is_refused, folder)
{
    FshError error = {0};
    FshWriter *writer = NULL;
    FshWriterOptions options = samples_writer_options(&small_plan, "train", 0);
    options.force = true;
    test_file_write_text(test_path(folder, "train.lmdb"), "a file");
    assert_int_equal(fsh_writer_open(&writer, test_path(folder, "train.lmdb"), &options, &error),
                     FSH_ERR_EXISTS);
    assert_null(writer);
    assert_int_equal(test_file_size(test_path(folder, "train.lmdb")), 6);
}

TEST_IN_FOLDER(test_a_foreign_lmdb_is_refused, folder)
{
    FshError error = {0};
    FshDataset *dataset = NULL;
    MDB_env *environment = NULL;
    MDB_txn *transaction = NULL;
    MDB_dbi database = 0;
    const char *path = test_path(folder, "other.lmdb");
    assert_ok(file_make_folders(path, &error), &error);
    assert_int_equal(mdb_env_create(&environment), 0);
    assert_int_equal(mdb_env_open(environment, path, MDB_NOLOCK, 0600), 0);
    assert_int_equal(mdb_txn_begin(environment, NULL, 0, &transaction), 0);
    assert_int_equal(mdb_dbi_open(transaction, NULL, 0, &database), 0);
    MDB_val key = {.mv_size = 3, .mv_data = "abc"}, value = {.mv_size = 3, .mv_data = "def"};
    assert_int_equal(mdb_put(transaction, database, &key, &value, 0), 0);
    assert_int_equal(mdb_txn_commit(transaction), 0);
    mdb_env_close(environment);
    assert_int_equal(fsh_open(&dataset, path, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "not written by fshard");
    assert_int_equal(fsh_open(&dataset, test_path(folder, "other.lmdb/data.mdb"), &error),
                     FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "not written by fshard");
}
