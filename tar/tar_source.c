#include "tar/tar_source.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tar/tar_sniff.h"

enum { FIRST_READ_BYTES = 8 << 10, MOST_READ_BYTES = 256 << 10 };

/* ---- reading ---- */

/* Gives libarchive the next bytes. Its callbacks must all have the same types. */
static la_ssize_t source_read(struct archive *archive, void *data, const void **bytes_ret)
{
    TarSource *source = data;
    *bytes_ret = source->bytes;
    if (source->start_bytes) {
        size_t given = source->start_bytes;
        *bytes_ret = source->start;
        source->start_bytes = 0;
        return (la_ssize_t)given;
    }
    if (source->outer) {
        la_ssize_t got = archive_read_data(source->outer, source->bytes, MOST_READ_BYTES);
        if (got < 0)
            archive_set_error(archive, archive_errno(source->outer), "%s",
                              archive_error_string(source->outer));
        source->outer_broke = got < 0;
        return got < 0 ? ARCHIVE_FATAL : got;
    }
    uint64_t left = source->end - source->offset;
    size_t wanted = left < source->next_bytes ? (size_t)left : source->next_bytes;
    ssize_t got = 0;
    do
        got = pread(source->descriptor, source->bytes, wanted, (off_t)source->offset);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        source->failure = errno;
        archive_set_error(archive, errno, "cannot be read");
        return ARCHIVE_FATAL;
    }
    source->offset += (uint64_t)got;
    if (source->next_bytes < MOST_READ_BYTES)
        source->next_bytes *= 2;
    return got;
}

static la_int64_t source_skip(struct archive *archive, void *data, la_int64_t request)
{
    TarSource *source = data;
    (void)archive;
    /* Reading on costs less than such a short skip. */
    if (source->outer || request < FIRST_READ_BYTES)
        return 0;
    uint64_t left = source->end - source->offset;
    uint64_t leap = (uint64_t)request < left ? (uint64_t)request : left;
    source->offset += leap;
    source->next_bytes = FIRST_READ_BYTES;
    return (la_int64_t)leap;
}

/* Supports the filters that libarchive runs by itself; for others it would start programs. */
static int support_filters(struct archive *archive)
{
    static int (*const filters[])(struct archive *) = {
        archive_read_support_filter_bzip2, archive_read_support_filter_compress,
        archive_read_support_filter_gzip,  archive_read_support_filter_lz4,
        archive_read_support_filter_lzip,  archive_read_support_filter_xz,
        archive_read_support_filter_zstd,
    };
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (filters[i](archive) != ARCHIVE_OK)
            return ARCHIVE_FATAL;
    return ARCHIVE_OK;
}

struct archive *tar_source_archive(TarSource *source, int (*support_format)(struct archive *))
{
    struct archive *archive = archive_read_new();
    if (!source->bytes)
        source->bytes = malloc(MOST_READ_BYTES);
    source->next_bytes = FIRST_READ_BYTES;
    if (!archive || !source->bytes || support_filters(archive) || support_format(archive)) {
        (void)archive_read_free(archive);
        return NULL;
    }
    /* The raw format does not know it, nor does a libarchive from before 2009. */
    (void)archive_read_set_option(archive, "tar", "read_concatenated_archives", "1");
    (void)archive_read_set_read_callback(archive, source_read);
    (void)archive_read_set_skip_callback(archive, source_skip);
    (void)archive_read_set_callback_data(archive, source);
    (void)archive_read_open1(archive);
    return archive;
}

/* ---- recognition ---- */

/* Reads up to TAR_START_BYTES of the source's content, uncompressed; fewer if it ends or breaks. */
static size_t read_start(TarSource source, uint8_t start[TAR_START_BYTES], int *failure_ret)
{
    size_t length = 0;
    struct archive_entry *entry = NULL;
    source.bytes = NULL;
    struct archive *archive = tar_source_archive(&source, archive_read_support_format_raw);
    *failure_ret = archive ? 0 : ENOMEM;
    if (archive && archive_read_next_header(archive, &entry) == ARCHIVE_OK) {
        la_ssize_t got = 1;
        while (got > 0 && length < TAR_START_BYTES) {
            got = archive_read_data(archive, start + length, TAR_START_BYTES - length);
            length += got > 0 ? (size_t)got : 0;
        }
    }
    if (archive)
        *failure_ret = source.failure;
    (void)archive_read_free(archive);
    free(source.bytes);
    return length;
}

FshStatus tar_source_open(const char *path, TarSource *source, FshError *error)
{
    uint8_t start[TAR_START_BYTES];
    struct stat file;
    int failure = 0;
    FshStatus status = FSH_OK;
    /* O_NONBLOCK: do not wait for a FIFO. */
    *source = (TarSource){.descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (source->descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot open", path);
    if (fstat(source->descriptor, &file)) {
        status = fsh_error_system(error, errno, "%s: cannot read its size", path);
    } else if (!S_ISREG(file.st_mode)) {
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: is not a regular file", path);
    } else {
        source->end = (uint64_t)file.st_size;
        size_t length = read_start(*source, start, &failure);
        if (failure)
            status = fsh_error_system(error, failure, "%s: cannot read", path);
        else if (!tar_sniff_start(start, length, tar_name_stem(path) > 0))
            status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                                   "%s: is no tar, plain or compressed by gzip, bzip2, xz, zstd, lz4 or lzip",
                                   path);
    }
    if (status) {
        (void)close(source->descriptor);
        source->descriptor = -1;
    }
    return status;
}
