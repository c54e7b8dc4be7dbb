#include "common/text.h"

bool text_has_suffix(const char *text, const char *suffix)
{
    const size_t length = strlen(text), suffix_bytes = strlen(suffix);
    return length > suffix_bytes && memcmp(text + length - suffix_bytes, suffix, suffix_bytes) == 0;
}

/* Returns the bytes of the UTF-8 sequence at `bytes` and sets *code_ret to its code point; 1 and the byte
 * itself if it is invalid. */
static size_t decode(const unsigned char *bytes, size_t length, uint32_t *code_ret)
{
    const unsigned char lead = bytes[0];
    const size_t count = lead < 0x80   ? 1
                         : lead < 0xC2 ? 0
                         : lead < 0xE0 ? 2
                         : lead < 0xF0 ? 3
                         : lead < 0xF5 ? 4
                                       : 0;
    uint32_t code = count > 1 ? lead & (0x7FU >> count) : lead;
    *code_ret = lead;
    if (count < 2 || count > length)
        return 1;
    for (size_t i = 1; i < count; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 1;
        code = code << 6 | (bytes[i] & 0x3F);
    }
    *code_ret = code;
    return count;
}

size_t text_character(const char *text, size_t length, bool *control_ret)
{
    uint32_t code = 0;
    const size_t bytes = decode((const unsigned char *)text, length, &code);
    *control_ret = code < 0x20 || (code >= 0x7F && code <= 0x9F) /* C0, DEL, C1; also single bytes of C1 */
                   || code == 0x061C || code == 0x200E || code == 0x200F /* marks of direction, */
                   || (code >= 0x2028 && code <= 0x202E)  /* separators, embeddings, overrides, */
                   || (code >= 0x2066 && code <= 0x2069); /* and isolates */
    return bytes;
}

size_t text_utf8_length(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    const unsigned char lead = bytes[0];
    const size_t count = lead < 0x80                    ? 1
                         : lead >= 0xC2 && lead <= 0xDF ? 2
                         : (lead & 0xF0) == 0xE0        ? 3
                         : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                        : 0;
    unsigned char least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (count > length)
        return 0;
    for (size_t i = 1; i < count; i++, least = 0x80, most = 0xBF)
        if (bytes[i] < least || bytes[i] > most)
            return 0;
    return count;
}

bool text_is_utf8(const char *text)
{
    const char *end = text + strlen(text);
    size_t bytes = 0;
    for (; text < end; text += bytes)
        if (!(bytes = text_utf8_length(text, (size_t)(end - text))))
            return false;
    return true;
}
