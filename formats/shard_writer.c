/* Shards: header, batches as they come, index, footer. The hash runs along with the writing, over bytes that
 * are still in the cache; nothing is read again. */
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "formats/metadata.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/writer.h"
#include "formats/xxh3.h"

/* What is hashed and written at a time: the kernel copies from the second-level cache what the hash has just
 * read. */
enum { PIECE_BYTES = 256 << 10 };

static FshStatus write_hashed(FshWriter *writer, const uint8_t *bytes, size_t length, FshError *error)
{
    FshStatus status = FSH_OK;
    while (length && !status) {
        const size_t piece = length < PIECE_BYTES ? length : PIECE_BYTES;
        if (XXH3_128bits_update(writer->private_data, bytes, piece) == XXH_ERROR)
            return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: XXH3 failed", writer->path);
        status = atomic_file_write(&writer->file, bytes, piece, error);
        bytes += piece;
        length -= piece;
    }
    return status;
}

static FshStatus shard_open(FshWriter *writer, FshError *error)
{
    uint8_t *header = NULL;
    XXH3_state_t *hash = XXH3_createState();
    writer->private_data = hash;
    FshStatus status = FSH_OK;
    if (!hash || XXH3_128bits_reset(hash) == XXH_ERROR) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
        goto done;
    }
    status = atomic_file_open(&writer->file, writer->path, writer->force, error);
    if (status)
        goto done;
    const Metadata *metadata = &writer->metadata;
    uint32_t header_bytes = fsh_shard_header_bytes(metadata->text_bytes, metadata->dictionary.bytes);
    header = malloc(header_bytes);
    if (!header) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
        goto done;
    }
    fsh_shard_store_header(header, metadata->text, metadata->text_bytes, writer->dictionary,
                           metadata->dictionary.bytes, writer->record_form, writer->shard_index,
                           writer->shard_count);
    status = write_hashed(writer, header, header_bytes, error);
    writer->next_offset = header_bytes;
done:
    free(header);
    return status;
}

static FshStatus shard_write_batch(FshWriter *writer, FshError *error)
{
    return write_hashed(writer, writer->batch.bytes, writer->batch.length, error);
}

static FshStatus shard_finish(FshWriter *writer, FshFileInfo *info, FshError *error)
{
    static const uint8_t zeros[FSH_ALIGNMENT];
    const uint64_t index_offset = align_up(writer->next_offset);
    const size_t gap = (size_t)(index_offset - writer->next_offset);
    Buffer *rows = &writer->rows;
    rows->length = fsh_shard_pack_rows(rows->bytes, writer->record_count, writer->record_form);
    uint32_t index_crc = fsh_crc32c(0, rows->bytes, rows->length);
    FshStatus status = gap ? write_hashed(writer, zeros, gap, error) : FSH_OK;
    if (!status && rows->length)
        status = write_hashed(writer, rows->bytes, rows->length, error);
    size_t padding = (size_t)(align_up(rows->length) - rows->length);
    if (!status && padding)
        status = write_hashed(writer, zeros, padding, error);
    if (status)
        return status;
    info->hash = fsh_hash_taken(writer->private_data);
    uint8_t footer[SHARD_FOOTER_BYTES];
    fsh_shard_store_footer(footer, writer->record_count, writer->record_form, index_offset, index_crc,
                           &info->hash);
    status = atomic_file_write(&writer->file, footer, sizeof footer, error);
    info->bytes = writer->file.offset;
    return status ? status : atomic_file_commit(&writer->file, true, error);
}

static void shard_close(FshWriter *writer)
{
    atomic_file_abandon(&writer->file);
    (void)XXH3_freeState(writer->private_data);
    writer->private_data = NULL;
}

const ContainerWriter fsh_shard_writer = {
    .batch_bytes = 256 << 10, /* stays in the second-level cache between building, hashing and writing */
    .takes_small_batches = true,
    .record_bytes_max = RECORD_BYTES_MAX,
    .record_count_max = UINT32_MAX,
    .open = shard_open,
    .write_batch = shard_write_batch,
    .finish = shard_finish,
    .close = shard_close,
};
