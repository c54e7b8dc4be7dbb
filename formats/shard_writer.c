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
 * read. A piece ends where its multiple does in the file, so that the kernel keeps it in large folios of the
 * page cache (ext4 since Linux 6.16, XFS since 5.18): who reads the shard's mapping then has a tenth of the
 * page faults. */
enum { PIECE_BYTES = 256 << 10 };

typedef struct ShardWriter {
    XXH3_state_t *hash;
    uint8_t *piece; /* [PIECE_BYTES]: what no piece has been filled with yet; owned */
    size_t piece_bytes;
} ShardWriter;

static FshStatus write_hashed(FshWriter *writer, const uint8_t *bytes, size_t length, FshError *error)
{
    const ShardWriter *shard = writer->private_data;
    if (XXH3_128bits_update(shard->hash, bytes, length) == XXH_ERROR)
        return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: XXH3 failed", writer->path);
    return atomic_file_write(&writer->file, bytes, length, error);
}

/* Writes what was put off. */
static FshStatus flush_piece(FshWriter *writer, FshError *error)
{
    ShardWriter *shard = writer->private_data;
    const size_t length = shard->piece_bytes;
    shard->piece_bytes = 0;
    return length ? write_hashed(writer, shard->piece, length, error) : FSH_OK;
}

/* Writes whole pieces, and puts off what is left. Copies only what does not fill a piece by itself. */
static FshStatus write_in_pieces(FshWriter *writer, const uint8_t *bytes, size_t length, FshError *error)
{
    ShardWriter *shard = writer->private_data;
    FshStatus status = FSH_OK;
    while (length && !status) {
        const size_t room = PIECE_BYTES - shard->piece_bytes, taken = length < room ? length : room;
        if (taken == PIECE_BYTES) {
            status = write_hashed(writer, bytes, taken, error);
        } else {
            memcpy(shard->piece + shard->piece_bytes, bytes, taken);
            shard->piece_bytes += taken;
            if (taken == room)
                status = flush_piece(writer, error);
        }
        bytes += taken;
        length -= taken;
    }
    return status;
}

static FshStatus shard_open(FshWriter *writer, FshError *error)
{
    uint8_t *header = NULL;
    ShardWriter *shard = writer->private_data = calloc(1, sizeof *shard);
    FshStatus status = FSH_OK;
    if (shard) {
        shard->hash = XXH3_createState();
        shard->piece = malloc(PIECE_BYTES);
    }
    if (!shard || !shard->piece || !shard->hash || XXH3_128bits_reset(shard->hash) == XXH_ERROR) {
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
    status = write_in_pieces(writer, header, header_bytes, error);
    writer->next_offset = header_bytes;
done:
    free(header);
    return status;
}

static FshStatus shard_write_batch(FshWriter *writer, FshError *error)
{
    return write_in_pieces(writer, writer->batch.bytes, writer->batch.length, error);
}

static FshStatus shard_finish(FshWriter *writer, FshFileInfo *info, FshError *error)
{
    static const uint8_t zeros[FSH_ALIGNMENT];
    const uint64_t index_offset = align_up(writer->next_offset);
    const size_t gap = (size_t)(index_offset - writer->next_offset);
    Buffer *rows = &writer->rows;
    rows->length = fsh_shard_pack_rows(rows->bytes, writer->record_count, writer->record_form);
    uint32_t index_crc = fsh_crc32c(0, rows->bytes, rows->length);
    FshStatus status = gap ? write_in_pieces(writer, zeros, gap, error) : FSH_OK;
    if (!status && rows->length)
        status = write_in_pieces(writer, rows->bytes, rows->length, error);
    size_t padding = (size_t)(align_up(rows->length) - rows->length);
    if (!status && padding)
        status = write_in_pieces(writer, zeros, padding, error);
    if (!status)
        status = flush_piece(writer, error);
    if (status)
        return status;
    info->hash = fsh_hash_taken(((ShardWriter *)writer->private_data)->hash);
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
    ShardWriter *shard = writer->private_data;
    if (shard) {
        (void)XXH3_freeState(shard->hash);
        free(shard->piece);
    }
    free(shard);
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
