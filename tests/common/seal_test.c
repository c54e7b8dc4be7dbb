#include "common/seal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static json_t *make_mark(void)
{
    return json_pack("{s:I, s:s, s:[I, I], s:s}", "bytes", (json_int_t)1234, "hash",
                     "0123456789abcdef0123456789abcdef", "counts", (json_int_t)5, (json_int_t)0, "name",
                     "a\"b\\é");
}

TEST_IN_FOLDER(test_what_was_written_is_read, folder)
{
    const char *path = test_path(folder, "mark.json");
    FshError error = {0};
    json_t *mark = make_mark(), *read = NULL;
    assert_ok(seal_write(path, mark, JSON_COMPACT, &error), &error);
    assert_ok(seal_read(path, 1 << 20, true, &read, &error), &error);
    assert_int_equal(strlen(json_string_value(json_object_get(read, "checksum"))), 32);
    assert_int_equal(json_object_del(read, "checksum"), 0);
    json_t *before = make_mark();
    assert_true(json_equal(before, read));
    json_decref(before);
    json_decref(read);
    assert_int_equal(seal_read(path, 20, true, &read, &error), FSH_ERR_MISMATCH);
    assert_int_equal(seal_read(test_path(folder, "none"), 20, true, &read, &error), FSH_ERR_NOT_FOUND);
    assert_null(read);
    json_decref(mark);
}

TEST_IN_FOLDER(test_no_changed_byte_passes, folder)
{
    const char *path = test_path(folder, "mark.json");
    FshError error = {0};
    json_t *mark = make_mark(), *read = NULL;
    size_t bytes = 0;
    assert_ok(seal_write(path, mark, JSON_COMPACT, &error), &error);
    json_decref(mark);
    char *text = test_file_read(path, &bytes);
    for (size_t at = 0; at < bytes; at++) {
        const char was = text[at];
        for (unsigned bit = 0; bit < 8; bit++) {
            text[at] = (char)(was ^ 1 << bit);
            test_file_write(path, text, bytes);
            if (seal_read(path, 1 << 20, true, &read, &error) != FSH_ERR_CORRUPT)
                fail_msg("bit %u of byte %zu: %.*s", bit, at, (int)bytes, text);
            assert_contains(error.message, "mark.json: ");
            assert_null(read);
        }
        text[at] = was;
    }
    free(text);
}

TEST_IN_FOLDER(test_older_marks_are_read_where_they_may_be, folder)
{
    const char *path = test_path(folder, "mark.json");
    FshError error = {0};
    json_t *read = NULL;
    test_file_write_text(path, "{\"size\": 160}");
    assert_ok(seal_read(path, 1 << 20, false, &read, &error), &error);
    json_decref(read);
    assert_int_equal(seal_read(path, 1 << 20, true, &read, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "\"checksum\" is missing");
    test_file_write_text(path, "{\"size\": 160, \"checksum\": 7}");
    assert_int_equal(seal_read(path, 1 << 20, false, &read, &error), FSH_ERR_CORRUPT);
    test_file_write_text(path, "[160]");
    assert_int_equal(seal_read(path, 1 << 20, false, &read, &error), FSH_ERR_CORRUPT);
}
