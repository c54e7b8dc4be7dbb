/* BasicSR: SPLIT.basicsr/FIELD.lmdb, each with data.mdb and meta_info.txt. meta_info.txt comes last: an LMDB
 * without it was not finished. Keys are put as they come and not appended: the order of samples is that of
 * meta_info.txt, and the keys' may be another. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "formats/basicsr.h"
#include "formats/lmdb_file.h"
#include "formats/media.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/writer.h"
#include "formats/xxh3.h"

typedef struct Side {
    LmdbFile lmdb;
    Buffer meta;         /* meta_info.txt */
    size_t meta_written; /* of it in LMDB's transactions: a batch that fails is not noted twice */
    char meta_path[PATH_MAX];
} Side;

typedef struct BasicsrWriter {
    Side sides[FSH_FIELDS_MAX];
    size_t side_count;
    Buffer key;
    bool folder_is_ours;
} BasicsrWriter;

/* ---- entries ---- */

typedef struct SideBatch {
    FshWriter *writer;
    size_t side;
    FshStatus status; /* not LMDB's doing */
    FshError *error;
} SideBatch;

static FshStatus fail_sample(const FshWriter *writer, const FshSample *sample, FshStatus status,
                             FshError *error)
{
    (void)fsh_error_prepend(error, "%s: sample %.*s", writer->path, (int)sample->key_bytes, sample->key);
    return status;
}

/* Appends the field's line to meta_info.txt: "KEY.png (h,w,c) 1". The 1 is the level of PNG's compression,
 * which no reader looks at. */
static FshStatus note_field(Side *side, const Buffer *key, const FshField *field, FshError *error)
{
    char text[96];
    FshStatus status = buffer_append(&side->meta, key->bytes, key->length, error);
    (void)snprintf(text, sizeof text, ".%s (%" PRIu32 ",%" PRIu32 ",%u) 1\n",
                   fsh_codec_extension(field->codec), field->height, field->width, field->channels);
    return status ? status : buffer_append_text(&side->meta, text, error);
}

static int put_field(SideBatch *batch, MDB_txn *transaction, const FshSample *sample)
{
    BasicsrWriter *basicsr = batch->writer->private_data;
    Side *side = &basicsr->sides[batch->side];
    const FshField *field = &sample->fields[batch->side];
    batch->status = fsh_basicsr_key_encode(sample->key, sample->key_bytes, &basicsr->key, batch->error);
    if (!batch->status && (field->codec == FSH_CODEC_RAW || field->codec == FSH_CODEC_Y4M ||
                           field->compression != FSH_COMPRESSION_NONE))
        batch->status = fsh_error_set(batch->error, FSH_ERR_MISMATCH,
                                      "BasicSR holds files of images (PNG), not raw or compressed pixels");
    if (!batch->status)
        batch->status = note_field(side, &basicsr->key, field, batch->error);
    if (batch->status)
        return EINVAL;
    MDB_val key = {.mv_size = basicsr->key.length, .mv_data = basicsr->key.bytes};
    MDB_val value = {.mv_size = field->bytes, .mv_data = (void *)field->data};
    int code = mdb_put(transaction, side->lmdb.database, &key, &value, MDB_NOOVERWRITE);
    if (code == MDB_KEYEXIST)
        batch->status = fsh_error_set(batch->error, FSH_ERR_MISMATCH, "its key is there already");
    return code;
}

static int put_batch(LmdbFile *file, MDB_txn *transaction, void *context)
{
    (void)file;
    SideBatch *batch = context;
    const FshWriter *writer = batch->writer;
    BasicsrWriter *basicsr = writer->private_data;
    Side *side = &basicsr->sides[batch->side];
    const uint8_t *record = writer->batch.bytes;
    side->meta.length = side->meta_written;
    for (uint64_t i = writer->batch_first; i < writer->record_count; i++) {
        uint64_t record_bytes = fsh_index_row_load(writer->rows.bytes + i * INDEX_ROW_BYTES).record_bytes;
        FshSample sample;
        RecordHead head;
        batch->status =
            fsh_record_parse(record, record_bytes, FSH_RECORD_ALIGNED, &sample, &head, batch->error);
        if (batch->status)
            return EINVAL;
        int code = put_field(batch, transaction, &sample);
        if (batch->status)
            batch->status = fail_sample(writer, &sample, batch->status, batch->error);
        if (code)
            return code;
        record += record_bytes;
    }
    return MDB_SUCCESS;
}

static FshStatus basicsr_write_batch(FshWriter *writer, FshError *error)
{
    BasicsrWriter *basicsr = writer->private_data;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < basicsr->side_count && !status; i++) {
        FshError own = {0}; /* of the sample; LMDB's code for it says nothing */
        SideBatch batch = {.writer = writer, .side = i, .error = &own};
        Side *side = &basicsr->sides[i];
        status = fsh_lmdb_file_put(&side->lmdb, put_batch, &batch, writer->batch.length, error);
        if (batch.status)
            status = fsh_error_set(error, batch.status, "%s", own.message);
        side->meta_written = side->meta.length;
    }
    return status;
}

/* ---- the container ---- */

static FshStatus open_side(FshWriter *writer, size_t index, FshError *error)
{
    BasicsrWriter *basicsr = writer->private_data;
    Side *side = &basicsr->sides[index];
    char folder[PATH_MAX], name[NAME_MAX + 1];
    const char *field = writer->metadata.field_names[index];
    if (!fsh_split_name_valid(field))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: field \"%s\": as a folder its name may have letters, digits, '_' and '-' only", writer->path,
            field);
    (void)snprintf(name, sizeof name, "%s.lmdb", field);
    FshStatus status = file_join(folder, sizeof folder, writer->path, name, error);
    if (!status)
        status = file_join(side->meta_path, sizeof side->meta_path, folder, BASICSR_META_NAME, error);
    if (!status)
        status = fsh_lmdb_file_open(&side->lmdb, folder, writer->force, error);
    basicsr->side_count = index + 1;
    return status;
}

static FshStatus basicsr_open(FshWriter *writer, FshError *error)
{
    BasicsrWriter *basicsr = calloc(1, sizeof *basicsr);
    writer->private_data = basicsr;
    if (!basicsr)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    if (mkdir(writer->path, 0777) == 0)
        basicsr->folder_is_ours = true;
    else if (errno != EEXIST)
        return fsh_error_system(error, errno, "%s: cannot make the folder", writer->path);
    else if (!file_is_folder(writer->path))
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists and is no folder", writer->path);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < writer->metadata.field_count && !status; i++) {
        status = open_side(writer, i, error);
    }
    return status;
}

static FshStatus finish_sides(FshWriter *writer, XXH3_state_t *hash, uint64_t *bytes_ret, FshError *error)
{
    BasicsrWriter *basicsr = writer->private_data;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < basicsr->side_count;
         i++) { /* of what is replaced: from here on it is unfinished */
        if (unlink(basicsr->sides[i].meta_path) && errno != ENOENT)
            return fsh_error_system(error, errno, "%s: cannot be replaced", basicsr->sides[i].meta_path);
    }
    for (size_t i = 0; i < basicsr->side_count && !status; i++) {
        Side *side = &basicsr->sides[i];
        status = fsh_lmdb_file_finish(&side->lmdb, hash, bytes_ret, error);
        if (!status && XXH3_128bits_update(hash, side->meta.bytes, side->meta.length) == XXH_ERROR)
            status = fsh_error_set(error, FSH_ERR_LIBRARY, "%s: XXH3 failed", writer->path);
        *bytes_ret += side->meta.length;
    }
    for (size_t i = 0; i < basicsr->side_count && !status; i++) {
        Side *side = &basicsr->sides[i];
        status = file_write_atomic(side->meta_path, side->meta.bytes, side->meta.length, writer->force, true,
                                   error);
    }
    return status;
}

static FshStatus basicsr_finish(FshWriter *writer, FshFileInfo *info, FshError *error)
{
    BasicsrWriter *basicsr = writer->private_data;
    XXH3_state_t *hash = XXH3_createState();
    FshStatus status = FSH_OK;
    if (!hash || XXH3_128bits_reset(hash) == XXH_ERROR)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    if (!status)
        status = finish_sides(writer, hash, &info->bytes, error);
    if (!status) {
        info->hash = fsh_hash_taken(hash);
        basicsr->folder_is_ours = false;
    }
    (void)XXH3_freeState(hash);
    return status;
}

static void basicsr_close(FshWriter *writer)
{
    BasicsrWriter *basicsr = writer->private_data;
    if (!basicsr)
        return;
    for (size_t i = 0; i < basicsr->side_count; i++) {
        fsh_lmdb_file_close(&basicsr->sides[i].lmdb);
        buffer_free(&basicsr->sides[i].meta);
    }
    if (basicsr->folder_is_ours)
        (void)rmdir(writer->path);
    buffer_free(&basicsr->key);
    free(basicsr);
    writer->private_data = NULL;
}

const ContainerWriter fsh_basicsr_writer = {
    .batch_bytes = 16 << 20,
    .record_bytes_max = (UINT64_C(1) << 31) - 65536, /* as of LMDB */
    .record_count_max = UINT32_MAX,
    .open = basicsr_open,
    .write_batch = basicsr_write_batch,
    .finish = basicsr_finish,
    .close = basicsr_close,
};
