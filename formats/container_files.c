/* Files that nobody has packed, behind the interface of a dataset: below a folder, or in a tar. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/file.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/dataset.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/sample_table.h"
#include "formats/split_file.h"
#include "tar/tar_parse.h"

static const char split_name[] = "images", field_name[] = "image";

/* ---- below a folder ---- */

FshStatus fsh_files_sample(const SplitFile *file, uint64_t record, FshSample *sample, RecordHead *head,
                           FshError *error)
{
    const SampleRow *row = fsh_table_row(&file->table, record);
    const char *path = (const char *)file->table.text.bytes + row->text_at;
    (void)error;
    *head = (RecordHead){.label = row->label};
    sample->label = row->label;
    sample->key = path;
    sample->key_bytes = row->key_bytes;
    sample->field_count = 1;
    sample->fields[0] = (FshField){.data = path,
                                   .bytes = row->key_bytes,
                                   .codec = FSH_CODEC_OTHER,
                                   .compression = FSH_COMPRESSION_FILE,
                                   .source = path,
                                   .source_bytes = row->key_bytes};
    return FSH_OK;
}

FshStatus fsh_files_read(const FshSplit *split, const FshField *field, Buffer *bytes, FshError *error)
{
    char name[PATH_MAX], path[PATH_MAX];
    const int length = (int)field->source_bytes;
    if ((size_t)snprintf(name, sizeof name, "%.*s", length, field->source) >= sizeof name)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%.*s: path is too long", length, field->source);
    FshStatus status = file_join(path, sizeof path, split->files->folder, name, error);
    return status ? status : file_read_most(path, FSH_UNPACKED_BYTES_MAX, bytes, error);
}

/* Opens the one file, whose table is made, as a dataset; closes it on failure. */
static FshStatus open_alone(FshDataset **dataset, const char *path, const char *folder, SplitFile *file,
                            FshError *error)
{
    char name[NAME_MAX + 1];
    size_t name_bytes = 0;
    const char *last = fsh_path_name(path, &name_bytes);
    (void)snprintf(name, sizeof name, "%.*s", (int)(name_bytes < NAME_MAX ? name_bytes : NAME_MAX), last);
    CollectionFile list = {.path = (char *)path, .name = name, .split = split_name};
    const Collection collection = {
        .container = file->container, .files = &list, .count = 1, .folder = (char *)folder};
    FshStatus status = file->table.sample_count
                           ? fsh_table_rows(file, error)
                           : fsh_error_set(error, FSH_ERR_MISMATCH, "%s: has no images", path);
    if (!status)
        return fsh_collection_open(dataset, path, &collection, file, error);
    fsh_split_file_close(file);
    return status;
}

FshStatus fsh_open_files(FshDataset **dataset, const char *folder, const char *const *paths, uint64_t count,
                         FshError *error)
{
    SplitFile file = {.container = &fsh_files_container, .table = {.label_max = FSH_NO_LABEL}};
    *dataset = NULL;
    FshStatus status = fsh_table_name_field(&file.table, field_name, strlen(field_name), error);
    for (uint64_t i = 0; i < count && !status; i++) {
        const size_t bytes = strlen(paths[i]);
        status = bytes > 0 && bytes <= UINT16_MAX
                     ? fsh_table_add(&file.table, paths[i], bytes, error)
                     : fsh_error_set(error, FSH_ERR_MISMATCH, "%s: a path of %zu bytes", folder, bytes);
    }
    if (!status)
        return open_alone(dataset, folder, folder, &file, error);
    fsh_split_file_close(&file);
    return status;
}

/* ---- in a tar ---- */

static bool is_hidden(const char *path)
{
    return *path == '.' || strstr(path, "/.");
}

static FshStatus add_members(SplitFile *file, bool (*wanted)(void *context, const char *path), void *context,
                             FshError *error)
{
    TarSource source = tar_source_memory(file->mapping.bytes, file->mapping.length);
    TarCursor cursor = {.source = &source};
    TarMember member = {0};
    SampleTable *table = &file->table;
    FshStatus status = FSH_OK;
    while (!(status = fsh_tar_next(&cursor, &member, error)) && member.path) {
        const char *path = member.path;
        while (path[0] == '.' && path[1] == '/')
            path += 2;
        if (!member.regular || is_hidden(path) || !wanted(context, path))
            continue;
        status = fsh_table_add(table, path, strlen(path), error);
        if (status)
            break;
        *fsh_table_fields(table, table->sample_count - 1) =
            (FieldRow){.offset = member.content, .bytes = member.bytes};
    }
    fsh_tar_free(&cursor);
    return status;
}

FshStatus fsh_open_tar_files(FshDataset **dataset, const char *path,
                             bool (*wanted)(void *context, const char *path), void *context, FshError *error)
{
    SplitFile file = {.container = &fsh_webdataset_container, .table = {.label_max = FSH_NO_LABEL}};
    *dataset = NULL;
    FshStatus status = file_map(path, &file.mapping, error);
    if (status)
        return status;
    status = fsh_table_name_field(&file.table, field_name, strlen(field_name), error);
    /* Only headers are looked at: without this a disk would read everything between them too. */
    if (file.mapping.length)
        (void)madvise((void *)file.mapping.bytes, (size_t)file.mapping.length, MADV_RANDOM);
    if (!status)
        status = add_members(&file, wanted, context, error);
    if (file.mapping.length)
        (void)madvise((void *)file.mapping.bytes, (size_t)file.mapping.length, MADV_NORMAL);
    if (status != FSH_ERR_MEMORY && fsh_split_file_check_all_read(&file, error))
        status = FSH_ERR_SYSTEM; /* why the rest was wrong */
    if (!status)
        return open_alone(dataset, path, "", &file, error);
    fsh_split_file_close(&file);
    return fsh_error_prepend(error, "%s", path);
}

const Container fsh_files_container = {
    .id = FSH_CONTAINER_FILES,
    .name = "files",
    .one = "file",
    .many = "files",
    .facts = FSH_HAS_FILES,
    .sample = fsh_files_sample,
    .verify = fsh_table_file_verify,
    .stretches = fsh_table_file_stretches,
};
