#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lmdb.h>

#include "common/file.h"
#include "formats/folder2lmdb.h"
#include "formats/lmdb_reader.h"
#include "tests/formats/samples.h"

#define JPEG "\xFF\xD8\xFF picture"

/* ---- LMDBs made here, as others make them ---- */

typedef struct TestEntry {
    const char *key;
    const void *value;
    size_t bytes;
} TestEntry;

/* Writes the entries with liblmdb. path is a folder, made here, or with MDB_NOSUBDIR a file. */
static void write_lmdb(const char *path, unsigned flags, const TestEntry *entries, size_t count)
{
    MDB_env *environment = NULL;
    MDB_txn *transaction = NULL;
    MDB_dbi database;
    FshError error = {0};
    if (!(flags & MDB_NOSUBDIR))
        assert_ok(file_make_folders(path, &error), &error);
    assert_int_equal(mdb_env_create(&environment), 0);
    assert_int_equal(mdb_env_set_mapsize(environment, 64 << 20), 0);
    assert_int_equal(mdb_env_open(environment, path, flags | MDB_NOSYNC, 0666), 0);
    assert_int_equal(mdb_txn_begin(environment, NULL, 0, &transaction), 0);
    assert_int_equal(mdb_dbi_open(transaction, NULL, 0, &database), 0);
    for (size_t i = 0; i < count; i++) {
        MDB_val key = {.mv_size = strlen(entries[i].key), .mv_data = (void *)entries[i].key};
        MDB_val value = {.mv_size = entries[i].bytes, .mv_data = (void *)entries[i].value};
        assert_int_equal(mdb_put(transaction, database, &key, &value, 0), 0);
    }
    assert_int_equal(mdb_txn_commit(transaction), 0);
    mdb_env_close(environment);
}

static FshDataset *open_good(const char *path)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    assert_ok(fsh_open(&dataset, path, &error), &error);
    return dataset;
}

static void assert_refused(const char *path, FshStatus status, const char *part)
{
    FshDataset *dataset = NULL;
    FshError error = {0};
    FshStatus found = fsh_open(&dataset, path, &error);
    if (found != status)
        fail_msg("%s gives %d: %s", path, found, error.message);
    assert_contains(error.message, part);
    assert_contains(error.message, path);
}

static void get(const FshDataset *dataset, const char *split, uint64_t index, FshSample *sample)
{
    FshError error = {0};
    assert_non_null(fsh_split(dataset, split));
    assert_ok(fsh_sample_get(fsh_split(dataset, split), index, sample, &error), &error);
}

static void assert_key(const FshSample *sample, const char *key)
{
    assert_int_equal(sample->key_bytes, strlen(key));
    assert_memory_equal(sample->key, key, sample->key_bytes);
}

/* ---- BasicSR ---- */

static void write_side(TestFolder *folder, const char *name, const char *const *keys, size_t count,
                       const char *meta)
{
    TestEntry entries[8];
    for (size_t i = 0; i < count; i++)
        entries[i] = (TestEntry){keys[i], keys[i], strlen(keys[i])};
    write_lmdb(test_path(folder, "%s.lmdb", name), 0, entries, count);
    test_file_write_text(test_path(folder, "%s.lmdb/meta_info.txt", name), meta);
}

TEST_IN_FOLDER(test_sides_of_basicsr_are_pairs, folder)
{
    static const char *const keys[] = {"0001", "0002", "a/0003"};
    FshSample sample;
    write_side(folder, "lq", keys, 3, "a/0003.png (4,5,3) 1\n0001.png (2,3,3) 1\n0002.png (2,3,1) 1\n");
    write_side(folder, "gt", keys, 3, "0002.png (6,9,3) 1\r\n\n0001.png (8,12,3) 1\na/0003.png");
    FshDataset *dataset = open_good(folder->path);
    const FshManifest *manifest = fsh_manifest(dataset);
    assert_int_equal(manifest->container, FSH_CONTAINER_BASICSR);
    assert_int_equal(manifest->kind, FSH_KIND_PAIRS);
    assert_string_equal(manifest->field_names[0], "gt");
    assert_string_equal(manifest->field_names[1], "lq");
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 3);
    get(dataset, "train", 1, &sample); /* in the order of the first side's meta_info.txt */
    assert_key(&sample, "0001");
    assert_int_equal(sample.fields[0].height, 8);
    assert_int_equal(sample.fields[0].width, 12);
    assert_int_equal(sample.fields[1].height, 2);
    assert_memory_equal(sample.fields[1].data, "0001", 4);
    get(dataset, "train", 2, &sample);
    assert_key(&sample, "a/0003");
    assert_int_equal(sample.fields[0].width, 0);
    assert_int_equal(sample.fields[1].width, 5);
    fsh_close(&dataset);
    dataset = open_good(test_path(folder, "lq.lmdb"));
    assert_int_equal(fsh_manifest(dataset)->field_count, 1);
    get(dataset, "train", 0, &sample);
    assert_key(&sample, "a/0003");
    assert_int_equal(sample.label, FSH_NO_LABEL);
    fsh_close(&dataset);
}

TEST(test_orphans_of_basicsr_are_named)
{
    static const char *const keys[] = {"a", "b", "c"};
    static const struct {
        size_t lq_count;
        const char *lq_meta, *gt_meta, *part;
        FshStatus status;
    } rows[] = {
        {2, "a.png (1,1,3) 1\nb.png\n", "a.png\nb.png\nc.png\n", "lq: key \"c\" is missing",
         FSH_ERR_MISMATCH},
        {3, "a.png\nb.png\nc.png\n", "a.png\nb.png\n", "gt: key \"c\" is in the LMDB", FSH_ERR_MISMATCH},
        {3, "a.png\nb.png\nc.png\n", "a.png\nb.png\nc.png\nd.png\n", "gt: key \"d\"", FSH_ERR_MISMATCH},
        {3, "a.png\nb.png\nc.png\n", "a.png\nb.png\nc.png\nb.png\n", "\"b\" is in meta_info.txt twice",
         FSH_ERR_MISMATCH},
        {3, "x.png\n", "a.png\nb.png\nc.png\n", "lq: key \"x\"", FSH_ERR_MISMATCH},
        {3, "a.png\nb.png\nc.png\n", "a.png (1,2)\n", "byte 0", FSH_ERR_CORRUPT},
        {3, "a.png\nb.png\nc.png\n", "a.png\nnodot\n", "byte 6", FSH_ERR_CORRUPT},
        {3, "a.png\nb.png\nc.png\n", "a.png (1,99999999999,3) 1\n", "byte 0", FSH_ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestFolder folder;
        test_folder_make(&folder);
        write_side(&folder, "lq", keys, rows[i].lq_count, rows[i].lq_meta);
        write_side(&folder, "gt", keys, 3, rows[i].gt_meta);
        assert_refused(folder.path, rows[i].status, rows[i].part);
        test_folder_remove(&folder);
    }
}

static const char *const sides[] = {"blurry", "sharp"};

static FshStatus put_pair(FshWriter *writer, const char *key, FshCodec codec, FshError *error)
{
    FshField field = {.data = JPEG, .bytes = 8, .width = 4, .height = 2, .channels = 1, .codec = codec};
    FshSample sample = {.key = key,
                        .key_bytes = strlen(key),
                        .label = FSH_NO_LABEL,
                        .field_count = 2,
                        .fields = {field, field}};
    sample.fields[1].bytes = codec == FSH_CODEC_RAW ? 8 : 9;
    return fsh_writer_put(writer, &sample, error);
}

static FshWriterOptions basicsr_options(void)
{
    return (FshWriterOptions){.container = FSH_CONTAINER_BASICSR,
                              .dataset_id = SAMPLES_ID,
                              .split = "train",
                              .kind = FSH_KIND_PAIRS,
                              .field_names = sides,
                              .field_count = 2,
                              .shard_count = 1};
}

TEST_IN_FOLDER(test_what_is_written_for_basicsr_is_read, folder)
{
    static const char *const keys[] = {"z/0001", "a.b/0%2", "sn\xC3\xB6w", "b"};
    FshError error = {0};
    FshWriterOptions options = basicsr_options();
    FshWriter *writer = NULL;
    FshFileInfo info = {0};
    const char *path = test_path(folder, "train.basicsr");
    assert_ok(fsh_writer_open(&writer, path, &options, &error), &error);
    for (size_t i = 0; i < 4; i++)
        assert_ok(put_pair(writer, keys[i], FSH_CODEC_JPEG, &error), &error);
    assert_ok(fsh_writer_finish(writer, &info, &error), &error);
    fsh_writer_close(&writer);
    char *meta = test_file_read(test_path(folder, "train.basicsr/sharp.lmdb/meta_info.txt"), NULL);
    assert_contains(meta, "z/0001.jpg (2,4,1) 1\na%2Eb/0%252.jpg (2,4,1) 1\nsn%C3%B6w.jpg");
    free(meta);
    FshSplitInfo split = {.name = "train", .sample_count = 4, .files = &info, .file_count = 1};
    FshManifest manifest = {.id = SAMPLES_ID,
                            .container = FSH_CONTAINER_BASICSR,
                            .kind = FSH_KIND_PAIRS,
                            .field_names = (char **)sides,
                            .field_count = 2,
                            .splits = &split,
                            .split_count = 1};
    assert_ok(fsh_manifest_save(&manifest, folder->path, false, &error), &error);
    FshDataset *dataset = open_good(folder->path);
    for (size_t i = 0; i < 4; i++) {
        FshSample sample;
        get(dataset, "train", i, &sample);
        assert_key(&sample, keys[i]);
        assert_int_equal(sample.fields[0].bytes, 8);
        assert_int_equal(sample.fields[1].bytes, 9);
        assert_int_equal(sample.fields[1].width, 4);
        assert_memory_equal(sample.fields[1].data, JPEG, 9);
    }
    FshResidency residency;
    assert_ok(fsh_split_cache(fsh_split(dataset, "train"), FSH_CACHE_RAM, 1, &error), &error);
    assert_ok(fsh_split_residency(fsh_split(dataset, "train"), &residency, &error), &error);
    assert_int_equal(residency.bytes, info.bytes);
    fsh_close(&dataset);
    uint64_t problems = 0;
    assert_ok(fsh_check(folder->path, FSH_CHECK_RECORDS, 1, NULL, NULL, &problems, &error), &error);
    assert_int_equal(problems, 0);
    for (int i = 0; i < 2; i++) { /* every file is hashed */
        test_file_flip_byte(
            test_path(folder, "train.basicsr/sharp.lmdb/%s", i ? "meta_info.txt" : "data.mdb"), -3);
        assert_ok(fsh_check(folder->path, FSH_CHECK_QUICK, 1, NULL, NULL, &problems, &error), &error);
        assert_true(problems > 0);
        test_file_flip_byte(
            test_path(folder, "train.basicsr/sharp.lmdb/%s", i ? "meta_info.txt" : "data.mdb"), -3);
    }
    free(info.name);
}

TEST_IN_FOLDER(test_what_basicsr_cannot_hold_is_refused, folder)
{
    for (int i = 0; i < 2; i++) {
        FshError error = {0};
        FshWriterOptions options = basicsr_options();
        FshWriter *writer = NULL;
        assert_ok(fsh_writer_open(&writer, test_path(folder, "train.basicsr"), &options, &error), &error);
        assert_ok(put_pair(writer, "same", i ? FSH_CODEC_JPEG : FSH_CODEC_RAW, &error), &error);
        if (i)
            assert_ok(put_pair(writer, "same", FSH_CODEC_JPEG, &error), &error);
        assert_int_equal(fsh_writer_finish(writer, NULL, &error), FSH_ERR_MISMATCH);
        assert_contains(error.message, "sample same");
        assert_contains(error.message, i ? "there already" : "not raw");
        fsh_writer_close(&writer);
        assert_false(file_exists(test_path(folder, "train.basicsr")));
    }
}

/* ---- folder2lmdb ---- */

/* Holds what Python's pickle writes of (b"abc", LABEL). */
#define TEXT(literal) (literal), sizeof(literal) - 1
static const struct {
    const char *bytes;
    size_t length;
    int64_t label;
} pickles[] = {
    {TEXT("\x80\x04\x95\x0b\0\0\0\0\0\0\0C\x03"
          "abc\x94K\x07\x86\x94."),
     7},
    {TEXT("\x80\x03"
          "C\x03"
          "abcq\0M\xe7\x03\x86q\x01."),
     999},
    {TEXT("\x80\x05\x95\x0e\0\0\0\0\0\0\0C\x03"
          "abc\x94J\xff\xff\xff\xff\x86\x94."),
     -1},
    {TEXT("\x80\x03"
          "B\x03\0\0\0abcq\0\x8a\x01\x05\x86q\x01."),
     5},
    {TEXT("\x80\x02U\x03"
          "abcq\0K\x01\x86q\x01."),
     1},
    {TEXT("(U\x03"
          "abcp1\nI12\ntp2\n."),
     12},
    {TEXT("\x80\x04\x8e\x03\0\0\0\0\0\0\0abc\x94K\0\x86\x94."), 0},
};

TEST(test_pickles_are_read)
{
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        FshError error = {0};
        uint64_t at = 0, bytes = 0;
        int64_t label = -5;
        const uint8_t *pickle = (const uint8_t *)pickles[i].bytes;
        assert_ok(fsh_pickle_sample(pickle, pickles[i].length, &at, &bytes, &label, &error), &error);
        assert_int_equal(bytes, 3);
        assert_memory_equal(pickle + at, "abc", 3);
        assert_int_equal(label, pickles[i].label);
        for (size_t length = 0; length < pickles[i].length; length++) {
            uint8_t *exact = malloc(length ? length : 1);
            memcpy(exact, pickle, length);
            assert_int_not_equal(fsh_pickle_sample(exact, length, &at, &bytes, &label, &error), FSH_OK);
            free(exact);
        }
    }
}

TEST(test_other_pickles_are_refused_by_name)
{
    static const struct {
        const char *bytes;
        size_t length;
        const char *part;
        FshStatus status;
    } rows[] = {
        {TEXT("cos\nsystem\n(S'ls'\ntR."), "opcode GLOBAL at byte 0", FSH_ERR_UNSUPPORTED},
        {TEXT("\x80\x04\x8c\x05posix\x8c\x06system\x93."), "opcode SHORT_BINUNICODE at byte 2",
         FSH_ERR_UNSUPPORTED},
        {TEXT("\x80\x04K\x01."), "something else", FSH_ERR_UNSUPPORTED},
        {TEXT("\x80\x04K\x01"
              "C\x01x\x86."),
         "TUPLE2", FSH_ERR_CORRUPT},
        {TEXT("\x80\x04"
              "C\x01xK\x01K\x02\x87."),
         "TUPLE3", FSH_ERR_UNSUPPORTED},
        {TEXT("\x80\x04"
              "B\xff\xff\xff\x7fx"),
         "BINBYTES", FSH_ERR_CORRUPT},
        {TEXT("\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffx"), "BINBYTES8", FSH_ERR_CORRUPT},
        {TEXT("\x80\x04((((("), "MARK", FSH_ERR_CORRUPT},
        {TEXT("\x80\x04"
              "C\x01xK\x01\x86.x"),
         "1 bytes after", FSH_ERR_CORRUPT},
        {TEXT("\x80\x04\xFE"), "byte fe at 2", FSH_ERR_UNSUPPORTED},
        {TEXT("\x92\xc4\x03"
              "abc\x07"),
         "msgpack", FSH_ERR_UNSUPPORTED},
        {TEXT("\0\0\0\0\x01\0\0\0\0\0\0\0"), "pyarrow", FSH_ERR_UNSUPPORTED},
        {"", 0, "without an end", FSH_ERR_CORRUPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FshError error = {0};
        uint64_t at = 0, bytes = 0;
        int64_t label = 0;
        FshStatus status =
            fsh_pickle_sample((const uint8_t *)rows[i].bytes, rows[i].length, &at, &bytes, &label, &error);
        if (status != rows[i].status)
            fail_msg("row %zu gives %d: %s", i, status, error.message);
        assert_contains(error.message, rows[i].part);
    }
}

TEST_IN_FOLDER(test_folder2lmdb_is_read_in_the_order_of_numbers, folder)
{
    TestEntry entries[14] = {{"__keys__", "x", 1}, {"__len__", "x", 1}};
    char keys[12][8], values[12][16];
    for (int i = 0; i < 12; i++) { /* "10" comes before "2" in the LMDB */
        (void)snprintf(keys[i], sizeof keys[i], "%d", i);
        memcpy(values[i],
               "\x80\x04"
               "C\x03"
               "abcK\0\x86.",
               12);
        values[i][8] = (char)i;
        entries[2 + i] = (TestEntry){keys[i], values[i], 11};
    }
    write_lmdb(test_path(folder, "train.lmdb"), MDB_NOSUBDIR, entries, 14);
    write_lmdb(test_path(folder, "val.lmdb"), 0, entries, 3);
    FshDataset *dataset = open_good(folder->path);
    FshSample sample;
    assert_int_equal(fsh_manifest(dataset)->container, FSH_CONTAINER_FOLDER2LMDB);
    assert_int_equal(fsh_manifest(dataset)->class_count, 12);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 12);
    assert_int_equal(fsh_split(dataset, "val")->sample_count, 1);
    for (uint64_t i = 0; i < 12; i++) {
        get(dataset, "train", i, &sample);
        assert_key(&sample, keys[i]);
        assert_int_equal(sample.label, i);
        assert_int_equal(sample.fields[0].bytes, 3);
        assert_memory_equal(sample.fields[0].data, "abc", 3);
    }
    fsh_close(&dataset);
    entries[5].key = "99";
    write_lmdb(test_path(folder, "gap.lmdb"), MDB_NOSUBDIR, entries, 14);
    assert_refused(test_path(folder, "gap.lmdb"), FSH_ERR_CORRUPT, "there is no key 3");
    entries[5] = (TestEntry){"3", "\x92\xc4\x01x\x01", 5};
    write_lmdb(test_path(folder, "msgpack.lmdb"), MDB_NOSUBDIR, entries, 14);
    assert_refused(test_path(folder, "msgpack.lmdb"), FSH_ERR_UNSUPPORTED, "msgpack");
}

static FshStatus count_entry(const LmdbEntry *entry, void *context, FshError *error)
{
    (void)error;
    *(uint64_t *)context += entry->bytes;
    return FSH_OK;
}

/* Two keys with one value: a file of many such would keep a reader busy for ever. */
TEST_IN_FOLDER(test_values_that_overlap_are_refused, folder)
{
    enum { PAGE_BYTES = 4096, PAGES = 40, VALUE_BYTES = PAGE_BYTES * PAGES - 16, NODE_PAGE = 9 };
    char *value = calloc(1, VALUE_BYTES);
    const TestEntry entries[] = {{"a", value, 10}, {"b", value, VALUE_BYTES}, {"c", value, 5000}};
    write_lmdb(test_path(folder, "x"), 0, entries, 3);
    size_t length = 0;
    uint8_t *bytes = (uint8_t *)test_file_read(test_path(folder, "x/data.mdb"), &length);
    FshError error = {0};
    uint64_t total = 0;
    assert_ok(fsh_lmdb_walk(bytes, length, count_entry, &total, &error), &error);
    assert_int_equal(total, 10 + VALUE_BYTES + 5000);
    /* The nodes of b and c: size in 32 bits, flags, size of the key, the key, the page of the value. */
    const uint8_t b_begin[8] = {
        (uint8_t)VALUE_BYTES, (uint8_t)(VALUE_BYTES >> 8), (uint8_t)(VALUE_BYTES >> 16), 0, 1, 0, 1, 0};
    const uint8_t c_begin[8] = {(uint8_t)5000, 5000 >> 8, 0, 0, 1, 0, 1, 0};
    uint8_t *b = memmem(bytes, length, b_begin, sizeof b_begin);
    uint8_t *c = memmem(bytes, length, c_begin, sizeof c_begin);
    assert_true(b && c && b[8] == 'b' && c[8] == 'c');
    memcpy(c, b, 4);
    memcpy(c + NODE_PAGE, b + NODE_PAGE, sizeof(uint64_t));
    assert_int_equal(fsh_lmdb_walk(bytes, length, count_entry, &total, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "values overlap");
    free(bytes);
    free(value);
}
