/* Compressed fields and dictionaries: whatever was packed comes back, and nothing that was damaged does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "common/file.h"
#include "common/bytes.h"
#include "formats/dataset.h"
#include "formats/shard.h"
#include "tests/formats/compressed.h"
#include "tests/support/support.h"

static void assert_unpacks(FshUnpacker *unpacker, const FshSplit *split, uint64_t index)
{
    FshSample sample;
    FshError error = {0};
    assert_ok(fsh_sample_get(split, index, &sample, &error), &error);
    for (unsigned i = 0; i < sample.field_count; i++) {
        Buffer expected = {0};
        const void *data = NULL;
        size_t bytes = 0;
        compressed_draw(index, i, &expected);
        assert_ok(fsh_field_unpack(unpacker, split, &sample.fields[i], &data, &bytes, &error), &error);
        assert_int_equal(sample.fields[i].unpacked_bytes, expected.length);
        assert_int_equal(bytes, expected.length);
        assert_memory_equal(data, expected.bytes, bytes);
        buffer_free(&expected);
    }
}

static void assert_all_unpack(const char *path, const char *split_name, uint64_t count, bool compressed)
{
    FshDataset *dataset = NULL;
    FshUnpacker *unpacker = NULL;
    FshError error = {0};
    FshSample sample;
    assert_ok(fsh_open(&dataset, path, &error), &error);
    assert_ok(fsh_unpacker_new(&unpacker, &error), &error);
    const FshSplit *split = fsh_split(dataset, split_name);
    assert_non_null(split);
    assert_int_equal(split->sample_count, count);
    for (uint64_t i = 0; i < count; i++) {
        assert_unpacks(unpacker, split, i);
        assert_ok(fsh_sample_verify(split, i, &error), &error);
        assert_ok(fsh_sample_get(split, i, &sample, &error), &error);
        assert_int_equal(sample.fields[0].compression,
                         compressed ? FSH_COMPRESSION_ZSTD : FSH_COMPRESSION_NONE);
        assert_true(!compressed || sample.fields[0].bytes < sample.fields[0].unpacked_bytes);
    }
    fsh_unpacker_free(&unpacker);
    assert_null(unpacker);
    fsh_close(&dataset);
}

/* ---- what was packed comes back ---- */

TEST_IN_FOLDER(test_fields_come_back_byte_for_byte, folder)
{
    const FshContainer containers[] = {FSH_CONTAINER_SHARDS, FSH_CONTAINER_LMDB, FSH_CONTAINER_SHARDS};
    for (size_t i = 0; i < 3; i++)
        for (int level = 0; level <= 9; level += 3)
            for (int dictionary = 0; dictionary < 2; dictionary++)
                for (int pairs = 0; pairs < 2; pairs++) {
                    const char *path = test_path(folder, "set-%zu%d%d%d", i, level, dictionary, pairs);
                    const CompressedPlan plan = {.container = containers[i],
                                                 .train_count = 40,
                                                 .val_count = 7,
                                                 .level = level,
                                                 .dictionary = dictionary,
                                                 .pairs = pairs,
                                                 .form = i == 2 ? FSH_RECORD_COMPACT : FSH_RECORD_ALIGNED};
                    uint64_t problems = 1;
                    FshError error = {0};
                    compressed_write(&plan, path);
                    assert_all_unpack(path, "train", 40, level > 0);
                    assert_all_unpack(path, "val", 7, level > 0);
                    assert_ok(fsh_check(path, FSH_CHECK_RECORDS, 2, NULL, NULL, &problems, &error), &error);
                    assert_int_equal(problems, 0);
                }
}

TEST_IN_FOLDER(test_a_file_by_itself_has_its_dictionary, folder)
{
    const char *names[] = {"train-00001-of-00002.fshard", "train.lmdb"};
    for (size_t i = 0; i < 2; i++) {
        const CompressedPlan plan = {.container = i ? FSH_CONTAINER_LMDB : FSH_CONTAINER_SHARDS,
                                     .train_count = 40,
                                     .shard_count = i ? 1 : 2,
                                     .level = 3,
                                     .dictionary = true};
        const char *path = test_path(folder, "set-%zu", i);
        FshDataset *whole = NULL, *file = NULL;
        FshError error = {0};
        compressed_write(&plan, path);
        assert_ok(fsh_open(&whole, path, &error), &error);
        assert_ok(fsh_open(&file, test_path(folder, "set-%zu/%s", i, names[i]), &error), &error);
        size_t bytes[2] = {0};
        const void *dictionary[2] = {fsh_dictionary(whole, &bytes[0]), fsh_dictionary(file, &bytes[1])};
        assert_int_equal(bytes[0], compressed_dictionary()->length);
        assert_int_equal(bytes[1], bytes[0]);
        assert_memory_equal(dictionary[0], compressed_dictionary()->bytes, bytes[0]);
        assert_memory_equal(dictionary[1], dictionary[0], bytes[0]);
        FshDictionaryInfo info;
        assert_ok(fsh_dictionary_describe(dictionary[0], bytes[0], &info, &error), &error);
        assert_memory_equal(&fsh_manifest(whole)->dictionary, &info, sizeof info);
        assert_memory_equal(&fsh_manifest(file)->dictionary, &info, sizeof info);
        fsh_close(&whole);
        fsh_close(&file);
    }
}

TEST_IN_FOLDER(test_what_is_not_compressed_is_not_copied, folder)
{
    const CompressedPlan plan = {.train_count = 5, .dictionary = true};
    FshDataset *dataset = NULL;
    FshError error = {0};
    FshSample sample;
    const void *data = NULL;
    size_t bytes = 0, dictionary_bytes = 1;
    compressed_write(&plan, test_path(folder, "set"));
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    const FshSplit *split = fsh_split(dataset, "train");
    assert_ok(fsh_sample_get(split, 3, &sample, &error), &error);
    /* Not even an unpacker is looked at. */
    assert_ok(fsh_field_unpack(NULL, split, &sample.fields[0], &data, &bytes, &error), &error);
    assert_ptr_equal(data, sample.fields[0].data);
    assert_int_equal(bytes, sample.fields[0].bytes);
    assert_int_equal(sample.fields[0].unpacked_bytes, bytes);
    fsh_close(&dataset);

    const CompressedPlan plain = {.train_count = 5};
    compressed_write(&plain, test_path(folder, "plain"));
    assert_ok(fsh_open(&dataset, test_path(folder, "plain"), &error), &error);
    (void)fsh_dictionary(dataset, &dictionary_bytes);
    assert_int_equal(dictionary_bytes, 0);
    fsh_close(&dataset);
}

TEST(test_what_would_not_shrink_stays)
{
    static const uint8_t bytes[] = {0xFF, 0xD8, 3, 141, 59, 26, 53, 58, 97, 93, 23, 84};
    uint8_t zeros[1000] = {0};
    FshPacker *packer = NULL;
    FshError error = {0};
    FshSample packed, sample = {.key = "k",
                                .key_bytes = 1,
                                .field_count = 2,
                                .fields = {{.data = bytes, .bytes = sizeof bytes, .codec = FSH_CODEC_JPEG},
                                           {.data = zeros, .bytes = sizeof zeros, .codec = FSH_CODEC_JPEG}}};
    assert_ok(fsh_packer_new(&packer, FSH_PACK_LEVEL_MAX, NULL, 0, &error), &error);
    assert_ok(fsh_sample_pack(packer, &sample, &packed, &error), &error);
    assert_int_equal(packed.fields[0].compression, FSH_COMPRESSION_NONE);
    assert_ptr_equal(packed.fields[0].data, bytes);
    assert_int_equal(packed.fields[0].bytes, sizeof bytes);
    assert_int_equal(packed.fields[1].compression, FSH_COMPRESSION_ZSTD);
    assert_int_equal(packed.fields[1].unpacked_bytes, sizeof zeros);
    assert_true(packed.fields[1].bytes < 30);
    assert_int_equal(fsh_sample_pack(packer, &packed, &packed, &error), FSH_ERR_USAGE);
    assert_contains(error.message, "compressed already");
    fsh_packer_free(&packer);
    assert_null(packer);
}

TEST(test_a_packer_gives_the_same_whatever_it_did_before)
{
    const Buffer *dictionary = compressed_dictionary();
    FshError error = {0};
    FshPacker *old = NULL;
    assert_ok(fsh_packer_new(&old, 3, dictionary->bytes, dictionary->length, &error), &error);
    for (uint64_t i = 0; i < 50; i++) {
        Buffer drawn = {0};
        FshPacker *fresh = NULL;
        compressed_draw(i, 0, &drawn);
        FshSample packed[2],
            sample = {.field_count = 1, .fields = {{.data = drawn.bytes, .bytes = drawn.length}}};
        assert_ok(fsh_packer_new(&fresh, 3, dictionary->bytes, dictionary->length, &error), &error);
        assert_ok(fsh_sample_pack(old, &sample, &packed[0], &error), &error);
        assert_ok(fsh_sample_pack(fresh, &sample, &packed[1], &error), &error);
        assert_int_equal(packed[0].fields[0].bytes, packed[1].fields[0].bytes);
        assert_memory_equal(packed[0].fields[0].data, packed[1].fields[0].data, packed[0].fields[0].bytes);
        fsh_packer_free(&fresh);
        buffer_free(&drawn);
    }
    fsh_packer_free(&old);
}

/* ---- dictionaries ---- */

TEST(test_training_is_deterministic_and_says_when_it_cannot)
{
    enum { COUNT = 300 };
    Buffer images = {0};
    size_t sizes[COUNT];
    void *dictionaries[2] = {NULL};
    size_t bytes[2] = {0};
    FshError error = {0};
    for (uint64_t i = 0; i < COUNT; i++) {
        Buffer drawn = {0};
        compressed_draw(i, 0, &drawn);
        assert_ok(buffer_append(&images, drawn.bytes, drawn.length, &error), &error);
        sizes[i] = drawn.length;
        buffer_free(&drawn);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_ok(fsh_dictionary_train(images.bytes, sizes, COUNT, 4096, &dictionaries[i], &bytes[i], &error),
                  &error);
    }
    assert_true(bytes[0] <= 4096 && bytes[0] >= 256);
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(dictionaries[0], dictionaries[1], bytes[0]);
    free(dictionaries[0]);
    free(dictionaries[1]);
    assert_int_equal(fsh_dictionary_train(images.bytes, sizes, 2, 4096, &dictionaries[0], &bytes[0], &error),
                     FSH_ERR_MISMATCH);
    assert_null(dictionaries[0]);
    assert_contains(error.message, "2 samples");
    assert_int_equal(
        fsh_dictionary_train(images.bytes, sizes, COUNT, 255, &dictionaries[0], &bytes[0], &error),
        FSH_ERR_USAGE);
    assert_int_equal(fsh_dictionary_train(images.bytes, sizes, COUNT, FSH_DICTIONARY_BYTES_MAX + 1,
                                          &dictionaries[0], &bytes[0], &error),
                     FSH_ERR_USAGE);
    buffer_free(&images);
}

TEST_IN_FOLDER(test_what_is_no_dictionary_is_refused, folder)
{
    const Buffer *good = compressed_dictionary();
    uint8_t *bad = malloc(good->length);
    FshPacker *packer = NULL;
    FshWriter *writer = NULL;
    FshError error = {0};
    memcpy(bad, good->bytes, good->length);
    bad[0] ^= 1; /* its magic */
    assert_int_equal(fsh_packer_new(&packer, 3, bad, good->length, &error), FSH_ERR_USAGE);
    assert_null(packer);
    const char *names[] = {"image"}, *classes[] = {"a"};
    FshWriterOptions options = {.container = FSH_CONTAINER_SHARDS,
                                .dataset_id = "0123456789abcdef0123456789abcdef",
                                .split = "train",
                                .kind = FSH_KIND_CLASSES,
                                .field_names = names,
                                .field_count = 1,
                                .class_names = classes,
                                .class_count = 1,
                                .shard_count = 1,
                                .dictionary = bad,
                                .dictionary_bytes = good->length};
    assert_int_equal(fsh_writer_open(&writer, test_path(folder, "a.fshard"), &options, &error),
                     FSH_ERR_USAGE);
    options.dictionary = good->bytes;
    options.dictionary_bytes = 100;
    assert_int_equal(fsh_writer_open(&writer, test_path(folder, "a.fshard"), &options, &error),
                     FSH_ERR_USAGE);
    memset(bad + 8, 0xFF, 64); /* its tables */
    bad[0] ^= 1;
    assert_int_equal(fsh_packer_new(&packer, 3, bad, good->length, &error), FSH_ERR_USAGE);
    assert_int_equal(fsh_packer_new(&packer, 0, NULL, 0, &error), FSH_ERR_USAGE);
    assert_int_equal(fsh_packer_new(&packer, FSH_PACK_LEVEL_MAX + 1, NULL, 0, &error), FSH_ERR_USAGE);
    free(bad);
}

TEST_IN_FOLDER(test_files_with_different_dictionaries_are_no_dataset, folder)
{
    const char *names[] = {"train-00001-of-00002.fshard", "train.lmdb/data.mdb"};
    for (size_t i = 0; i < 2; i++) {
        CompressedPlan plan = {.container = i ? FSH_CONTAINER_LMDB : FSH_CONTAINER_SHARDS,
                               .train_count = 30,
                               .shard_count = i ? 1 : 2,
                               .level = 3,
                               .dictionary = true};
        FshDataset *dataset = NULL;
        FshError error = {0};
        compressed_write(&plan, test_path(folder, "one-%zu", i));
        plan.other_dictionary = true;
        compressed_write(&plan, test_path(folder, "two-%zu", i));
        size_t length = 0;
        char *file = test_file_read(test_path(folder, "two-%zu/%s", i, names[i]), &length);
        test_file_write(test_path(folder, "one-%zu/%s", i, names[i]), file, length);
        free(file);
        assert_int_equal(fsh_open(&dataset, test_path(folder, "one-%zu", i), &error), FSH_ERR_CORRUPT);
        assert_contains(error.message, names[i]);
        assert_contains(error.message, "another dictionary");
    }
}

TEST_IN_FOLDER(test_a_damaged_dictionary_is_found_at_opening, folder)
{
    const char *names[] = {"train-00000-of-00001.fshard", "train.lmdb/data.mdb"};
    const Buffer *dictionary = compressed_dictionary();
    for (size_t i = 0; i < 2; i++) {
        const CompressedPlan plan = {.container = i ? FSH_CONTAINER_LMDB : FSH_CONTAINER_SHARDS,
                                     .train_count = 30,
                                     .level = 3,
                                     .dictionary = true};
        compressed_write(&plan, test_path(folder, "set-%zu", i));
        const char *path = test_path(folder, "set-%zu/%s", i, names[i]);
        size_t length = 0;
        char *file = test_file_read(path, &length);
        char *at = memmem(file, length, dictionary->bytes, dictionary->length);
        assert_non_null(at);
        for (size_t place = 0; place < dictionary->length; place += 97) {
            FshDataset *dataset = NULL;
            FshError error = {0};
            uint64_t problems = 0;
            at[place] ^= 4;
            test_file_write(path, file, length);
            at[place] ^= 4;
            assert_int_equal(fsh_open(&dataset, test_path(folder, "set-%zu", i), &error), FSH_ERR_CORRUPT);
            assert_contains(error.message, names[i]);
            assert_ok(fsh_check(test_path(folder, "set-%zu", i), FSH_CHECK_RECORDS, 1, NULL, NULL, &problems,
                                &error),
                      &error);
            assert_true(problems > 0);
        }
        free(file);
    }
}

/* ---- damage ---- */

/* Unpacks a frame that is not the dataset's, in memory of exactly its length. */
static FshStatus unpack_frame(FshUnpacker *unpacker, const FshSplit *split, const void *frame, size_t bytes,
                              size_t unpacked_bytes, FshError *error)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);
    const void *data = NULL;
    size_t data_bytes = 0;
    assert_non_null(exact);
    memcpy(exact, frame, bytes);
    const FshField field = {.data = exact,
                            .bytes = bytes,
                            .unpacked_bytes = unpacked_bytes,
                            .codec = FSH_CODEC_JPEG,
                            .compression = FSH_COMPRESSION_ZSTD};
    FshStatus status = fsh_field_unpack(unpacker, split, &field, &data, &data_bytes, error);
    if (!status)
        assert_int_equal(data_bytes, unpacked_bytes);
    free(exact);
    return status;
}

typedef struct Opened {
    FshDataset *dataset;
    const FshSplit *split;
    FshUnpacker *unpacker;
    FshSample sample; /* the first one */
} Opened;

static void open_small(TestFolder *folder, Opened *opened)
{
    const CompressedPlan plan = {.train_count = 3, .level = 3, .dictionary = true};
    FshError error = {0};
    compressed_write(&plan, test_path(folder, "small"));
    assert_ok(fsh_open(&opened->dataset, test_path(folder, "small"), &error), &error);
    opened->split = fsh_split(opened->dataset, "train");
    assert_ok(fsh_unpacker_new(&opened->unpacker, &error), &error);
    assert_ok(fsh_sample_get(opened->split, 0, &opened->sample, &error), &error);
}

static void close_small(Opened *opened)
{
    fsh_unpacker_free(&opened->unpacker);
    fsh_close(&opened->dataset);
}

TEST_IN_FOLDER(test_every_changed_byte_of_a_compressed_record_is_found, folder)
{
    Opened opened;
    open_small(folder, &opened);
    IndexRow row = fsh_index_row_load(opened.split->files->files[0].rows);
    close_small(&opened);
    const char *path = test_path(folder, "small/train-00000-of-00001.fshard");
    for (uint64_t place = row.offset; place < row.offset + row.record_bytes; place++) {
        FshError error = {0};
        test_file_flip_byte(path, (int64_t)place);
        FshDataset *dataset = NULL;
        assert_ok(fsh_open(&dataset, test_path(folder, "small"), &error), &error);
        if (fsh_sample_verify(fsh_split(dataset, "train"), 0, &error) == FSH_OK)
            fail_msg("byte %llu of the record", (unsigned long long)(place - row.offset));
        assert_contains(error.message, "train-00000-of-00001.fshard record 0");
        fsh_close(&dataset);
        test_file_flip_byte(path, (int64_t)place);
    }
}

/* Without the CRC: zstd may take some of these, but never more or fewer bytes than the record says, and none
 * that lie outside (the sanitizers see to that). */
TEST_IN_FOLDER(test_a_changed_or_cut_frame_gives_exactly_its_length_or_nothing, folder)
{
    Opened opened;
    open_small(folder, &opened);
    const FshField *field = &opened.sample.fields[0];
    uint8_t *frame = malloc(field->bytes + 8);
    FshError error = {0};
    size_t refused = 0;
    assert_non_null(frame);
    for (size_t place = 0; place < field->bytes; place++)
        for (unsigned bit = 0; bit < 8; bit++) {
            memcpy(frame, field->data, field->bytes);
            frame[place] ^= (uint8_t)(1U << bit);
            FshStatus status = unpack_frame(opened.unpacker, opened.split, frame, field->bytes,
                                            field->unpacked_bytes, &error);
            assert_true(status == FSH_OK || status == FSH_ERR_CORRUPT);
            refused += status != FSH_OK;
        }
    assert_true(refused > 8 * 4); /* its magic at least */
    for (size_t length = 0; length < field->bytes; length++) {
        assert_int_equal(
            unpack_frame(opened.unpacker, opened.split, field->data, length, field->unpacked_bytes, &error),
            FSH_ERR_CORRUPT);
        assert_contains(error.message, "zstd frame");
    }
    memcpy(frame, field->data, field->bytes);
    memset(frame + field->bytes, 0, 8);
    assert_int_equal(
        unpack_frame(opened.unpacker, opened.split, frame, field->bytes + 8, field->unpacked_bytes, &error),
        FSH_ERR_CORRUPT);
    for (int difference = -1; difference <= 1; difference += 2)
        assert_int_equal(unpack_frame(opened.unpacker, opened.split, field->data, field->bytes,
                                      field->unpacked_bytes + (size_t)difference, &error),
                         FSH_ERR_CORRUPT);
    assert_ok(
        unpack_frame(opened.unpacker, opened.split, field->data, field->bytes, field->unpacked_bytes, &error),
        &error);
    free(frame);
    close_small(&opened);
}

/* Heads of frames with a made-up size of their content. */
TEST_IN_FOLDER(test_a_frame_that_claims_gigabytes_takes_none, folder)
{
    Opened opened;
    open_small(folder, &opened);
    FshError error = {0};
    static const uint64_t claims[] = {UINT64_C(1) << 32, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 30};
    /* The greatest number is zstd's own for not knowing, the next one its for an error. */
    static const char *const expected[] = {"says that it holds 4294967296", "holds 0 bytes", "is damaged",
                                           "says that it holds 1073741824"};
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        uint8_t frame[16] = {0x28, 0xB5, 0x2F, 0xFD, 0xE0}; /* one segment, eight bytes of size */
        store_le64(frame + 5, claims[i]);
        frame[13] = 1; /* a last block of no bytes */
        assert_int_equal(unpack_frame(opened.unpacker, opened.split, frame, sizeof frame, 100, &error),
                         FSH_ERR_CORRUPT);
        assert_contains(error.message, expected[i]);
    }
    /* A window of 2 GiB, no size, one block of 100 repeated bytes: as right as a frame can be. */
    uint8_t wide[] = {0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA8, 0x23, 0x03, 0x00, 'x'};
    assert_ok(unpack_frame(opened.unpacker, opened.split, wide, sizeof wide, 100, &error), &error);
    /* The same with a content that is larger than the record says. */
    assert_int_equal(unpack_frame(opened.unpacker, opened.split, wide, sizeof wide, 99, &error),
                     FSH_ERR_CORRUPT);
    wide[5] = 0xFF; /* and a window of 3.75 TiB, which zstd refuses itself */
    assert_int_equal(unpack_frame(opened.unpacker, opened.split, wide, sizeof wide, 100, &error),
                     FSH_ERR_CORRUPT);
    close_small(&opened);
}

TEST_IN_FOLDER(test_other_frames_than_one_of_zstd_are_refused, folder)
{
    Opened opened;
    open_small(folder, &opened);
    FshError error = {0};
    uint8_t two[256], skippable[256] = {0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0, 1, 2, 3, 4};
    size_t one = ZSTD_compress(two, sizeof two, "abcdefgh", 8, 3);
    assert_false(ZSTD_isError(one));
    assert_ok(unpack_frame(opened.unpacker, opened.split, two, one, 8, &error), &error);
    memcpy(skippable + 12, two, one);
    assert_int_equal(unpack_frame(opened.unpacker, opened.split, skippable, one + 12, 8, &error),
                     FSH_ERR_CORRUPT);
    memcpy(two + one, skippable, 12);
    assert_int_equal(unpack_frame(opened.unpacker, opened.split, two, one + 12, 8, &error), FSH_ERR_CORRUPT);
    static const uint8_t legacy[] = {0x27, 0xB5, 0x2F, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0}; /* zstd 0.7 */
    assert_int_equal(unpack_frame(opened.unpacker, opened.split, legacy, sizeof legacy, 8, &error),
                     FSH_ERR_CORRUPT);
    assert_contains(error.message, "no zstd frame");
    close_small(&opened);
}

TEST_IN_FOLDER(test_frames_made_without_the_dictionary_come_out_right, folder)
{
    Opened opened;
    open_small(folder, &opened);
    FshError error = {0};
    for (uint64_t i = 0; i < 20; i++) {
        Buffer drawn = {0};
        compressed_draw(i, 0, &drawn);
        uint8_t frame[8192];
        size_t bytes = ZSTD_compress(frame, sizeof frame, drawn.bytes, drawn.length, 9);
        assert_false(ZSTD_isError(bytes));
        const FshField field = {.data = frame,
                                .bytes = bytes,
                                .unpacked_bytes = drawn.length,
                                .compression = FSH_COMPRESSION_ZSTD};
        const void *data = NULL;
        size_t data_bytes = 0;
        assert_ok(fsh_field_unpack(opened.unpacker, opened.split, &field, &data, &data_bytes, &error),
                  &error);
        assert_int_equal(data_bytes, drawn.length);
        assert_memory_equal(data, drawn.bytes, drawn.length);
        buffer_free(&drawn);
    }
    close_small(&opened);
}

/* ---- threads ---- */

enum { THREADS = 4, THREAD_SAMPLES = 200 };

static void *read_all(void *context)
{
    const FshSplit *split = context;
    FshUnpacker *unpacker = NULL;
    size_t wrong = fsh_unpacker_new(&unpacker, NULL) != FSH_OK;
    for (uint64_t round = 0; round < 5 && !wrong; round++)
        for (uint64_t i = 0; i < split->sample_count; i++) {
            FshSample sample;
            const void *data = NULL;
            size_t bytes = 0;
            Buffer expected = {0};
            compressed_draw(i, 0, &expected);
            wrong += fsh_sample_get(split, i, &sample, NULL) != FSH_OK ||
                     fsh_field_unpack(unpacker, split, &sample.fields[0], &data, &bytes, NULL) != FSH_OK ||
                     bytes != expected.length || memcmp(data, expected.bytes, bytes) != 0;
            buffer_free(&expected);
        }
    fsh_unpacker_free(&unpacker);
    return wrong ? context : NULL;
}

TEST_IN_FOLDER(test_threads_share_the_dictionary, folder)
{
    const CompressedPlan plan = {
        .train_count = THREAD_SAMPLES, .shard_count = 3, .level = 3, .dictionary = true};
    FshDataset *dataset = NULL;
    FshError error = {0};
    pthread_t threads[THREADS];
    compressed_write(&plan, test_path(folder, "set"));
    assert_ok(fsh_open(&dataset, test_path(folder, "set"), &error), &error);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, (void *)fsh_split(dataset, "train")), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    fsh_close(&dataset);
}

int test_group_teardown(void **state)
{
    (void)state;
    compressed_forget();
    return 0;
}
