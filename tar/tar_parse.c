#include "tar/tar_parse.h"

/* Layouts: POSIX.1-2008, pax, "ustar Interchange Format" and "pax Header"; GNU tar's manual, "Basic Tar
 * Format". */
#include <inttypes.h>
#include <string.h>

#include "common/bytes.h"
#include "tar/tar_number.h"

enum {
    BLOCK_BYTES = 512,
    AT_NAME = 0,
    NAME_BYTES = 100,
    AT_SIZE = 124,
    SIZE_BYTES = 12,
    AT_TIME = 136,
    TIME_BYTES = 12,
    AT_CHECKSUM = 148,
    CHECKSUM_BYTES = 8,
    AT_KIND = 156,
    AT_LINK = 157,
    AT_MAGIC = 257,
    AT_PREFIX = 345,
    PREFIX_BYTES = 155,
    PATH_BYTES_MAX = 1 << 16,
    EXTENSION_BYTES_MAX = 1 << 20, /* of a stream, which must hold it in memory */
};

static uint64_t padding_of(uint64_t bytes)
{
    return (BLOCK_BYTES - bytes % BLOCK_BYTES) % BLOCK_BYTES;
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
    return tar_number_field(header + AT_CHECKSUM, CHECKSUM_BYTES, &stored) &&
           (stored == sum || (signed_sum >= 0 && stored == (uint64_t)signed_sum));
}

bool fsh_tar_sniff(const uint8_t *bytes, uint64_t length)
{
    return length >= BLOCK_BYTES && bytes[AT_NAME] && checksum_is_right(bytes);
}

/* What extended headers say about the member after them. */
typedef struct Extension {
    bool has_path, has_sparse_path, has_link, has_size, has_time;
    uint64_t size;
    int64_t modified_ns;
} Extension;

/* Returns the status, with the place before the message if it tells of damage. */
static FshStatus at_byte(FshStatus status, uint64_t offset, FshError *error)
{
    if (status == FSH_ERR_CORRUPT)
        (void)fsh_error_prepend(error, "byte %" PRIu64, offset);
    return status;
}

static size_t text_bytes(const void *field, size_t bytes)
{
    const char *end = memchr(field, 0, bytes);
    return end ? (size_t)(end - (const char *)field) : bytes;
}

static FshStatus set_text(Buffer *text, const void *prefix, size_t prefix_bytes, const void *name,
                          size_t name_bytes, FshError *error)
{
    text->length = 0;
    FshStatus status = FSH_OK;
    if (prefix_bytes) {
        status = buffer_append(text, prefix, prefix_bytes, error);
        if (!status)
            status = buffer_append(text, "/", 1, error);
    }
    if (!status)
        status = buffer_append(text, name, name_bytes, error);
    if (!status)
        status = buffer_append(text, "", 1, error);
    return status;
}

static FshStatus set_long_path(TarCursor *cursor, Extension *extension, const void *name, size_t bytes,
                               FshError *error)
{
    const size_t whole = text_bytes(name, bytes);
    if (!cursor->as_stream && (bytes == 0 || bytes > PATH_BYTES_MAX || whole < bytes))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": a name of %zu bytes, or with a zero byte", cursor->offset,
                             bytes);
    if (whole == 0) /* the header's own name counts */
        return FSH_OK;
    extension->has_path = true;
    return set_text(&cursor->path, NULL, 0, name, whole, error);
}

static FshStatus set_long_link(TarCursor *cursor, Extension *extension, const void *target, size_t bytes,
                               FshError *error)
{
    extension->has_link = true;
    return set_text(&cursor->link, NULL, 0, target, text_bytes(target, bytes), error);
}

/* ---- pax headers ---- */

typedef struct Record {
    const char *key, *value;
    size_t key_bytes, value_bytes;
} Record;

/* Splits off the record "LENGTH KEY=VALUE\n" at *at, and advances *at. Returns false if it is invalid. */
static bool next_record(const char **at, const char *end, Record *record)
{
    uint64_t length = 0;
    const char *begin = *at, *digit = *at;
    for (; digit < end && *digit >= '0' && *digit <= '9' && length < UINT32_MAX; digit++) {
        length = length * 10 + (uint64_t)(*digit - '0');
    }
    if (digit == begin || digit == end || *digit != ' ' || length > (uint64_t)(end - begin) ||
        length < (uint64_t)(digit - begin) + 3 || begin[length - 1] != '\n')
        return false;
    record->key = digit + 1;
    const char *record_end = begin + length - 1;
    const char *equals = memchr(record->key, '=', (size_t)(record_end - record->key));
    if (!equals)
        return false;
    record->key_bytes = (size_t)(equals - record->key);
    record->value = equals + 1;
    record->value_bytes = (size_t)(record_end - record->value);
    *at = begin + length;
    return true;
}

static bool key_is(const Record *record, const char *expected)
{
    return record->key_bytes == strlen(expected) && memcmp(record->key, expected, record->key_bytes) == 0;
}

static FshStatus refuse_sparse(const TarCursor *cursor, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "byte %" PRIu64
                         ": a sparse file, whose bytes are not all there; make the tar without --sparse",
                         cursor->offset);
}

/* Takes what a record says about the next member. */
static FshStatus take_record(TarCursor *cursor, Extension *extension, const Record *record, FshError *error)
{
    const bool is_sparse_path = key_is(record, "GNU.sparse.name");
    if (!cursor->as_stream && record->key_bytes > 11 && memcmp(record->key, "GNU.sparse.", 11) == 0)
        return refuse_sparse(cursor, error);
    if (is_sparse_path || key_is(record, "path")) {
        if (extension->has_sparse_path && !is_sparse_path) /* the one of a folder that only GNU tar makes */
            return FSH_OK;
        extension->has_sparse_path = is_sparse_path;
        return set_long_path(cursor, extension, record->value, record->value_bytes, error);
    }
    if (key_is(record, "linkpath"))
        return set_long_link(cursor, extension, record->value, record->value_bytes, error);
    if (key_is(record, "size")) {
        extension->has_size = true;
        if (!tar_number_text(record->value, record->value_bytes, &extension->size))
            return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": pax header with a wrong size",
                                 cursor->offset);
    }
    if (key_is(record, "mtime")) {
        extension->has_time = true;
        extension->modified_ns = tar_number_text_time(record->value, record->value_bytes);
    }
    return at_byte(tar_sparse_record(&cursor->sparse, record->key, record->key_bytes, record->value,
                                     record->value_bytes, error),
                   cursor->offset, error);
}

/* Reads the records of a pax header. A global one may not set what only one member can have. */
static FshStatus read_pax(TarCursor *cursor, Extension *extension, const char *records, size_t bytes,
                          bool global, FshError *error)
{
    const char *at = records, *end = records + bytes;
    Record record;
    FshStatus status = FSH_OK;
    if (global && cursor->as_stream)
        return FSH_OK;
    while (at < end && *at && !status) {
        if (!next_record(&at, end, &record))
            return cursor->as_stream
                       ? FSH_OK
                       : fsh_error_set(error, FSH_ERR_CORRUPT,
                                       "byte %" PRIu64 ": pax header with a wrong record", cursor->offset);
        if (global && (key_is(&record, "path") || key_is(&record, "size")))
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                 "byte %" PRIu64 ": a global pax header gives all members one %s",
                                 cursor->offset, key_is(&record, "path") ? "name" : "size");
        status = take_record(cursor, extension, &record, error);
    }
    return status;
}

/* ---- headers ---- */

/* Returns whether a header of this kind tells of the member after it. */
static bool extends(uint8_t kind)
{
    return kind == 'x' || kind == 'X' || kind == 'g' || kind == 'L' || kind == 'K';
}

/* Sets *bytes_ret to the bytes at offset, and *got_ret to how many of the wanted ones there are. */
static FshStatus look(TarCursor *cursor, uint64_t offset, size_t wanted, const uint8_t **bytes_ret,
                      size_t *got_ret, FshError *error)
{
    FshStatus status = tar_source_at(cursor->source, offset, wanted, bytes_ret, got_ret, error);
    if (*got_ret > wanted)
        *got_ret = wanted;
    return at_byte(status, tar_source_position(cursor->source), error);
}

/* Checks that only zeros follow the end marker: readers stop there, and would lose the rest. */
static FshStatus check_end(TarCursor *cursor, FshError *error)
{
    const uint8_t *block = NULL;
    size_t got = 1;
    FshStatus status = FSH_OK;
    for (uint64_t at = cursor->offset; !status && got; at += got) {
        status = look(cursor, at, BLOCK_BYTES, &block, &got, error);
        if (!bytes_are_zero(block, got))
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "byte %" PRIu64 ": more data after the end marker at byte %" PRIu64
                                 " (two tars joined?), which readers of tars do not see",
                                 at, cursor->offset);
    }
    return status;
}

/* Ends the walk where no byte is left: after a member, or, where there is none, after an end marker. */
static FshStatus end_walk(const TarCursor *cursor, FshError *error)
{
    const uint64_t length = cursor->source->length;
    if (!cursor->as_stream || (cursor->offset && cursor->offset <= length))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": %s",
                         cursor->offset < length ? cursor->offset : length,
                         cursor->offset > length ? "the tar ends within its last file: " TAR_CUT_SHORT
                                                 : "the tar has no bytes: " TAR_CUT_SHORT);
}

/* Copies the next header, and in a stream passes over end markers before it; *end_ret: there is none. */
static FshStatus next_header(TarCursor *cursor, bool extended, uint8_t *header, bool *end_ret,
                             FshError *error)
{
    const uint8_t *block = NULL;
    size_t got = 0;
    for (;;) {
        FshStatus status = look(cursor, cursor->offset, BLOCK_BYTES, &block, &got, error);
        *end_ret = got == 0 && !extended;
        if (status || *end_ret)
            return status ? status : end_walk(cursor, error);
        if (got < BLOCK_BYTES)
            return fsh_error_set(error, FSH_ERR_CORRUPT,
                                 "byte %" PRIu64 ": the file ends where a header should be: " TAR_CUT_SHORT,
                                 cursor->offset);
        if (block[0] || (extended && !cursor->as_stream) || !bytes_are_zero(block, BLOCK_BYTES))
            break;
        cursor->marked_end = true;
        if (!cursor->as_stream) {
            *end_ret = true;
            status = check_end(cursor, error);
            cursor->offset = cursor->source->length;
            return status;
        }
        cursor->offset += BLOCK_BYTES;
    }
    memcpy(header, block, BLOCK_BYTES);
    if (!checksum_is_right(header))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64
                             ": header with a wrong checksum: the tar is damaged there; copy or "
                             "download it again",
                             cursor->offset);
    return FSH_OK;
}

/* Returns whether content follows the header of a link: POSIX lets a hard link have some, and older tars give
 * it a size without. */
static bool link_has_content(TarCursor *cursor)
{
    const uint8_t *block = NULL;
    size_t got = 0;
    return !look(cursor, cursor->offset + BLOCK_BYTES, BLOCK_BYTES, &block, &got, NULL) &&
           got == BLOCK_BYTES && !checksum_is_right(block) && !bytes_are_zero(block, BLOCK_BYTES);
}

/* Sets *bytes_ret to the size of what follows the header; 0 for kinds without content. */
static FshStatus read_size(TarCursor *cursor, const uint8_t *header, const Extension *extension,
                           uint64_t *bytes_ret, FshError *error)
{
    const uint64_t room = cursor->source->length - cursor->offset - BLOCK_BYTES;
    const uint8_t kind = header[AT_KIND];
    *bytes_ret = 0;
    if (kind >= '2' && kind <= '6')
        return FSH_OK;
    if (!tar_number_field(header + AT_SIZE, SIZE_BYTES, bytes_ret))
        return fsh_error_set(error, FSH_ERR_CORRUPT, "byte %" PRIu64 ": header with a wrong size",
                             cursor->offset);
    if (extension->has_size && !extends(kind))
        *bytes_ret = extension->size;
    if (kind == '1' && *bytes_ret && !link_has_content(cursor))
        *bytes_ret = 0;
    if (cursor->as_stream && *bytes_ret > (extends(kind) ? (uint64_t)EXTENSION_BYTES_MAX : INT64_MAX))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": a header that claims %" PRIu64 " bytes", cursor->offset,
                             *bytes_ret);
    if (!cursor->as_stream && (*bytes_ret > room || padding_of(*bytes_ret) > room - *bytes_ret))
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": a member of %" PRIu64
                             " bytes, but the file ends after %" PRIu64 ": " TAR_CUT_SHORT,
                             cursor->offset, *bytes_ret, room);
    return FSH_OK;
}

/* Takes a header that tells of the next member, with its `bytes` bytes. */
static FshStatus take_extension(TarCursor *cursor, uint8_t kind, Extension *extension, size_t bytes,
                                FshError *error)
{
    const uint8_t *content = NULL;
    size_t got = 0;
    FshStatus status = look(cursor, cursor->offset + BLOCK_BYTES, bytes, &content, &got, error);
    if (!status && got < bytes)
        return fsh_error_set(error, FSH_ERR_CORRUPT,
                             "byte %" PRIu64 ": the file ends within a header: " TAR_CUT_SHORT,
                             cursor->offset);
    if (status)
        return status;
    if (kind == 'L')
        return set_long_path(cursor, extension, content, text_bytes(content, bytes), error);
    if (kind == 'K')
        return set_long_link(cursor, extension, content, bytes, error);
    return read_pax(cursor, extension, (const char *)content, bytes, kind == 'g', error);
}

/* Reads the map of a sparse member, and lets its content begin after the map. */
static FshStatus take_map(TarCursor *cursor, const uint8_t *header, TarMember *member, FshError *error)
{
    uint64_t taken = 0;
    FshStatus status = FSH_OK;
    if (header[AT_KIND] == 'S') { /* the map's blocks are not counted in its size */
        status = tar_sparse_header(&cursor->sparse, header, cursor->source, member->content, &taken, error);
        cursor->offset += taken;
    } else if (cursor->sparse.map_in_content) {
        status = tar_sparse_content(&cursor->sparse, cursor->source, member->content, member->bytes, &taken,
                                    error);
        member->bytes -= taken;
    }
    member->content += taken;
    return at_byte(status, member->header_offset, error);
}

static FshStatus set_member(TarCursor *cursor, const uint8_t *header, const Extension *extension,
                            uint64_t bytes, TarMember *member, FshError *error)
{
    FshStatus status = FSH_OK;
    const uint8_t kind = header[AT_KIND];
    if (kind == 'S' && !cursor->as_stream)
        return refuse_sparse(cursor, error);
    if (!extension->has_path) {
        /* In GNU's old header times take the place of POSIX's prefix; the byte after "ustar" tells them
         * apart. */
        bool posix = memcmp(header + AT_MAGIC, "ustar", 5) == 0 && header[AT_MAGIC + 5] != ' ';
        size_t prefix_bytes = posix ? text_bytes(header + AT_PREFIX, PREFIX_BYTES) : 0;
        status = set_text(&cursor->path, header + AT_PREFIX, prefix_bytes, header + AT_NAME,
                          text_bytes(header + AT_NAME, NAME_BYTES), error);
    }
    if (!status && !extension->has_link)
        status = set_text(&cursor->link, NULL, 0, header + AT_LINK, text_bytes(header + AT_LINK, NAME_BYTES),
                          error);
    if (status)
        return status;
    const char *path = (const char *)cursor->path.bytes;
    size_t path_bytes = cursor->path.length - 1;
    bool regular = kind == '0' || kind == '\0' || kind == '7';
    *member =
        (TarMember){.path = path,
                    .path_bytes = path_bytes,
                    .link = (const char *)cursor->link.bytes,
                    .kind = kind,
                    .regular = regular && path_bytes && path[path_bytes - 1] != '/',
                    .header_offset = cursor->offset,
                    .content = cursor->offset + BLOCK_BYTES,
                    .bytes = bytes,
                    .modified_ns = extension->has_time ? extension->modified_ns
                                                       : tar_number_field_time(header + AT_TIME, TIME_BYTES)};
    return cursor->as_stream ? take_map(cursor, header, member, error) : FSH_OK;
}

FshStatus fsh_tar_next(TarCursor *cursor, TarMember *member, FshError *error)
{
    Extension extension = {0};
    uint8_t header[BLOCK_BYTES];
    bool extended = false, ended = false;
    *member = (TarMember){0};
    tar_sparse_reset(&cursor->sparse);
    for (;;) {
        uint64_t bytes = 0;
        FshStatus status = next_header(cursor, extended, header, &ended, error);
        if (status || ended)
            return status;
        status = read_size(cursor, header, &extension, &bytes, error);
        if (status)
            return status;
        const uint8_t kind = header[AT_KIND];
        if (extends(kind))
            status = take_extension(cursor, kind, &extension, (size_t)bytes, error);
        else
            status = set_member(cursor, header, &extension, bytes, member, error);
        if (status)
            return status;
        cursor->offset += BLOCK_BYTES + bytes + padding_of(bytes);
        cursor->marked_end = false;
        if (!extends(kind))
            return FSH_OK;
        extended = kind != 'g';
    }
}

void fsh_tar_free(TarCursor *cursor)
{
    buffer_free(&cursor->path);
    buffer_free(&cursor->link);
    buffer_free(&cursor->sparse.parts);
}
