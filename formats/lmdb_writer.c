/* LMDB: each batch is a transaction of appends. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/lmdb_file.h"
#include "formats/lmdb_reader.h"
#include "formats/metadata.h"
#include "formats/shard.h"
#include "formats/writer.h"
#include "formats/xxh3.h"

static int append_records(LmdbFile *file, MDB_txn *transaction, void *context)
{
    const FshWriter *writer = context;
    uint8_t *record = writer->batch.bytes;
    for (uint64_t i = writer->batch_first; i < writer->record_count; i++) {
        IndexRow row = fsh_index_row_load(writer->rows.bytes + i * INDEX_ROW_BYTES);
        char digits[LMDB_KEY_DIGITS + 11];
        (void)snprintf(digits, sizeof digits, "%010" PRIu64, i);
        MDB_val key = {.mv_size = LMDB_KEY_DIGITS, .mv_data = digits};
        MDB_val value = {.mv_size = (size_t)row.record_bytes, .mv_data = record};
        int code = mdb_put(transaction, file->database, &key, &value, MDB_APPEND);
        if (code)
            return code;
        record += row.record_bytes;
    }
    return MDB_SUCCESS;
}

/* The last entries: metadata, and the dictionary if there is one. */
typedef struct LastEntries {
    const FshWriter *writer;
    MDB_val metadata;
} LastEntries;

static int append_last(LmdbFile *file, MDB_txn *transaction, void *context)
{
    LastEntries *last = context;
    char name[] = LMDB_METADATA_KEY, dictionary_name[] = LMDB_DICTIONARY_KEY;
    MDB_val key = {.mv_size = sizeof name - 1, .mv_data = name};
    MDB_val value = last->metadata;
    int code = mdb_put(transaction, file->database, &key, &value, MDB_APPEND);
    if (code || !last->writer->dictionary)
        return code;
    key = (MDB_val){.mv_size = sizeof dictionary_name - 1, .mv_data = dictionary_name};
    value =
        (MDB_val){.mv_size = last->writer->metadata.dictionary.bytes, .mv_data = last->writer->dictionary};
    return mdb_put(transaction, file->database, &key, &value, MDB_APPEND);
}

/* ---- the container ---- */

static FshStatus lmdb_open(FshWriter *writer, FshError *error)
{
    LmdbFile *file = calloc(1, sizeof *file);
    writer->private_data = file;
    if (!file)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    return fsh_lmdb_file_open(file, writer->path, writer->force, error);
}

static FshStatus lmdb_write_batch(FshWriter *writer, FshError *error)
{
    return fsh_lmdb_file_put(writer->private_data, append_records, writer, writer->batch.length, error);
}

static FshStatus lmdb_finish(FshWriter *writer, FshFileInfo *info, FshError *error)
{
    LastEntries last = {.writer = writer};
    char *metadata = NULL;
    XXH3_state_t *hash = XXH3_createState();
    FshStatus status = FSH_OK;
    if (!hash || XXH3_128bits_reset(hash) == XXH_ERROR)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    if (!status)
        status = fsh_metadata_encode(&writer->metadata, (int64_t)writer->record_count, &metadata,
                                     &last.metadata.mv_size, error);
    last.metadata.mv_data = metadata;
    if (!status)
        status = fsh_lmdb_file_put(writer->private_data, append_last, &last, last.metadata.mv_size, error);
    if (!status)
        status = fsh_lmdb_file_finish(writer->private_data, hash, &info->bytes, error);
    if (!status) {
        info->hash = fsh_hash_taken(hash);
    }
    (void)XXH3_freeState(hash);
    free(metadata);
    return status;
}

static void lmdb_close(FshWriter *writer)
{
    if (writer->private_data)
        fsh_lmdb_file_close(writer->private_data);
    free(writer->private_data);
    writer->private_data = NULL;
}

const ContainerWriter fsh_lmdb_writer = {
    .batch_bytes = 16 << 20, /* 4,096 pages: far below what a transaction may hold */
    /* LMDB 0.9 writes a value by one call, which moves at most 2^31 - 4096 bytes. */
    .record_bytes_max = (UINT64_C(1) << 31) - 65536,
    .record_count_max = UINT64_C(9999999999),
    .open = lmdb_open,
    .write_batch = lmdb_write_batch,
    .finish = lmdb_finish,
    .close = lmdb_close,
};
