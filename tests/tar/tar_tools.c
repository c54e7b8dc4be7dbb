#include "tests/tar/tar_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 24 };

void tar_add(TarWriter *writer, const char *path, const void *bytes, size_t length, int64_t modified_ns)
{
    FshError error = {0};
    assert_ok(tar_writer_add(writer, path, bytes, length, modified_ns, NULL, &error), &error);
}

TarWriter *tar_begin(const char *path)
{
    FshError error = {0};
    TarWriter *writer = NULL;
    assert_ok(tar_writer_open(&writer, path, 0, &error), &error);
    return writer;
}

void tar_finish(TarWriter **writer)
{
    FshError error = {0};
    assert_ok(tar_writer_finish(writer, &error), &error);
}

/* Writes three entries with a text each, the last of 5,000 bytes: 512-byte blocks at known places. */
const char *tar_write_small(TestFolder *folder, const char *name)
{
    static const uint8_t zeros[5000] = {7};
    const char *path = test_path(folder, "%s", name);
    TarWriter *writer = tar_begin(path);
    tar_add(writer, "a", "first", 5, 1000000000);
    tar_add(writer, "b/b", "second", 6, 2000000000);
    tar_add(writer, "c", zeros, sizeof zeros, 3000000000);
    tar_finish(&writer);
    return path;
}

void tar_add_file(TarWriter *writer, const char *name, const char *path)
{
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    tar_add(writer, name, bytes, length, 0);
    free(bytes);
}

void run_shell(TestFolder *folder, const char *command)
{
    RunResult result = run_program(NULL, "/bin/sh", "-ec", command, folder->path, NULL);
    if (result.exit_status != 0)
        fail_msg("%s: %s", command, result.err);
    run_result_free(&result);
}

/* Makes the checksum of the header block right again. */
void tar_sign_header(uint8_t *block)
{
    uint32_t sum = 0;
    memset(block + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += block[i];
    (void)snprintf((char *)block + 148, 8, "%06o", sum);
}

/* ---- what the reader says, as text: "PATH (BYTES)" or "PATH: REASON" for each entry ---- */

char *tar_listing(const char *path, bool with_content)
{
    FshError error = {0};
    TarReader *reader = NULL;
    TarEntry entry = {0};
    Buffer content = {0};
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    assert_ok(tar_reader_open(&reader, path, &error), &error);
    FshStatus status = FSH_OK;
    while (!(status = tar_reader_next(reader, &entry, &error)) && entry.path) {
        const char *name = strcmp(entry.path, path) == 0 ? "(tar)" : entry.path;
        if (entry.reason) {
            (void)fprintf(stream, "%s: %s\n", name, entry.reason);
            continue;
        }
        (void)fprintf(stream, "%s (%" PRIu64 ")\n", name, entry.bytes);
        if (!with_content)
            continue;
        if (tar_reader_content(reader, &content, MOST_BYTES, &error)) {
            (void)fprintf(stream, "  %s\n", error.message);
            assert_int_equal(content.length, 0);
        } else {
            assert_int_equal(content.length, entry.bytes);
        }
    }
    assert_ok(status, &error);
    (void)fprintf(stream, "%" PRIu64 " hidden\n", tar_reader_hidden_count(reader));
    assert_ok(tar_reader_next(reader, &entry, &error), &error); /* the end stays the end */
    assert_null(entry.path);
    buffer_free(&content);
    tar_reader_close(&reader);
    assert_null(reader);
    assert_int_equal(fclose(stream), 0);
    return text;
}

void assert_tar_listing(const char *path, const char *expected)
{
    for (int with_content = 0; with_content < 2; with_content++) {
        char *listing = tar_listing(path, with_content);
        assert_string_equal(listing, expected);
        free(listing);
    }
}

/* Opens at the entry of that path and reads it. */
FshStatus tar_read_one(const char *path, const char *name, Buffer *content, uint64_t most, TarEntry *entry,
                       FshError *error)
{
    TarReader *reader = NULL;
    assert_ok(tar_reader_open(&reader, path, error), error);
    do
        assert_ok(tar_reader_next(reader, entry, error), error);
    while (entry->path && strcmp(entry->path, name) != 0);
    if (!entry->path)
        fail_msg("%s: no entry %s", path, name);
    FshStatus status = tar_reader_content(reader, content, most, error);
    tar_reader_close(&reader);
    entry->path = NULL;
    return status;
}
