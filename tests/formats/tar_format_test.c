/* Tars as a format: every form of a header, and hostile ones. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tar/tar_write.h"
#include "formats/sample_table.h"
#include "formats/webdataset.h"
#include "tests/formats/samples.h"
#include "tests/formats/test_tar.h"

/* ---- the format ---- */

TEST_IN_FOLDER(test_long_names_and_all_formats_of_gnu_tar, folder)
{
    static const char *const formats[] = {"v7", "oldgnu", "gnu", "ustar", "pax"};
    char name[200];
    memset(name, 'x', sizeof name);
    (void)snprintf(name + 120, sizeof name - 120, "/%s",
                   "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy.jpg");
    name[60] = '/';
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const char *source = test_path(folder, "source%zu", i);
        bool is_short = strcmp(formats[i], "v7") == 0;
        test_file_write_text(test_path(folder, "source%zu/%s", i, is_short ? "short.jpg" : name), JPEG);
        const char *tar = test_path(folder, "%zu.tar", i);
        char option[32];
        (void)snprintf(option, sizeof option, "--format=%s", formats[i]);
        const char *const arguments[] = {option, "-cf", tar, "-C", source, ".", NULL};
        RunResult result = run_program_arguments(NULL, "/usr/bin/tar", arguments);
        if (result.exit_status == 126 || result.exit_status == 127)
            skip();
        assert_int_equal(result.exit_status, 0);
        run_result_free(&result);
        FshDataset *dataset = test_dataset_open(tar);
        FshSample sample;
        test_sample_get(dataset, "train", 0, &sample);
        assert_int_equal(sample.key_bytes, strlen(is_short ? "short" : name) - (is_short ? 0 : 4));
        assert_memory_equal(sample.key, is_short ? "short" : name, sample.key_bytes);
        assert_memory_equal(sample.fields[0].data, JPEG, strlen(JPEG));
        fsh_close(&dataset);
    }
}

TEST_IN_FOLDER(test_a_tar_without_its_end_is_read_and_a_cut_one_is_not, folder)
{
    TestTar tar = {0};
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "001.jpg", JPEG);
    const char *path = test_tar_save(&tar, folder, "a.tar");
    test_file_truncate(path, -1024);
    FshDataset *dataset = test_dataset_open(path);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 2);
    fsh_close(&dataset);
    test_file_truncate(path, -1);
    assert_open_refused(path, FSH_ERR_CORRUPT, "cut short");
    test_file_truncate(path, 1024 + 100);
    assert_open_refused(path, FSH_ERR_CORRUPT, "byte 1024: the file ends");
}

TEST_IN_FOLDER(test_more_after_the_end_is_told, folder)
{
    FshError error = {0};
    TestTar tar = {0};
    test_tar_add_text(&tar, "000.jpg", JPEG);
    assert_ok(tar_end_append(&tar.bytes, &error), &error);
    test_tar_add_text(&tar, "001.jpg", JPEG);
    assert_open_refused(test_tar_save(&tar, folder, "joined.tar"), FSH_ERR_CORRUPT, "after the end marker");
}

/* Puts a field into a header and makes its checksum right. */
static void patch_header(uint8_t *header, size_t at, const void *field, size_t bytes)
{
    uint32_t sum = 0;
    memcpy(header + at, field, bytes);
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += header[i];
    (void)snprintf((char *)header + 148, 8, "%06o", sum);
}

/* Asserts with what a tar, which it frees, is refused. row: of the test's table, for messages. */
static void expect_refusal(TestTar *tar, TestFolder *folder, size_t row, FshStatus expected,
                           const char *words, FshError *error)
{
    FshDataset *dataset = NULL;
    const FshStatus status = fsh_open(&dataset, test_tar_save(tar, folder, "hostile.tar"), error);
    if (status != expected)
        fail_msg("row %zu gives %d: %s", row, status, error->message);
    assert_contains(error->message, words);
}

TEST_IN_FOLDER(test_hostile_headers_are_refused, folder)
{
    static const struct {
        size_t at, bytes;
        const char *field, *part;
        FshStatus status;
    } rows[] = {
        {124, 12, "77777777777", "cut short", FSH_ERR_CORRUPT},
        {124, 12, "\x80\0\0\0\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "cut short", FSH_ERR_CORRUPT},
        {124, 12, "\x80\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFE\x01", "cut short", FSH_ERR_CORRUPT},
        {124, 12, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "wrong size", FSH_ERR_CORRUPT},
        {124, 12, "0000x000001", "wrong size", FSH_ERR_CORRUPT},
        {156, 1, "S", "sparse", FSH_ERR_UNSUPPORTED},
        {156, 1, "x", "wrong record", FSH_ERR_CORRUPT},
        {156, 1, "g", "wrong record", FSH_ERR_CORRUPT},
        {156, 1, "L", "byte 1024: header with a wrong checksum", FSH_ERR_CORRUPT}, /* a name, and no member */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestTar tar = {0};
        FshError error = {0};
        test_tar_add_text(&tar, "000.jpg", JPEG);
        patch_header(tar.bytes.bytes, rows[i].at, rows[i].field, rows[i].bytes);
        expect_refusal(&tar, folder, i, rows[i].status, rows[i].part, &error);
        assert_contains(error.message, "byte ");
    }
}

TEST_IN_FOLDER(test_a_pax_header_is_checked, folder)
{
    static const struct {
        const char *records, *part;
        FshStatus status;
    } rows[] = {
        {"9999 path=x\n", "wrong record", FSH_ERR_CORRUPT},
        {"99999999999999999999 path=x\n", "wrong record", FSH_ERR_CORRUPT},
        {"3 x\n", "wrong record", FSH_ERR_CORRUPT},
        {"12 path=abc.", "wrong record", FSH_ERR_CORRUPT},
        {"8 path=\n", "a name of 0 bytes", FSH_ERR_CORRUPT},
        {"12 size=abc\n", "wrong size", FSH_ERR_CORRUPT},
        {"29 size=18446744073709551615\n", "cut short", FSH_ERR_CORRUPT},
        {"22 GNU.sparse.major=1\n", "sparse", FSH_ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TestTar tar = {0};
        FshError error = {0};
        test_tar_add_text(&tar, "header", rows[i].records);
        patch_header(tar.bytes.bytes, 156, "x", 1);
        test_tar_add_text(&tar, "000.jpg", JPEG);
        expect_refusal(&tar, folder, i, rows[i].status, rows[i].part, &error);
    }
}

/* Every byte of a small tar changed, and every length of it: an answer, and no crash. */
TEST(test_no_byte_makes_it_read_outside)
{
    TestTar tar = {0};
    FshError error = {0};
    test_tar_add_text(&tar, "000.jpg", JPEG);
    test_tar_add_text(&tar, "000.cls", "1");
    test_tar_add_text(&tar, "000.json", "{\"fshard\": 1, \"key\": \"0\\u0030\", \"label\": 1}");
    assert_ok(tar_end_append(&tar.bytes, &error), &error);
    for (size_t i = 0; i < tar.bytes.length; i++) {
        static const uint8_t values[] = {0, 1, 0x7F, 0x80, 0xFF, '\\', '"'};
        uint8_t before = tar.bytes.bytes[i];
        for (size_t j = 0; j < sizeof values; j++) {
            SampleTable table;
            tar.bytes.bytes[i] = values[j];
            if (fsh_webdataset_table(&table, tar.bytes.bytes, tar.bytes.length, NULL, 0, true, NULL, NULL) ==
                FSH_OK)
                fsh_table_free(&table);
        }
        tar.bytes.bytes[i] = before;
    }
    for (size_t length = 0; length <= tar.bytes.length; length++) {
        SampleTable table;
        uint8_t *copy = malloc(length + 1); /* of its own, so that a byte too far is seen */
        memcpy(copy, tar.bytes.bytes, length);
        uint8_t *exact = realloc(copy, length ? length : 1);
        if (fsh_webdataset_table(&table, exact, length, NULL, 0, true, NULL, NULL) == FSH_OK)
            fsh_table_free(&table);
        free(exact);
    }
    buffer_free(&tar.bytes);
    buffer_free(&tar.scratch);
}
