#include "stores/store_packed.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/text.h"
#include "formats/xxh3.h"

FshStatus store_packed_open(StorePacked *packed, const char *path, FshError *error)
{
    bool torn = false;
    *packed = (StorePacked){.is_shard = text_has_suffix(path, ".fshard")};
    (void)snprintf(packed->path, sizeof packed->path, "%s", path);
    FshStatus status = file_map(path, &packed->mapping, error);
    if (status)
        return status;
    FshHash128 hash = {0};
    if (!packed->is_shard) {
        hash = fsh_hash_bytes(packed->mapping.bytes, (size_t)packed->mapping.length);
    } else {
        status = fsh_shard_parse_header(&packed->shard, packed->mapping.bytes, packed->mapping.length, error);
        if (!status)
            status = fsh_shard_parse_footer(&packed->shard, &torn, error);
        hash = packed->shard.hash;
    }
    fsh_hash_format(&hash, packed->identity);
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

FshStatus store_packed_prove(const StorePacked *packed, FshError *error)
{
    if (!packed->is_shard)
        return FSH_OK;
    const FshHash128 hash = fsh_hash_bytes(packed->mapping.bytes, (size_t)packed->shard.footer_offset);
    return fsh_hash_equal(&hash, &packed->shard.hash)
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_CORRUPT, "%s: its bytes were changed since it was packed",
                               packed->path);
}

void store_packed_drop(const StorePacked *packed)
{
    enum { BLOCK_BYTES = 4096 };
    if (!packed->is_shard)
        return;
    const uint64_t first =
        ((uint64_t)packed->shard.header_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    const uint64_t end = packed->shard.index_offset / BLOCK_BYTES * BLOCK_BYTES;
    const int descriptor = open(packed->path, O_WRONLY | O_CLOEXEC);
    if (descriptor >= 0 && end > first)
        (void)fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first,
                        (off_t)(end - first));
    if (descriptor >= 0)
        (void)close(descriptor);
}

void store_packed_close(StorePacked *packed)
{
    file_unmap(&packed->mapping);
    *packed = (StorePacked){0};
}
