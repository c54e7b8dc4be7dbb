/* archive_read.c - libfshard-archive.so: decompresses through libarchive, whose raw format gives what comes
 * out of its filters. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tar/archive_plugin.h"

struct Decompressor {
    struct archive *archive;
    struct archive_entry *entry; /* owned by the archive; NULL before the first read */
    ArchiveInput *input;
    void *context;
    bool is_input_ended;
    const void *block; /* left bytes that were decompressed and not read, owned by the archive */
    size_t left;
    FshStatus failure; /* of the input, or of the stream: it is damaged from there on */
    FshError reason;
};

/* Gives libarchive the next compressed bytes. Its callbacks must all have the same types. */
static la_ssize_t give_input(struct archive *archive, void *data, const void **bytes_ret)
{
    Decompressor *decompressor = data;
    const uint8_t *bytes = NULL;
    size_t length = 0;
    const FshStatus status =
        decompressor->input(decompressor->context, &bytes, &length, &decompressor->reason);
    *bytes_ret = bytes;
    decompressor->is_input_ended = !status && length == 0;
    if (status) {
        decompressor->failure = status;
        archive_set_error(archive, EIO, "cannot be read");
        return ARCHIVE_FATAL;
    }
    return (la_ssize_t)length;
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

static void archive_close(Decompressor *decompressor)
{
    (void)archive_read_free(decompressor->archive);
    free(decompressor);
}

static FshStatus archive_open(Decompressor **decompressor, ArchiveInput *input, void *context,
                              FshError *error)
{
    Decompressor *opened = calloc(1, sizeof *opened);
    struct archive *archive = archive_read_new();
    *decompressor = opened;
    if (!opened || !archive || support_filters(archive) || archive_read_support_format_raw(archive)) {
        (void)archive_read_free(archive);
        free(opened);
        *decompressor = NULL;
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    *opened = (Decompressor){.archive = archive, .input = input, .context = context};
    (void)archive_read_set_read_callback(archive, give_input);
    (void)archive_read_set_callback_data(archive, opened);
    return FSH_OK;
}

/* Notes why nothing more can be read, unless the input has said so. */
static void note_failure(Decompressor *decompressor)
{
    struct archive *archive = decompressor->archive;
    if (decompressor->failure)
        return;
    const char *reason = archive_error_string(archive);
    decompressor->failure = fsh_error_set(
        &decompressor->reason, archive_errno(archive) == ENOMEM ? FSH_ERR_MEMORY : FSH_ERR_CORRUPT, "%s%s",
        reason ? reason : "cannot be decompressed", decompressor->is_input_ended ? ": " TAR_CUT_SHORT : "");
}

static FshStatus archive_read(Decompressor *decompressor, uint8_t *bytes, size_t length, size_t *got_ret,
                              FshError *error)
{
    struct archive *archive = decompressor->archive;
    la_int64_t offset = 0;
    *got_ret = 0;
    if (!decompressor->entry && !decompressor->failure &&
        (archive_read_open1(archive) || archive_read_next_header(archive, &decompressor->entry)))
        note_failure(decompressor);
    while (!decompressor->failure && *got_ret < length) {
        /* Not archive_read_data: it drops what it has before a failure. */
        const int result = decompressor->left ? ARCHIVE_OK
                                              : archive_read_data_block(archive, &decompressor->block,
                                                                        &decompressor->left, &offset);
        if (result == ARCHIVE_EOF)
            break;
        if (result < ARCHIVE_WARN) {
            note_failure(decompressor);
            break;
        }
        const size_t room = length - *got_ret, step = decompressor->left < room ? decompressor->left : room;
        memcpy(bytes + *got_ret, decompressor->block, step);
        decompressor->block = (const uint8_t *)decompressor->block + step;
        decompressor->left -= step;
        *got_ret += step;
    }
    if (*got_ret || !decompressor->failure) /* a failure is told when all before it was given */
        return FSH_OK;
    return fsh_error_set(error, decompressor->failure, "%s", decompressor->reason.message);
}

FSH_API const ArchivePlugin fshard_archive_plugin = {
    ARCHIVE_PLUGIN_HERE,
    .open = archive_open,
    .read = archive_read,
    .close = archive_close,
};
