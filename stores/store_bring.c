#include "stores/store_bring.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"
#include "formats/shard.h"

typedef struct BringSink {
    int descriptor;
    uint64_t first;
    const char *path;
} BringSink;

static FshStatus write_bytes(void *context, uint64_t position, const void *bytes, size_t length,
                             FshError *error)
{
    const BringSink *sink = context;
    for (size_t written = 0; written < length;) {
        const ssize_t count = pwrite(sink->descriptor, (const char *)bytes + written, length - written,
                                     (off_t)(sink->first + position + written));
        if (count < 0 && errno != EINTR)
            return fsh_error_system(error, errno, "%s: cannot be written", sink->path);
        written += count > 0 ? (size_t)count : 0;
    }
    return FSH_OK;
}

/* Fetches a part of the file to its place. bytes 0: all of it. */
static FshStatus bring_range(StoreClient *client, const char *name, BringSink *sink, const StoreLook *look,
                             uint64_t first, uint64_t bytes, FshError *error)
{
    sink->first = first;
    const StoreGet get = {.name = name,
                          .first = first,
                          .bytes = look->parts ? bytes : 0,
                          .file_bytes = look->bytes,
                          .etag = look->etag,
                          .sink = write_bytes,
                          .context = sink};
    if (!look->parts)
        sink->first = 0;
    return look->bytes ? store_get(client, &get, NULL, error) : FSH_OK;
}

static FshStatus bring_header(StoreClient *client, const char *name, BringSink *sink, const StoreLook *look,
                              ShardView *shard, FshError *error)
{
    /* A header holds the names of the classes, and a dictionary. */
    static const uint64_t guesses[] = {64 << 10, 16 << 20, UINT64_MAX};
    FshStatus status = FSH_ERR_CORRUPT;
    for (size_t i = 0; i < sizeof guesses / sizeof *guesses && status == FSH_ERR_CORRUPT; i++) {
        FileMapping mapping = {0};
        if (i && guesses[i - 1] >= look->bytes)
            break;
        status = bring_range(client, name, sink, look, 0, guesses[i] < look->bytes ? guesses[i] : look->bytes,
                             error);
        if (!status)
            status = file_map(sink->path, &mapping, error);
        if (!status)
            status = fsh_shard_parse_header(shard, mapping.bytes, mapping.length, error);
        file_unmap(&mapping);
    }
    return status;
}

/* Fetches header, footer and index of a shard. */
static FshStatus bring_skeleton(StoreClient *client, const char *name, BringSink *sink, const StoreLook *look,
                                FshError *error)
{
    ShardView shard = {0};
    FileMapping mapping = {0};
    bool torn = false;
    FshStatus status = ftruncate(sink->descriptor, (off_t)look->bytes) == 0
                           ? FSH_OK
                           : fsh_error_system(error, errno, "%s: cannot be made", sink->path);
    if (!status && look->bytes < SHARD_HEADER_BYTES + SHARD_FOOTER_BYTES)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "is too short for a shard");
    if (!status)
        status = bring_header(client, name, sink, look, &shard, error);
    if (!status)
        status = bring_range(client, name, sink, look, look->bytes - SHARD_FOOTER_BYTES, SHARD_FOOTER_BYTES,
                             error);
    if (!status)
        status = file_map(sink->path, &mapping, error);
    if (!status)
        status = fsh_shard_parse_header(&shard, mapping.bytes, mapping.length, error);
    if (!status)
        status = fsh_shard_parse_footer(&shard, &torn, error);
    file_unmap(&mapping);
    if (!status && shard.index_bytes)
        status = bring_range(client, name, sink, look, shard.index_offset,
                             look->bytes - SHARD_FOOTER_BYTES - shard.index_offset, error);
    return status == FSH_ERR_CORRUPT ? fsh_error_prepend(error, "%s/%s", client->site->url.text, name)
                                     : status;
}

/* Fetches a small file whole. */
static FshStatus bring_whole(StoreClient *client, const char *name, BringSink *sink, bool *found_ret,
                             FshError *error)
{
    const StoreGet get = {.name = name, .optional = true, .sink = write_bytes, .context = sink};
    sink->first = 0;
    return store_get(client, &get, found_ret, error);
}

/* Fetches of a shard what opens it. */
static FshStatus bring_shard(StoreClient *client, const char *name, BringSink *sink, bool *found_ret,
                             FshError *error)
{
    StoreLook look;
    FshError failure = {0};
    FshStatus status = store_look(client, name, &look, &failure);
    *found_ret = !status;
    if (status == FSH_ERR_NOT_FOUND)
        return FSH_OK;
    if (status)
        return fsh_error_set(error, status, "%s", failure.message);
    return look.parts ? bring_skeleton(client, name, sink, &look, error)
                      : bring_range(client, name, sink, &look, 0, look.bytes, error);
}

FshStatus store_bring(StoreClient *client, const char *name, const char *path, bool *found_ret,
                      FshError *error)
{
    BringSink sink = {.path = path, .descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
    *found_ret = false;
    if (sink.descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot be made", path);
    FshStatus status = text_has_suffix(name, ".fshard") ? bring_shard(client, name, &sink, found_ret, error)
                                                        : bring_whole(client, name, &sink, found_ret, error);
    if (close(sink.descriptor) != 0 && !status)
        status = fsh_error_system(error, errno, "%s: cannot be written", path);
    if (status || !*found_ret)
        (void)unlink(path);
    return status;
}
