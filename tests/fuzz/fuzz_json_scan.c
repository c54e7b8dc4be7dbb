/* JSON without a tree. What jansson takes for an object must be scanned, and texts must be the same. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/file.h"
#include "formats/json_scan.h"
#include "tests/fuzz/fuzz.h"

/* Sets *text_ret (freed by the caller) and *bytes_ret to the slice's text. Returns false where an escape is
 * wrong. */
static bool unescape(const JsonSlice *slice, char **text_ret, size_t *bytes_ret)
{
    char *text = malloc(slice->bytes + 1); /* room for one more byte, as callers have it */
    fuzz_expect(text != NULL, "memory for a text");
    bool right = fsh_json_slice_unescape(slice, text, bytes_ret);
    fuzz_expect(!right || *bytes_ret <= slice->bytes, "a text without escapes is no longer than with");
    *text_ret = text;
    return right;
}

/* Expects that the text, written as JSON and read again, is the same. */
static void write_again(const char *text, size_t bytes)
{
    Buffer out = {0};
    FshError error = {0};
    JsonSlice name, value;
    char *again = NULL;
    size_t again_bytes = 0;
    fuzz_expect_ok(buffer_append(&out, "{\"k\":", 5, &error), &error, "buffer_append");
    fuzz_expect_ok(fsh_json_append_text(&out, text, bytes, &error), &error, "fsh_json_append_text");
    fuzz_expect_ok(buffer_append(&out, "}", 1, &error), &error, "buffer_append");
    JsonScan scan = fsh_json_scan((const char *)out.bytes, out.length);
    fuzz_expect(fsh_json_scan_next(&scan, &name, &value) && value.kind == JSON_SCAN_TEXT,
                "a text that was written is scanned");
    bool right = unescape(&value, &again, &again_bytes);
    fuzz_expect(right && again_bytes == bytes && (bytes == 0 || memcmp(again, text, bytes) == 0),
                "a text that was written is the same");
    free(again);
    buffer_free(&out);
}

static void look_at(const JsonSlice *slice, const json_t *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t number = 0;
    if (slice->kind == JSON_SCAN_TEXT) {
        bool right = unescape(slice, &text, &bytes);
        if (json_is_string(expected))
            fuzz_expect(right && bytes == json_string_length(expected) &&
                            memcmp(text, json_string_value(expected), bytes) == 0,
                        "a text is jansson's");
        if (right)
            write_again(text, bytes);
        free(text);
    } else if (fsh_json_slice_integer(slice, &number) && json_is_integer(expected)) {
        fuzz_expect(number == json_integer_value(expected), "a number is jansson's");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    json_t *object = json_loadb((const char *)bytes, length, JSON_REJECT_DUPLICATES, NULL);
    JsonScan scan = fsh_json_scan((const char *)bytes, length);
    JsonSlice name, value;
    while (fsh_json_scan_next(&scan, &name, &value)) {
        char *plain = NULL;
        size_t plain_bytes = 0;
        const json_t *expected = NULL;
        fuzz_touch(name.text, name.bytes);
        fuzz_touch(value.text, value.bytes);
        if (unescape(&name, &plain, &plain_bytes) && json_is_object(object)) {
            plain[plain_bytes] = '\0';
            expected = json_object_get(object, plain);
            fuzz_expect(expected != NULL, "a member is one of jansson's");
        }
        look_at(&value, expected);
        free(plain);
    }
    fuzz_expect(!json_is_object(object) || !scan.broken, "what jansson takes is scanned to its end");
    json_decref(object);
    return 0;
}
