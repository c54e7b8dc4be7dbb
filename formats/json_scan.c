/* A scan over the members of one object. It is lenient about nested values, which nobody asks for, and strict
 * about the members themselves. */

#include "formats/json_scan.h"

#include <string.h>

#include "common/file.h"
#include "common/text.h"

JsonScan fsh_json_scan(const char *text, size_t bytes)
{
    return (JsonScan){.next = text, .end = text + bytes};
}

static bool take(JsonScan *scan, char expected)
{
    scan->next = text_skip_blanks(scan->next, scan->end);
    if (scan->next == scan->end || *scan->next != expected)
        return false;
    scan->next++;
    return true;
}

/* Takes a text, from after its opening quote to after the closing one. Returns false if it does not end. */
static bool take_text(JsonScan *scan, JsonSlice *slice)
{
    *slice = (JsonSlice){.kind = JSON_SCAN_TEXT, .text = scan->next};
    for (; scan->next < scan->end; scan->next++) {
        unsigned char c = (unsigned char)*scan->next;
        if (c == '"') {
            slice->bytes = (size_t)(scan->next++ - slice->text);
            return true;
        }
        if (c < 0x20)
            return false;
        if (c == '\\') {
            slice->escaped = true;
            scan->next++; /* what is escaped may be a quote */
        }
    }
    scan->next = scan->end; /* a backslash at the end stepped over it */
    return false;
}

/* Takes an object or a list with all that is in it. Brackets are counted, not matched: there is no stack. */
static bool take_nested(JsonScan *scan)
{
    uint64_t depth = 0;
    JsonSlice text;
    while (scan->next < scan->end) {
        char c = *scan->next++;
        if (c == '"' && !take_text(scan, &text))
            return false;
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && --depth == 0)
            return true;
    }
    return false;
}

static bool take_value(JsonScan *scan, JsonSlice *value)
{
    scan->next = text_skip_blanks(scan->next, scan->end);
    if (scan->next == scan->end)
        return false;
    const char *begin = scan->next;
    if (*begin == '"') {
        scan->next++;
        return take_text(scan, value);
    }
    if (*begin == '{' || *begin == '[') {
        if (!take_nested(scan))
            return false;
        *value = (JsonSlice){.kind = *begin == '{' ? JSON_SCAN_OBJECT : JSON_SCAN_OTHER};
    } else { /* a number, true, false, null */
        while (scan->next < scan->end && !text_is_blank(*scan->next) && *scan->next != ',' &&
               *scan->next != '}' && *scan->next != ']' && *scan->next != '"') {
            scan->next++;
        }
        bool number = *begin == '-' || (*begin >= '0' && *begin <= '9');
        *value = (JsonSlice){.kind = number ? JSON_SCAN_NUMBER : JSON_SCAN_OTHER};
    }
    value->text = begin;
    value->bytes = (size_t)(scan->next - begin);
    return value->bytes > 0;
}

bool fsh_json_scan_next(JsonScan *scan, JsonSlice *name, JsonSlice *value)
{
    if (scan->broken)
        return false;
    if (!scan->begun && !take(scan, '{')) {
        scan->broken = true;
        return false;
    }
    if (take(scan, '}')) {
        scan->end = scan->next; /* whatever comes after: asked again, take finds nothing */
        scan->broken = false;
        scan->begun = true;
        return false;
    }
    bool separated = !scan->begun || take(scan, ',');
    scan->broken = !separated || !take(scan, '"') || !take_text(scan, name) || !take(scan, ':') ||
                   !take_value(scan, value);
    scan->begun = true;
    return !scan->broken;
}

bool fsh_json_slice_is(const JsonSlice *slice, const char *text)
{
    return slice->bytes == strlen(text) && memcmp(slice->text, text, slice->bytes) == 0;
}

bool fsh_json_slice_integer(const JsonSlice *slice, int64_t *value_ret)
{
    if (slice->kind != JSON_SCAN_NUMBER)
        return false;
    bool negative = slice->text[0] == '-';
    int64_t value = 0;
    for (size_t i = negative; i < slice->bytes; i++) {
        char c = slice->text[i];
        if (c < '0' || c > '9' || __builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, (int64_t)(c - '0'), &value))
            return false;
    }
    *value_ret = negative ? -value : value;
    return slice->bytes > (size_t)negative;
}

static bool hex4(const char *text, const char *end, unsigned *value_ret)
{
    unsigned value = 0;
    if (end - text < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        char c = text[i];
        if (c >= 'A' && c <= 'F')
            c = (char)(c - 'A' + 'a');
        const char *digit = c ? strchr(digits, c) : NULL;
        if (!digit)
            return false;
        value = value << 4 | (unsigned)(digit - digits);
    }
    *value_ret = value;
    return true;
}

/* Writes a code point in UTF-8 and returns its bytes, at most 4. */
static size_t put_utf8(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* Takes the hex digits of \u at *at, and the \u of its low half, and appends the character to out. Six bytes
 * of an escape become at most 3. */
static bool take_unicode(const char **at, const char *end, char *out, size_t *length)
{
    unsigned code, low;
    if (!hex4(*at, end, &code) || code == 0)
        return false;
    *at += 4;
    if (code >= 0xDC80 && code <= 0xDCFF) {
        out[(*length)++] = (char)(code - 0xDC00);
        return true;
    }
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u' || !hex4(*at + 2, end, &low) ||
            low < 0xDC00 || low > 0xDFFF)
            return false;
        *at += 6;
        code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return false;
    }
    *length += put_utf8(out + *length, code);
    return true;
}

bool fsh_json_slice_unescape(const JsonSlice *slice, char *out, size_t *bytes_ret)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *at = slice->text, *end = slice->text + slice->bytes;
    size_t length = 0;
    while (at < end) {
        if (*at != '\\') {
            out[length++] = *at++;
            continue;
        }
        if (end - at < 2)
            return false;
        char kind = at[1];
        at += 2;
        const char *name = kind ? strchr(names, kind) : NULL;
        if (name)
            out[length++] = values[name - names];
        else if (kind != 'u' || !take_unicode(&at, end, out, &length))
            return false;
    }
    *bytes_ret = length;
    return true;
}

FshStatus fsh_json_append_text(Buffer *out, const char *bytes, size_t length, FshError *error)
{
    static const char digits[] = "0123456789abcdef";
    FshStatus status = buffer_append(out, "\"", 1, error);
    for (size_t i = 0; i < length && !status;) {
        const unsigned char *at = (const unsigned char *)bytes + i;
        size_t run = text_utf8_length(bytes + i, length - i);
        char escape[6] = {'\\', 'u', '0', '0', digits[*at >> 4], digits[*at & 15]};
        if (*at == '"' || *at == '\\') {
            status = buffer_append(out, (char[2]){'\\', (char)*at}, 2, error);
        } else if (run == 0) { /* no UTF-8: as Python's os.fsdecode has it */
            escape[2] = 'd';
            escape[3] = 'c';
            status = buffer_append(out, escape, sizeof escape, error);
        } else if (*at < 0x20) {
            status = buffer_append(out, escape, sizeof escape, error);
        } else {
            status = buffer_append(out, at, run, error);
        }
        i += run ? run : 1;
    }
    return status ? status : buffer_append(out, "\"", 1, error);
}
