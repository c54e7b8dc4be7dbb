#include "formats/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/bytes.h"
#include "formats/container.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/shard.h"

enum { ALONE_BYTES = 64 << 10 };

static FshStatus copy_dictionary(FshWriter *writer, const FshWriterOptions *options,
                                 FshDictionaryInfo *info_ret, FshError *error)
{
    if (options->dictionary_bytes == 0)
        return FSH_OK;
    FshStatus status =
        fsh_dictionary_describe(options->dictionary, options->dictionary_bytes, info_ret, error);
    if (status)
        return status;
    writer->dictionary = malloc(options->dictionary_bytes);
    if (!writer->dictionary)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    memcpy(writer->dictionary, options->dictionary, options->dictionary_bytes);
    return FSH_OK;
}

FshStatus fsh_writer_open(FshWriter **writer_ret, const char *path, const FshWriterOptions *options,
                          FshError *error)
{
    *writer_ret = NULL;
    const Container *container = fsh_container_find(options->container);
    FshWriter *writer = calloc(1, sizeof *writer);
    if (!writer)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    writer->file.descriptor = -1;
    writer->shard_index = options->shard_index;
    writer->shard_count = options->shard_count;
    writer->record_form = options->record_form;
    writer->force = options->force;
    size_t path_bytes = strlen(path);
    while (path_bytes > 1 && path[path_bytes - 1] == '/') {
        path_bytes--;
    }
    writer->path = strndup(path, path_bytes);
    FshManifest manifest = {.kind = options->kind,
                            .field_names = (char **)options->field_names,
                            .field_count = options->field_count,
                            .class_names = (char **)options->class_names,
                            .class_count = options->class_count};
    FshStatus status = FSH_OK;
    if (!writer->path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    else if (options->shard_index >= options->shard_count)
        status = fsh_error_set(error, FSH_ERR_USAGE, "shard %" PRIu32 " of %" PRIu32, options->shard_index,
                               options->shard_count);
    else if (!container || !container->writer)
        status = fsh_error_set(error, FSH_ERR_USAGE, "container %d is unknown", (int)options->container);
    else if (!container_has(container, FSH_HAS_SHARDS) && options->shard_count != 1)
        status = fsh_error_set(error, FSH_ERR_USAGE, "an LMDB is not split into shards");
    else if (options->record_form != FSH_RECORD_ALIGNED &&
             (options->record_form != FSH_RECORD_COMPACT || !container_has(container, FSH_HAS_COMPACT)))
        status = fsh_error_set(error, FSH_ERR_USAGE, "records of form %d: compact ones are in shards only",
                               (int)options->record_form);
    else if (!options->dataset_id || !fsh_id_valid(options->dataset_id))
        status =
            fsh_error_set(error, FSH_ERR_USAGE, "dataset id \"%s\" is not 32 lower-case hexadecimal digits",
                          options->dataset_id ? options->dataset_id : "");
    if (!status)
        status = copy_dictionary(writer, options, &manifest.dictionary, error);
    if (!status) {
        memcpy(manifest.id, options->dataset_id, sizeof manifest.id);
        status = fsh_metadata_make(&writer->metadata, &manifest, options->split, error);
    }
    if (status) {
        (void)fsh_error_prepend(error, "%s", path);
        goto done;
    }
    writer->container = container->writer;
    status = buffer_reserve(&writer->batch, writer->container->batch_bytes, error);
    if (!status)
        status = writer->container->open(writer, error);
done:
    if (status)
        fsh_writer_close(&writer);
    *writer_ret = writer;
    return status;
}

static FshStatus write_batch(FshWriter *writer, FshError *error)
{
    FshStatus status = FSH_OK;
    if (writer->batch.length)
        status = writer->container->write_batch(writer, error);
    writer->batch.length = 0;
    writer->batch_first = writer->record_count;
    return status;
}

/* Makes room for room_bytes at the end of the batch, and for the row of a record of record_bytes. */
static FshStatus reserve_record(FshWriter *writer, size_t room_bytes, size_t record_bytes, FshError *error)
{
    FshStatus status = FSH_OK;
    if (writer->record_count >= writer->container->record_count_max)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: holds %" PRIu64 " records and can take no more; use more shards",
                             writer->path, writer->record_count);
    if (record_bytes >= writer->container->record_bytes_max)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: a record of %zu bytes; it can take fewer than %" PRIu64
                             " (shards take larger ones than LMDB)",
                             writer->path, record_bytes, writer->container->record_bytes_max);
    if (writer->batch.length && writer->batch.length + room_bytes > writer->container->batch_bytes)
        status = write_batch(writer, error);
    if (!status)
        status = buffer_reserve(&writer->batch, writer->batch.length + room_bytes, error);
    if (!status)
        status = buffer_reserve(&writer->rows, writer->rows.length + INDEX_ROW_BYTES, error);
    if (status)
        writer->state = WRITER_ENDED;
    return status;
}

/* Takes over the record that lies in the reserved room. */
static void append_record(FshWriter *writer, const RecordHead *head)
{
    IndexRow row = {.offset = writer->next_offset,
                    .record_bytes = head->record_bytes,
                    .label = head->label,
                    .crc = head->crc};
    fsh_index_row_store(writer->rows.bytes + writer->rows.length, &row);
    writer->rows.length += INDEX_ROW_BYTES;
    writer->batch.length += (size_t)head->record_bytes;
    writer->next_offset += head->record_bytes;
    writer->record_count++;
}

static FshStatus refuse_ended(const FshWriter *writer, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: the writer has finished or failed", writer->path);
}

FshStatus fsh_writer_put(FshWriter *writer, const FshSample *sample, FshError *error)
{
    if (writer->state != WRITER_OPEN)
        return refuse_ended(writer, error);
    FshStatus status = fsh_record_fits(sample, &writer->metadata, error);
    size_t record_bytes = status ? 0 : fsh_record_bytes(sample, writer->record_form);
    if (!status && !record_bytes) /* building says what is wrong */
        status = fsh_record_build(sample, writer->record_form, writer->batch.bytes, 0, error);
    if (status) {
        (void)fsh_error_prepend(error, "%s: sample %.*s", writer->path, (int)sample->key_bytes, sample->key);
        return status;
    }
    status = reserve_record(writer, record_bytes, record_bytes, error);
    if (status)
        return status;
    uint8_t *record = writer->batch.bytes + writer->batch.length;
    status = fsh_record_build(sample, writer->record_form, record, record_bytes, error);
    if (status)
        return status;
    append_record(
        writer,
        &(RecordHead){.record_bytes = record_bytes, .label = sample->label, .crc = fsh_record_crc(record)});
    return FSH_OK;
}

/* Writes a large record from where it lies, as a batch of its own: copying it together with others would only
 * cost. */
static FshStatus put_alone(FshWriter *writer, const void *record, const RecordHead *head, FshError *error)
{
    FshStatus status = reserve_record(writer, 0, (size_t)head->record_bytes, error);
    if (!status)
        status = write_batch(writer, error);
    if (!status) {
        const Buffer batch = writer->batch;
        writer->batch = (Buffer){.bytes = (uint8_t *)record}; /* is only read */
        append_record(writer, head);
        status = write_batch(writer, error);
        writer->batch = batch;
    }
    if (status)
        writer->state = WRITER_ENDED;
    return status;
}

FshStatus fsh_writer_put_record(FshWriter *writer, const void *record, size_t record_bytes, FshError *error)
{
    if (writer->state != WRITER_OPEN)
        return refuse_ended(writer, error);
    FshSample sample;
    RecordHead head;
    FshStatus status = fsh_record_parse(record, record_bytes, writer->record_form, &sample, &head, error);
    if (!status && head.record_bytes != record_bytes)
        status = fsh_error_set(error, FSH_ERR_USAGE, "record of %" PRIu64 " bytes in a buffer of %zu",
                               head.record_bytes, record_bytes);
    if (!status) {
        status = fsh_record_fits(&sample, &writer->metadata, error);
        if (status)
            (void)fsh_error_prepend(error, "sample %.*s", (int)sample.key_bytes, sample.key);
    }
    if (status) {
        (void)fsh_error_prepend(error, "%s", writer->path);
        return status;
    }
    if (record_bytes >= ALONE_BYTES && writer->container->takes_small_batches)
        return put_alone(writer, record, &head, error);
    status = reserve_record(writer, record_bytes, record_bytes, error);
    if (status)
        return status;
    memcpy(writer->batch.bytes + writer->batch.length, record, record_bytes);
    append_record(writer, &head);
    return FSH_OK;
}

FshStatus fsh_writer_finish(FshWriter *writer, FshFileInfo *info_ret, FshError *error)
{
    if (writer->state != WRITER_OPEN)
        return refuse_ended(writer, error);
    writer->state = WRITER_ENDED;
    const char *slash = strrchr(writer->path, '/');
    FshFileInfo info = {.name = strdup(slash ? slash + 1 : writer->path),
                        .sample_count = writer->record_count};
    FshStatus status =
        info.name ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", writer->path);
    if (!status)
        status = write_batch(writer, error);
    if (!status)
        status = writer->container->finish(writer, &info, error);
    if (!status && info_ret)
        *info_ret = info;
    else
        free(info.name);
    return status;
}

void fsh_writer_close(FshWriter **writer_ret)
{
    FshWriter *writer = *writer_ret;
    if (!writer)
        return;
    if (writer->container)
        writer->container->close(writer);
    fsh_metadata_free(&writer->metadata);
    buffer_free(&writer->batch);
    buffer_free(&writer->rows);
    free(writer->dictionary);
    free(writer->path);
    free(writer);
    *writer_ret = NULL;
}
