/* WebDataset: KEY.jpg, KEY.cls and KEY.json for each sample, and beside each tar the index that DALI reads.
 * Paths and .json stand in fshard(5). The hash runs along with the writing. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tar/tar_write.h"
#include "common/file.h"
#include "common/crc32c.h"
#include "formats/json_scan.h"
#include "formats/media.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/shard.h"
#include "formats/webdataset.h"
#include "formats/writer.h"
#include "formats/xxh3.h"

typedef struct TarShard {
    XXH3_state_t *hash;
    Buffer tar;     /* entries of the batch in hand */
    Buffer scratch; /* of tar_entry_append */
    Buffer key;     /* as it stands in the tar, NUL-terminated */
    Buffer last_key;
    Buffer path, json, pixels;
    Buffer index; /* the lines of DALI's index */
    char index_path[PATH_MAX];
} TarShard;

/* ---- .json ---- */

static FshStatus append_field_json(Buffer *json, const FshField *field, uint32_t crc, FshError *error)
{
    char text[160];
    FshStatus status = buffer_append_text(json, "\"source\": ", error);
    if (!status)
        status = fsh_json_append_text(json, field->source, field->source_bytes, error);
    (void)snprintf(text, sizeof text,
                   ", \"width\": %" PRIu32 ", \"height\": %" PRIu32
                   ", \"channels\": %u, \"codec\": \"%s\", \"crc32c\": \"%08" PRIx32 "\"",
                   field->width, field->height, field->channels, fsh_codec_name(field->codec), crc);
    return status ? status : buffer_append_text(json, text, error);
}

static FshStatus append_label_json(Buffer *json, const Metadata *metadata, int64_t label, FshError *error)
{
    char text[64];
    if (label < 0 || (uint64_t)label >= metadata->class_count)
        return FSH_OK;
    const char *name = metadata->class_names[label];
    (void)snprintf(text, sizeof text, "\"label\": %" PRId64 ", \"class_name\": ", label);
    FshStatus status = buffer_append_text(json, text, error);
    if (!status)
        status = fsh_json_append_text(json, name, strlen(name), error);
    return status ? status : buffer_append_text(json, ", ", error);
}

/* Makes a sample's .json: {"fshard": 1, "key": …, "label": …, "class_name": …, "source": …, …}, or of several
 * fields {"fshard": 1, "key": …, "fields": {"blurry": {"source": …, …}, …}}. */
static FshStatus make_json(TarShard *shard, const Metadata *metadata, const FshSample *sample,
                           const uint32_t *crcs, FshError *error)
{
    Buffer *json = &shard->json;
    json->length = 0;
    FshStatus status = buffer_append_text(json, "{\"fshard\": 1, \"key\": ", error);
    if (!status)
        status = fsh_json_append_text(json, sample->key, sample->key_bytes, error);
    if (!status)
        status = buffer_append_text(json, ", ", error);
    if (!status)
        status = append_label_json(json, metadata, sample->label, error);
    if (sample->field_count == 1)
        return status ? status : append_field_json(json, &sample->fields[0], crcs[0], error);
    if (!status)
        status = buffer_append_text(json, "\"fields\": {", error);
    for (unsigned i = 0; i < sample->field_count && !status; i++) {
        const char *name = metadata->field_names[i];
        status = buffer_append_text(json, i ? ", " : "", error);
        if (!status)
            status = fsh_json_append_text(json, name, strlen(name), error);
        if (!status)
            status = buffer_append_text(json, ": {", error);
        if (!status)
            status = append_field_json(json, &sample->fields[i], crcs[i], error);
        if (!status)
            status = buffer_append_text(json, "}", error);
    }
    return status ? status : buffer_append_text(json, "}", error);
}

/* ---- members ---- */

/* Appends KEY.suffix with these bytes, and notes its place in the index. */
static FshStatus add_member(FshWriter *writer, const char *suffix, const void *bytes, size_t length,
                            bool first, FshError *error)
{
    TarShard *shard = writer->private_data;
    char place[64];
    size_t content_at = 0;
    shard->path.length = 0;
    FshStatus status = buffer_append(&shard->path, shard->key.bytes, shard->key.length, error);
    if (!status)
        status = buffer_append_text(&shard->path, ".", error);
    if (!status)
        status = buffer_append(&shard->path, suffix, strlen(suffix) + 1, error);
    if (!status)
        status = tar_entry_append(&shard->tar, &shard->scratch, (const char *)shard->path.bytes, bytes,
                                  length, 0, &content_at, error);
    if (status)
        return status;
    (void)snprintf(place, sizeof place, " %" PRIu64 " %zu ", writer->file.offset + content_at, length);
    status = buffer_append_text(&shard->index, first ? "" : " ", error);
    if (!status)
        status = buffer_append_text(&shard->index, suffix, error);
    if (!status)
        status = buffer_append_text(&shard->index, place, error);
    return status ? status : buffer_append(&shard->index, shard->path.bytes, shard->path.length - 1, error);
}

/* Adds a field's image. Raw pixels get the header of a .npy, which webdataset and NumPy read by
 * themselves. */
static FshStatus add_image(FshWriter *writer, const FshSample *sample, unsigned index, uint32_t *crc,
                           FshError *error)
{
    TarShard *shard = writer->private_data;
    const FshField *field = &sample->fields[index];
    const void *bytes = field->data;
    size_t length = field->bytes;
    const char *name = writer->metadata.field_names[index], *extension = fsh_codec_extension(field->codec);
    char suffix[FSH_FILE_NAME_BYTES];
    FshStatus status = FSH_OK;
    if (field->compression != FSH_COMPRESSION_NONE)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "a tar holds files as they are, and field \"%s\" is compressed", name);
    if (field->codec == FSH_CODEC_RAW) {
        uint8_t header[NPY_HEADER_BYTES];
        fsh_npy_store_header(header, field->height, field->width, field->channels);
        shard->pixels.length = 0;
        status = buffer_append(&shard->pixels, header, sizeof header, error);
        if (!status)
            status = buffer_append(&shard->pixels, field->data, field->bytes, error);
        if (status)
            return status;
        bytes = shard->pixels.bytes;
        length = shard->pixels.length;
    }
    *crc = fsh_crc32c(0, bytes, length);
    bool plain = sample->field_count == 1 && strcmp(name, "image") == 0;
    (void)snprintf(suffix, sizeof suffix, "%s%s%s", plain ? "" : name, plain ? "" : ".", extension);
    return add_member(writer, suffix, bytes, length, index == 0, error);
}

static FshStatus add_sample(FshWriter *writer, const FshSample *sample, FshError *error)
{
    TarShard *shard = writer->private_data;
    uint32_t crcs[FSH_FIELDS_MAX] = {0};
    char label[32];
    FshStatus status = fsh_webdataset_key_encode(sample->key, sample->key_bytes, &shard->key, error);
    if (!status && shard->key.length == shard->last_key.length &&
        memcmp(shard->key.bytes, shard->last_key.bytes, shard->key.length) == 0)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "the sample before has the same key: in a tar they would be one");
    for (unsigned i = 0; i < sample->field_count && !status; i++) {
        status = add_image(writer, sample, i, &crcs[i], error);
    }
    if (!status && sample->field_count == 1 && sample->label >= 0) {
        (void)snprintf(label, sizeof label, "%" PRId64, sample->label);
        status = add_member(writer, "cls", label, strlen(label), false, error);
    }
    if (!status)
        status = make_json(shard, &writer->metadata, sample, crcs, error);
    if (!status)
        status = buffer_append_text(&shard->json, "}\n", error);
    if (!status)
        status = add_member(writer, "json", shard->json.bytes, shard->json.length, false, error);
    if (!status)
        status = buffer_append_text(&shard->index, "\n", error);
    shard->last_key.length = 0;
    return status ? status : buffer_append(&shard->last_key, shard->key.bytes, shard->key.length, error);
}

/* ---- the container ---- */

static FshStatus write_hashed(FshWriter *writer, FshError *error)
{
    TarShard *shard = writer->private_data;
    if (XXH3_128bits_update(shard->hash, shard->tar.bytes, shard->tar.length) == XXH_ERROR)
        return fsh_error_set(error, FSH_ERR_LIBRARY, "%s: XXH3 failed", writer->path);
    FshStatus status = atomic_file_write(&writer->file, shard->tar.bytes, shard->tar.length, error);
    shard->tar.length = 0;
    return status;
}

static FshStatus tar_write_batch(FshWriter *writer, FshError *error)
{
    const uint8_t *record = writer->batch.bytes;
    FshStatus status = FSH_OK;
    for (uint64_t i = writer->batch_first; i < writer->record_count && !status; i++) {
        uint64_t record_bytes = fsh_index_row_load(writer->rows.bytes + i * INDEX_ROW_BYTES).record_bytes;
        FshSample sample;
        RecordHead head;
        status = fsh_record_parse(record, record_bytes, FSH_RECORD_ALIGNED, &sample, &head, error);
        if (status)
            return fsh_error_prepend(error, "%s", writer->path);
        status = add_sample(writer, &sample, error);
        if (status)
            (void)fsh_error_prepend(error, "%s: sample %.*s", writer->path, (int)sample.key_bytes,
                                    sample.key);
        record += record_bytes;
    }
    return status ? status : write_hashed(writer, error);
}

/* Refuses field names that cannot be parts of file names. */
static FshStatus check_names(const FshWriter *writer, FshError *error)
{
    for (size_t i = 0; i < writer->metadata.field_count; i++) {
        if (!fsh_split_name_valid(writer->metadata.field_names[i]))
            return fsh_error_set(
                error, FSH_ERR_USAGE,
                "%s: field \"%s\": in a tar its name may have letters, digits, '_' and '-' only",
                writer->path, writer->metadata.field_names[i]);
    }
    return FSH_OK;
}

static FshStatus tar_open(FshWriter *writer, FshError *error)
{
    TarShard *shard = calloc(1, sizeof *shard);
    writer->private_data = shard;
    if (shard)
        shard->hash = XXH3_createState();
    if (!shard || !shard->hash || XXH3_128bits_reset(shard->hash) == XXH_ERROR)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    size_t stem = strlen(writer->path);
    if (stem < 5 || strcmp(writer->path + stem - 4, ".tar") != 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the name of a tar ends in .tar", writer->path);
    int length =
        snprintf(shard->index_path, sizeof shard->index_path, "%.*s.idx", (int)stem - 4, writer->path);
    if (length < 0 || (size_t)length >= sizeof shard->index_path)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", writer->path);
    FshStatus status = check_names(writer, error);
    return status ? status : atomic_file_open(&writer->file, writer->path, writer->force, error);
}

static FshStatus write_index(FshWriter *writer, FshError *error)
{
    TarShard *shard = writer->private_data;
    Buffer text = {0};
    char start[32];
    (void)snprintf(start, sizeof start, "v1.2 %" PRIu64 "\n", writer->record_count);
    FshStatus status = buffer_append_text(&text, start, error);
    if (!status)
        status = buffer_append(&text, shard->index.bytes, shard->index.length, error);
    if (!status)
        status = file_write_atomic(shard->index_path, text.bytes, text.length, true, true, error);
    buffer_free(&text);
    return status;
}

static FshStatus tar_finish(FshWriter *writer, FshFileInfo *info, FshError *error)
{
    TarShard *shard = writer->private_data;
    FshStatus status = tar_end_append(&shard->tar, error);
    if (!status)
        status = write_hashed(writer, error);
    if (status)
        return status;
    info->hash = fsh_hash_taken(shard->hash);
    info->bytes = writer->file.offset;
    /* The index first: a tar that has its name has its index. */
    status = write_index(writer, error);
    if (status)
        return status;
    status = atomic_file_commit(&writer->file, true, error);
    if (status)
        (void)unlink(shard->index_path);
    return status;
}

static void tar_close(FshWriter *writer)
{
    TarShard *shard = writer->private_data;
    atomic_file_abandon(&writer->file);
    if (!shard)
        return;
    (void)XXH3_freeState(shard->hash);
    Buffer *buffers[] = {&shard->tar,  &shard->scratch, &shard->key,    &shard->last_key,
                         &shard->path, &shard->json,    &shard->pixels, &shard->index};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) {
        buffer_free(buffers[i]);
    }
    free(shard);
    writer->private_data = NULL;
}

const ContainerWriter fsh_webdataset_writer = {
    .batch_bytes = 1 << 20,
    .record_bytes_max = RECORD_BYTES_MAX,
    .record_count_max = UINT32_MAX,
    .open = tar_open,
    .write_batch = tar_write_batch,
    .finish = tar_finish,
    .close = tar_close,
};
