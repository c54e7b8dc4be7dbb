/* What reading the files of others takes: braces, JSON, .npy headers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/brace.h"
#include "formats/json_scan.h"
#include "formats/media.h"
#include "formats/names.h"
#include "tests/support/support.h"

TEST(test_braces_are_those_of_braceexpand)
{
    /* What python3 -c 'import braceexpand; print(*braceexpand.braceexpand("…"))' says. */
    static const struct {
        const char *text, *paths;
    } rows[] = {
        {"a.tar", "a.tar"},
        {"x-{000..003}.tar", "x-000.tar x-001.tar x-002.tar x-003.tar"},
        {"x-{8..11}", "x-8 x-9 x-10 x-11"},
        {"x-{08..11}", "x-08 x-09 x-10 x-11"},
        {"{3..1}", "3 2 1"},
        {"{0..10..5}", "0 5 10"},
        {"{a,b}{1..2}", "a1 a2 b1 b2"},
        {"{a,b{1..2},c}x", "ax b1x b2x cx"},
        {"{a,}x", "ax x"},
        {"{train,val}-{0..1}.tar::y.tar", "train-0.tar train-1.tar val-0.tar val-1.tar y.tar"},
        {"no{brace", "no{brace"},
        {"one{x}", "one{x}"},
        {"{}", "{}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        FshError error = {0};
        char **paths = NULL, joined[512] = "";
        size_t count = 0;
        assert_ok(fsh_brace_expand(rows[i].text, &paths, &count, &error), &error);
        for (size_t j = 0; j < count; j++) {
            size_t length = strlen(joined);
            (void)snprintf(joined + length, sizeof joined - length, "%s%s", j ? " " : "", paths[j]);
        }
        assert_string_equal(joined, rows[i].paths);
        fsh_names_free(paths, count);
    }
    FshError error = {0};
    char **paths = NULL;
    size_t count = 0;
    assert_int_equal(fsh_brace_expand("{0..9999}{0..9999}", &paths, &count, &error), FSH_ERR_USAGE);
    assert_null(paths);
}

TEST(test_json_is_scanned)
{
    static const char text[] =
        " {\"a\" : \"x\\\"y\\u00e9\\ud83d\\ude00\\udcff\", \"b\":[1,{\"c\":\"}\"}], \"n\" : -12 ,\"t\":true}";
    JsonScan scan = fsh_json_scan(text, sizeof text - 1);
    JsonSlice name, value;
    char plain[64];
    size_t bytes = 0;
    int64_t number = 0;
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_true(fsh_json_slice_is(&name, "a") && value.escaped);
    assert_true(fsh_json_slice_unescape(&value, plain, &bytes));
    static const char expected[] = "x\"y\xC3\xA9\xF0\x9F\x98\x80\xFF";
    assert_int_equal(bytes, sizeof expected - 1);
    assert_memory_equal(plain, expected, bytes);
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_int_equal(value.kind, JSON_SCAN_OTHER);
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_true(fsh_json_slice_integer(&value, &number));
    assert_int_equal(number, -12);
    assert_true(fsh_json_scan_next(&scan, &name, &value));
    assert_true(fsh_json_slice_is(&name, "t"));
    assert_false(fsh_json_scan_next(&scan, &name, &value));
    assert_false(scan.broken);
    static const char *const wrong[] = {
        "",           "[1]",         "{\"a\"}",     "{\"a\":1",   "{\"a\":\"x}", "{\"a\":1,,}",
        "{\"a\":[1}", "{\"a\":\"\\", "{\"a\":1 2}", "{\"a\":1,}", "{a:1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scan = fsh_json_scan(wrong[i], strlen(wrong[i]));
        while (fsh_json_scan_next(&scan, &name, &value)) {
        }
        if (!scan.broken && i != 6) /* brackets are only counted */
            fail_msg("%s was taken for JSON", wrong[i]);
    }
}

TEST(test_npy_headers_are_read)
{
    uint8_t bytes[NPY_HEADER_BYTES + 24];
    NpyArray array;
    fsh_npy_store_header(bytes, 2, 4, 3);
    assert_true(fsh_npy_parse(bytes, sizeof bytes, &array));
    assert_int_equal(array.height, 2);
    assert_int_equal(array.width, 4);
    assert_int_equal(array.channels, 3);
    assert_int_equal(array.data_at, NPY_HEADER_BYTES);
    assert_false(fsh_npy_parse(bytes, sizeof bytes - 1, &array));
    for (size_t length = 0; length < NPY_HEADER_BYTES; length++)
        assert_false(fsh_npy_parse(bytes, length, &array));
    char *type = memmem(bytes, sizeof bytes, "|u1", 3);
    memcpy(type, "<f4", 3);
    assert_false(fsh_npy_parse(bytes, sizeof bytes, &array));
}
