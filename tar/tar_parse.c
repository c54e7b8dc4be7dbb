#include "tar/tar_parse.h"

/* tar_parse.c - walks the members of a tar in memory from header to header. Contents are not touched, so that
 * opening a tar of any size costs a page for each member. Layouts: POSIX.1-2008, pax, "ustar Interchange
 * Format" and "pax Header"; GNU tar's manual, "Basic Tar Format". */
#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"

enum {
    BLOCK_BYTES = 512,
    AT_NAME = 0,
    NAME_BYTES = 100,
    AT_SIZE = 124,
    SIZE_BYTES = 12,
    AT_CHECKSUM = 148,
    CHECKSUM_BYTES = 8,
    AT_KIND = 156,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
    PREFIX_BYTES = 155,
    PATH_BYTES_MAX = 1 << 16,
};

/* Reads octal digits after blanks. GNU and star write larger numbers big endian after a first bit of 1. */
static bool read_number(const uint8_t *field, size_t bytes, uint64_t *number_ret)
{
    uint64_t number = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        if (field[0] & 0x7F)
            return false; /* negative, or above 2^88 */
        for (i = 1; i < bytes; i++) {
            if (number >> 56)
                return false;
            number = number << 8 | field[i];
        }
        *number_ret = number;
        return true;
    }
    while (i < bytes && field[i] == ' ') {
        i++;
    }
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++) {
        if (number >> 60)
            return false;
        number = number << 3 | (uint64_t)(field[i] - '0');
    }
    *number_ret = number;
    return i == bytes || field[i] == '\0' || field[i] == ' ';
}

/* Returns whether the checksum is right: the sum of all bytes, with blanks for its own. Some old tars have
 * summed signed bytes. */
static bool checksum_is_right(const uint8_t *header)
{
    uint64_t stored;
    uint32_t sum = 0;
    int32_t signed_sum = 0;
    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        sum += header[i];
        signed_sum += (int8_t)header[i];
    }
    for (size_t i = AT_CHECKSUM; i < AT_CHECKSUM + CHECKSUM_BYTES; i++) {
        sum -= header[i];
        signed_sum -= (int8_t)header[i];
    }
    sum += CHECKSUM_BYTES * ' ';
    signed_sum += CHECKSUM_BYTES * ' ';
    return read_number(header + AT_CHECKSUM, CHECKSUM_BYTES, &stored) &&
           (stored == sum || (signed_sum >= 0 && stored == (uint64_t)signed_sum));
}

bool fsh_tar_sniff(const uint8_t *bytes, uint64_t length)
{
    return length >= BLOCK_BYTES && bytes[AT_NAME] && checksum_is_right(bytes);
}

/* What extended headers say about the member after them. */
typedef struct Extension {
    bool has_path, has_size;
    uint64_t size;
} Extension;

static size_t text_bytes(const uint8_t *field, size_t bytes)
{
    const uint8_t *end = memchr(field, 0, bytes);
    return end ? (size_t)(end - field) : bytes;
}

static FshStatus set_path(TarCursor *cursor, const void *prefix, size_t prefix_bytes, const void *name,
                          size_t name_bytes, FshError *error)
{
    cursor->path.length = 0;
    FshStatus status = FSH_OK;
    if (prefix_bytes) {
        status = buffer_append(&cursor->path, prefix, prefix_bytes, error);
        if (!status)
            status = buffer_append(&cursor->path, "/", 1, error);
    }
    if (!status)
        status = buffer_append(&cursor->path, name, name_bytes, error);
    if (!status)
        status = buffer_append(&cursor->path, "", 1, error);
    return status;
}

static FshStatus set_long_path(TarCursor *cursor, Extension *extension, const uint8_t *name, size_t bytes,
                               FshError *error)
{
    if (bytes == 0 || bytes > PATH_BYTES_MAX || memchr(name, 0, bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": a name of %zu bytes, or with a zero byte", cursor->offset,
                             bytes);
    extension->has_path = true;
    return set_path(cursor, NULL, 0, name, bytes, error);
}

/* Splits off the record "LENGTH KEY=VALUE\n" at *at, and advances *at. Returns false if it is invalid. */
static bool next_record(const uint8_t **at, const uint8_t *end, const uint8_t **key, size_t *key_bytes,
                        const uint8_t **value, size_t *value_bytes)
{
    uint64_t length = 0;
    const uint8_t *begin = *at, *digit = *at;
    for (; digit < end && *digit >= '0' && *digit <= '9' && length < UINT32_MAX; digit++) {
        length = length * 10 + (uint64_t)(*digit - '0');
    }
    if (digit == begin || digit == end || *digit != ' ' || length > (uint64_t)(end - begin) ||
        length < (uint64_t)(digit - begin) + 3 || begin[length - 1] != '\n')
        return false;
    *key = digit + 1;
    const uint8_t *record_end = begin + length - 1;
    const uint8_t *equals = memchr(*key, '=', (size_t)(record_end - *key));
    if (!equals)
        return false;
    *key_bytes = (size_t)(equals - *key);
    *value = equals + 1;
    *value_bytes = (size_t)(record_end - *value);
    *at = begin + length;
    return true;
}

static bool read_decimal(const uint8_t *text, size_t bytes, uint64_t *number_ret)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number))
            return false;
    }
    *number_ret = number;
    return bytes > 0;
}

static bool key_is(const uint8_t *key, size_t bytes, const char *expected)
{
    return bytes == strlen(expected) && memcmp(key, expected, bytes) == 0;
}

static FshStatus refuse_sparse(const TarCursor *cursor, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "byte %" PRIu64
                         ": a sparse file, whose bytes are not all there; make the tar without --sparse",
                         cursor->offset);
}

/* Reads the records of a pax header. A global one may not set what only one member can have. */
static FshStatus read_pax(TarCursor *cursor, Extension *extension, const uint8_t *records, size_t bytes,
                          bool global, FshError *error)
{
    const uint8_t *at = records, *end = records + bytes;
    FshStatus status = FSH_OK;
    while (at < end && *at && !status) {
        const uint8_t *key, *value;
        size_t key_bytes, value_bytes;
        if (!next_record(&at, end, &key, &key_bytes, &value, &value_bytes))
            return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": pax header with a wrong record",
                                 cursor->offset);
        bool is_path = key_is(key, key_bytes, "path"), is_size = key_is(key, key_bytes, "size");
        if (key_bytes > 11 && memcmp(key, "GNU.sparse.", 11) == 0)
            return refuse_sparse(cursor, error);
        if (global && (is_path || is_size))
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "byte %" PRIu64 ": a global pax header gives all members one %s",
                                 cursor->offset, is_path ? "name" : "size");
        if (is_path)
            status = set_long_path(cursor, extension, value, value_bytes, error);
        if (is_size) {
            extension->has_size = true;
            if (!read_decimal(value, value_bytes, &extension->size))
                return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": pax header with a wrong size",
                                     cursor->offset);
        }
    }
    return status;
}

/* Checks that only zeros follow the end marker: readers stop there, and would lose the rest. */
static FshStatus check_end(const TarCursor *cursor, FshError *error)
{
    for (uint64_t at = cursor->offset; at < cursor->length; at += BLOCK_BYTES) {
        uint64_t left = cursor->length - at;
        if (!bytes_are_zero(cursor->bytes + at, left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES))
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "byte %" PRIu64 ": more data after the end marker at byte %" PRIu64
                                 " (two tars joined?), which readers of tars do not see",
                                 at, cursor->offset);
    }
    return FSH_OK;
}

/* Sets *bytes_ret to the size of what follows the header; 0 for kinds without content. */
static FshStatus read_size(const TarCursor *cursor, const uint8_t *header, const Extension *extension,
                           uint64_t *bytes_ret, FshError *error)
{
    uint64_t room = cursor->length - cursor->offset - BLOCK_BYTES;
    uint8_t kind = header[AT_KIND];
    *bytes_ret = 0;
    if (kind >= '1' && kind <= '6')
        return FSH_OK;
    if (!read_number(header + AT_SIZE, SIZE_BYTES, bytes_ret))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": header with a wrong size",
                             cursor->offset);
    if (extension->has_size && kind != 'x' && kind != 'g' && kind != 'L' && kind != 'K')
        *bytes_ret = extension->size;
    if (*bytes_ret > room || (BLOCK_BYTES - *bytes_ret % BLOCK_BYTES) % BLOCK_BYTES > room - *bytes_ret)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": a member of %" PRIu64
                             " bytes, but the file ends after %" PRIu64 ": cut short",
                             cursor->offset, *bytes_ret, room);
    return FSH_OK;
}

static FshStatus set_member(TarCursor *cursor, const uint8_t *header, const Extension *extension,
                            uint64_t bytes, TarMember *member, FshError *error)
{
    FshStatus status = FSH_OK;
    uint8_t kind = header[AT_KIND];
    if (kind == 'S')
        return refuse_sparse(cursor, error);
    if (!extension->has_path) {
        /* In GNU's old header times take the place of POSIX's prefix; the byte after "ustar" tells them
         * apart. */
        bool posix = memcmp(header + AT_MAGIC, "ustar", 6) == 0;
        size_t prefix_bytes = posix ? text_bytes(header + AT_PREFIX, PREFIX_BYTES) : 0;
        status = set_path(cursor, header + AT_PREFIX, prefix_bytes, header + AT_NAME,
                          text_bytes(header + AT_NAME, NAME_BYTES), error);
    }
    if (status)
        return status;
    const char *path = (const char *)cursor->path.bytes;
    size_t path_bytes = cursor->path.length - 1;
    bool regular = kind == '0' || kind == '\0' || kind == '7';
    *member = (TarMember){.path = path,
                          .path_bytes = path_bytes,
                          .regular = regular && path_bytes && path[path_bytes - 1] != '/',
                          .header_offset = cursor->offset,
                          .content = cursor->offset + BLOCK_BYTES,
                          .bytes = bytes};
    return FSH_OK;
}

FshStatus fsh_tar_next(TarCursor *cursor, TarMember *member, FshError *error)
{
    Extension extension = {0};
    bool extended = false;
    *member = (TarMember){0};
    for (;;) {
        uint64_t left = cursor->length - cursor->offset;
        if (left == 0 && !extended)
            return FSH_OK;
        if (left < BLOCK_BYTES)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "byte %" PRIu64 ": the file ends where a header should be: cut short",
                                 cursor->offset);
        const uint8_t *header = cursor->bytes + cursor->offset;
        if (!extended && header[0] == 0 && bytes_are_zero(header, BLOCK_BYTES)) {
            cursor->marked_end = true;
            FshStatus status = check_end(cursor, error);
            cursor->offset = cursor->length;
            return status;
        }
        if (!checksum_is_right(header))
            return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": header with a wrong checksum",
                                 cursor->offset);
        uint64_t bytes = 0;
        FshStatus status = read_size(cursor, header, &extension, &bytes, error);
        if (status)
            return status;
        const uint8_t *content = header + BLOCK_BYTES;
        uint8_t kind = header[AT_KIND];
        extended = kind == 'x' || kind == 'g' || kind == 'L' || kind == 'K';
        if (kind == 'x' || kind == 'g')
            status = read_pax(cursor, &extension, content, (size_t)bytes, kind == 'g', error);
        else if (kind == 'L')
            status = set_long_path(cursor, &extension, content, text_bytes(content, (size_t)bytes), error);
        else if (!extended)
            status = set_member(cursor, header, &extension, bytes, member, error);
        if (status)
            return status;
        cursor->offset += BLOCK_BYTES + bytes + (BLOCK_BYTES - bytes % BLOCK_BYTES) % BLOCK_BYTES;
        if (!extended)
            return FSH_OK;
        extended = kind != 'g';
    }
}

void fsh_tar_free(TarCursor *cursor)
{
    buffer_free(&cursor->path);
}
