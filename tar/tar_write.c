#include "tar/tar_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"

enum {
    BLOCK_BYTES = 512,
    END_BYTES = 2 * BLOCK_BYTES,
    NAME_BYTES = 100,
    PREFIX_BYTES = 155,
    OCTAL_DIGITS = 11 /* of a size or time */
};
static const uint64_t OCTAL_END = UINT64_C(1) << (3 * OCTAL_DIGITS);

/* The header block of POSIX.1-1988: text, with numbers in octal digits and a final NUL. */
typedef struct UstarHeader {
    char name[NAME_BYTES];
    char mode[8], owner[8], group[8];
    char size[OCTAL_DIGITS + 1], modified[OCTAL_DIGITS + 1];
    char checksum[8];
    char kind;
    char link[100];
    char magic[6], version[2];
    char owner_name[32], group_name[32];
    char device_major[8], device_minor[8];
    char prefix[PREFIX_BYTES];
    char padding[12];
} UstarHeader;

_Static_assert(sizeof(UstarHeader) == BLOCK_BYTES, "a header is a block");

struct TarWriter {
    char *path;
    int descriptor;     /* locked */
    uint64_t offset;    /* the end of the last whole entry */
    Buffer headers;     /* of the current entry: pax header, its records, ustar header */
    Buffer records;     /* pax: "LENGTH KEY=VALUE\n" each */
    bool folder_synced; /* synced, or the file existed before */
};

/* ---- headers ---- */

/* Writes a number in octal digits. A number too large for the field becomes 0: a pax record has it. */
static void put_octal(char *field, size_t digits, uint64_t value)
{
    if (value >= UINT64_C(1) << (3 * digits))
        value = 0;
    for (size_t i = digits; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

/* The text fields of a header. */
typedef struct NameParts {
    const char *prefix, *name;
    size_t prefix_bytes, name_bytes;
    bool whole; /* the two hold the path; else name has as much of its beginning as fits */
} NameParts;

/* Splits a path into prefix and name. A long one fits if one of its slashes leaves both short enough. */
static NameParts split_path(const char *path)
{
    size_t length = strlen(path);
    if (length <= NAME_BYTES)
        return (NameParts){.name = path, .name_bytes = length, .whole = true};
    const char *slash =
        length - 1 <= PREFIX_BYTES + NAME_BYTES ? strchr(path + length - NAME_BYTES - 1, '/') : NULL;
    size_t prefix_bytes = slash ? (size_t)(slash - path) : 0;
    if (!slash || prefix_bytes == 0 || prefix_bytes > PREFIX_BYTES)
        return (NameParts){.name = path, .name_bytes = NAME_BYTES};
    return (NameParts){.prefix = path,
                       .prefix_bytes = prefix_bytes,
                       .name = slash + 1,
                       .name_bytes = length - prefix_bytes - 1,
                       .whole = true};
}

static void fill_header(UstarHeader *header, char kind, NameParts parts, uint64_t size, uint64_t modified)
{
    memset(header, 0, sizeof *header);
    if (parts.prefix_bytes)
        memcpy(header->prefix, parts.prefix, parts.prefix_bytes);
    memcpy(header->name, parts.name, parts.name_bytes);
    put_octal(header->mode, 7, 0644);
    put_octal(header->owner, 7, 0);
    put_octal(header->group, 7, 0);
    put_octal(header->size, OCTAL_DIGITS, size);
    put_octal(header->modified, OCTAL_DIGITS, modified);
    header->kind = kind;
    memcpy(header->magic, "ustar", sizeof header->magic);
    memcpy(header->version, "00", sizeof header->version);
    put_octal(header->device_major, 7, 0);
    put_octal(header->device_minor, 7, 0);
    /* The sum of all bytes, with blanks for these eight. */
    memset(header->checksum, ' ', sizeof header->checksum);
    uint64_t sum = 0;
    const unsigned char *bytes = (const unsigned char *)header;
    for (size_t i = 0; i < sizeof *header; i++)
        sum += bytes[i];
    put_octal(header->checksum, 6, sum);
    header->checksum[6] = '\0';
}

/* ---- pax records ---- */

/* Appends "LENGTH KEY=VALUE\n"; LENGTH includes its own digits. */
static FshStatus add_record(Buffer *records, const char *key, const char *value, FshError *error)
{
    char start[64];
    size_t rest = strlen(key) + strlen(value) + 3, digits = 1;
    for (size_t limit = 10; rest + digits >= limit; limit *= 10)
        digits++;
    int start_bytes = snprintf(start, sizeof start, "%zu %s=", rest + digits, key);
    FshStatus status = buffer_append(records, start, (size_t)start_bytes, error);
    if (!status)
        status = buffer_append_text(records, value, error);
    if (!status)
        status = buffer_append(records, "\n", 1, error);
    return status;
}

static bool is_ascii(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text >= 0x80)
            return false;
    return true;
}

/* Writes seconds since 1970 in the shortest form: "-1.5", "12.000000001", "-0.25". */
static void format_seconds(int64_t time_ns, char text[32])
{
    enum { NS_PER_SECOND = 1000000000 };
    uint64_t size = time_ns < 0 ? -(uint64_t)time_ns : (uint64_t)time_ns;
    int length = snprintf(text, 32, "%s%" PRIu64 ".%09" PRIu64, time_ns < 0 ? "-" : "", size / NS_PER_SECOND,
                          size % NS_PER_SECOND);
    while (text[length - 1] == '0')
        text[--length] = '\0';
    if (text[length - 1] == '.')
        text[length - 1] = '\0';
}

static FshStatus make_records(Buffer *records, const char *path, const NameParts *parts, uint64_t length,
                              int64_t modified_ns, FshError *error)
{
    FshStatus status = FSH_OK;
    struct timespec modified = file_time_of_ns(modified_ns);
    char text[32];
    records->length = 0;
    bool utf8 = text_is_utf8(path);
    if (!parts->whole || (utf8 && !is_ascii(path))) {
        if (!utf8)
            status = add_record(records, "hdrcharset", "BINARY", error);
        if (!status)
            status = add_record(records, "path", path, error);
    }
    if (!status && length >= OCTAL_END) {
        (void)snprintf(text, sizeof text, "%" PRIu64, length);
        status = add_record(records, "size", text, error);
    }
    if (!status && (modified.tv_nsec || modified.tv_sec < 0 || (uint64_t)modified.tv_sec >= OCTAL_END)) {
        format_seconds(modified_ns, text);
        status = add_record(records, "mtime", text, error);
    }
    return status;
}

static size_t padding_of(uint64_t length)
{
    return (size_t)((BLOCK_BYTES - length % BLOCK_BYTES) % BLOCK_BYTES);
}

static const char zeros[END_BYTES];

/* Appends everything before the content to headers; records is scratch memory. */
static FshStatus make_headers(Buffer *headers, Buffer *records, const char *path, uint64_t length,
                              int64_t modified_ns, FshError *error)
{
    NameParts parts = split_path(path);
    UstarHeader header;
    int64_t seconds = file_time_of_ns(modified_ns).tv_sec;
    uint64_t modified = seconds < 0 ? 0 : (uint64_t)seconds;
    FshStatus status = make_records(records, path, &parts, length, modified_ns, error);
    if (!status && records->length) {
        static const char name[] = "PaxHeaders/entry"; /* only readers that do not know pax show it */
        NameParts pax = {.name = name, .name_bytes = sizeof name - 1, .whole = true};
        fill_header(&header, 'x', pax, records->length, modified);
        status = buffer_append(headers, &header, sizeof header, error);
        if (!status)
            status = buffer_append(headers, records->bytes, records->length, error);
        if (!status)
            status = buffer_append(headers, zeros, padding_of(records->length), error);
    }
    if (status)
        return status;
    fill_header(&header, '0', parts, length, modified);
    return buffer_append(headers, &header, sizeof header, error);
}

static bool can_name_file(const char *path)
{
    size_t path_bytes = strlen(path);
    return path_bytes && path[path_bytes - 1] != '/';
}

FshStatus tar_entry_append(Buffer *tar, Buffer *scratch, const char *path, const void *bytes, size_t length,
                           int64_t modified_ns, size_t *content_at_ret, FshError *error)
{
    if (!can_name_file(path))
        return fsh_error_set(error, FSH_ERR_USAGE, "\"%s\" cannot name a file", path);
    const size_t before = tar->length;
    FshStatus status = make_headers(tar, scratch, path, length, modified_ns, error);
    *content_at_ret = tar->length;
    if (!status)
        status = buffer_append(tar, bytes, length, error);
    if (!status)
        status = buffer_append(tar, zeros, padding_of(length), error);
    if (status)
        tar->length = before;
    return status;
}

FshStatus tar_end_append(Buffer *tar, FshError *error)
{
    return buffer_append(tar, zeros, END_BYTES, error);
}

/* ---- the file ---- */

/* Removes `bytes` from the front of the parts still to be written. */
static void advance(struct iovec *parts, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count && bytes; i++) {
        size_t taken = bytes < parts[i].iov_len ? bytes : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + taken;
        parts[i].iov_len -= taken;
        bytes -= taken;
    }
}

/* Appends all parts, one after another, after the last whole entry; or none of them: what a full disk took is
 * cut off. */
static FshStatus append(TarWriter *writer, struct iovec *parts, size_t count, FshError *error)
{
    uint64_t left = 0, offset = writer->offset;
    for (size_t i = 0; i < count; i++)
        left += parts[i].iov_len;
    while (left) {
        ssize_t written = pwritev(writer->descriptor, parts, (int)count, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) { /* 0 does not happen with files; it must not loop for ever */
            int failure = written < 0 ? errno : EIO;
            if (ftruncate(writer->descriptor, (off_t)writer->offset)) {
                /* Bytes remain after the last whole entry; a writer opened again cuts them off. */
            }
            return fsh_error_system(error, failure, "%s: cannot write", writer->path);
        }
        advance(parts, count, (size_t)written);
        offset += (uint64_t)written;
        left -= (uint64_t)written;
    }
    return FSH_OK;
}

/* Returns whether path still names the open file: it was not renamed before it was locked. */
static bool still_named(const char *path, const struct stat *opened)
{
    struct stat named;
    return stat(path, &named) == 0 && named.st_dev == opened->st_dev && named.st_ino == opened->st_ino;
}

/* Opens and locks the file and sets *descriptor_ret, -1 on failure. */
static FshStatus open_locked(const char *path, uint64_t offset, int *descriptor_ret, struct stat *file,
                             FshError *error)
{
    enum { ATTEMPTS = 100 };
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        /* O_NONBLOCK: do not wait for a FIFO. No O_TRUNC before the lock is ours. */
        int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | (offset ? 0 : O_CREAT), 0666);
        if (descriptor < 0)
            return fsh_error_system(error, errno, "%s: cannot open for writing", path);
        FshStatus status = FSH_OK;
        bool ours = false;
        if (fstat(descriptor, file))
            status = fsh_error_system(error, errno, "%s: cannot read its size", path);
        else if (!S_ISREG(file->st_mode))
            status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: is not a regular file", path);
        else if (flock(descriptor, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
            status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: is being written by another process", path);
        else if (still_named(path, file))
            ours = true;
        /* Until the lock is ours another process may change the size. */
        if (ours && fstat(descriptor, file))
            status = fsh_error_system(error, errno, "%s: cannot read its size", path);
        if (ours && !status) {
            *descriptor_ret = descriptor;
            return FSH_OK;
        }
        (void)close(descriptor);
        if (status)
            return status;
    }
    return fsh_error_set(error, FSH_ERR_EXISTS, "%s: is being replaced by another process", path);
}

FshStatus tar_writer_open(TarWriter **writer, const char *path, uint64_t offset, FshError *error)
{
    *writer = NULL;
    struct stat file;
    FshStatus status = FSH_OK;
    TarWriter *opened = calloc(1, sizeof *opened);
    if (opened) {
        opened->descriptor = -1;
        opened->path = strdup(path);
    }
    if (!opened || !opened->path) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    status = open_locked(path, offset, &opened->descriptor, &file, error);
    if (status)
        goto done;
    if ((uint64_t)file.st_size < offset || offset % BLOCK_BYTES) {
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: has %" PRIu64 " bytes; it cannot be continued at byte %" PRIu64, path,
                               (uint64_t)file.st_size, offset);
        goto done;
    }
    if (ftruncate(opened->descriptor, (off_t)offset)) {
        status = fsh_error_system(error, errno, "%s: cannot cut off at byte %" PRIu64, path, offset);
        goto done;
    }
    opened->offset = offset;
    opened->folder_synced = offset > 0;
    *writer = opened;
    return FSH_OK;
done:
    tar_writer_abandon(&opened);
    return status;
}

FshStatus tar_writer_add(TarWriter *writer, const char *path, const void *bytes, size_t length,
                         int64_t modified_ns, uint64_t *offset_ret, FshError *error)
{
    if (!can_name_file(path))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: \"%s\" cannot name a file", writer->path, path);
    writer->headers.length = 0;
    FshStatus status = make_headers(&writer->headers, &writer->records, path, length, modified_ns, error);
    if (status)
        return status;
    /* struct iovec has no const; pwritev does not write to it. */
    struct iovec parts[] = {
        {writer->headers.bytes, writer->headers.length},
        {(void *)bytes, length},
        {(void *)zeros, padding_of(length)},
    };
    uint64_t entry_bytes = parts[0].iov_len + (uint64_t)length + parts[2].iov_len;
    status = append(writer, parts, sizeof parts / sizeof *parts, error);
    if (status)
        return status;
    writer->offset += entry_bytes;
    if (offset_ret)
        *offset_ret = writer->offset;
    return FSH_OK;
}

FshStatus tar_writer_sync(TarWriter *writer, FshError *error)
{
    if (fsync(writer->descriptor))
        return fsh_error_system(error, errno, "%s: cannot write to disk", writer->path);
    if (writer->folder_synced)
        return FSH_OK;
    FshStatus status = file_sync_parent_folder(writer->path, error);
    writer->folder_synced = !status;
    return status;
}

FshStatus tar_writer_finish(TarWriter **writer, FshError *error)
{
    TarWriter *finished = *writer;
    struct iovec end = {(void *)zeros, END_BYTES};
    FshStatus status = append(finished, &end, 1, error);
    if (!status)
        status = tar_writer_sync(finished, error);
    if (close(finished->descriptor) && !status)
        status = fsh_error_system(error, errno, "%s: cannot write", finished->path);
    finished->descriptor = -1;
    tar_writer_abandon(writer);
    return status;
}

void tar_writer_abandon(TarWriter **writer)
{
    TarWriter *abandoned = *writer;
    if (!abandoned)
        return;
    if (abandoned->descriptor >= 0)
        (void)close(abandoned->descriptor);
    buffer_free(&abandoned->headers);
    buffer_free(&abandoned->records);
    free(abandoned->path);
    free(abandoned);
    *writer = NULL;
}
