/* An open dataset: its manifest and, for each split, its files mapped. */

#include "formats/dataset.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file.h"
#include "common/cpu.h"
#include "common/pool.h"
#include "common/read_fault.h"
#include "common/bytes.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/dictionary.h"
#include "formats/lmdb_reader.h"
#include "formats/manifest.h"
#include "formats/manifest_lock.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/record.h"
#include "formats/sample_table.h"
#include "formats/shard.h"
#include "formats/split_file.h"

/* ---- opening ---- */

static FshStatus file_path(char *buffer, size_t buffer_bytes, const char *folder, const char *name,
                           FshError *error)
{
    if (folder[0])
        return file_join(buffer, buffer_bytes, folder, name, error);
    int length = snprintf(buffer, buffer_bytes, "%s", name);
    if (length < 0 || (size_t)length >= buffer_bytes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", name);
    return FSH_OK;
}

static FshStatus open_split(FshDataset *dataset, size_t split_index, FshError *error)
{
    const FshManifest *manifest = &dataset->manifest;
    const FshSplitInfo *info = &manifest->splits[split_index];
    struct FshSplitFiles *files = &dataset->split_files[split_index];
    dataset->splits[split_index] =
        (FshSplit){.dataset = dataset, .info = info, .sample_count = info->sample_count, .files = files};
    files->folder = dataset->folder;
    files->manifest = manifest;
    FshStatus status = fsh_metadata_make(&files->metadata, manifest, info->name, error);
    if (status)
        return status;
    files->files = calloc(info->file_count, sizeof *files->files);
    if (!files->files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    const Container *container = fsh_container_find(manifest->container);
    OpenRequest request = {.expected = &files->metadata,
                           .field_names = (const char *const *)files->metadata.field_names,
                           .field_count = files->metadata.field_count,
                           .written_by_us = true};
    uint64_t first = 0;
    for (size_t i = 0; i < info->file_count && !status; i++) {
        char path[PATH_MAX];
        request.updated = manifest->updates ? &info->files[i] : NULL;
        status = file_path(path, sizeof path, dataset->folder, info->files[i].name, error);
        if (!status)
            status = fsh_split_file_open(&files->files[i], path, container, &request, error);
        if (status)
            break;
        files->count = i + 1;
        files->files[i].first = first;
        first += files->files[i].record_count;
        status = fsh_split_file_compare(&files->files[i], &info->files[i], i,
                                        manifest->updates ? 0 : info->file_count, error);
        if (status)
            (void)fsh_error_prepend(error, "%s", path);
    }
    return status;
}

/* Opens the files of dataset->manifest. path: for messages. */
static FshStatus open_splits(FshDataset *dataset, const char *path, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t count = dataset->manifest.split_count;
    dataset->splits = calloc(count, sizeof *dataset->splits);
    dataset->split_files = calloc(count, sizeof *dataset->split_files);
    if (!dataset->splits || !dataset->split_files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < count && !status; i++) {
        status = open_split(dataset, i, error);
    }
    return status;
}

static FshStatus open_manifest(FshDataset *dataset, const char *manifest_path, FshError *error)
{
    FshStatus status = manifest_lock_load(&dataset->lock, &dataset->manifest, manifest_path, error);
    return status ? status : open_splits(dataset, manifest_path, error);
}

/* Makes the manifest of files that have none, from what they say of themselves. */
static FshStatus make_manifest(FshDataset *dataset, const CollectionFile *list, size_t count,
                               const Container *container, FshError *error)
{
    struct FshSplitFiles *files = dataset->split_files;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const SplitFile *file = &files->files[i];
        const FshFileInfo info = {.name = list[i].name,
                                  .sample_count = file->record_count,
                                  .bytes = file->mapping.length,
                                  .hash = file->hash}; /* zero for LMDB: no one has computed it */
        status =
            i ? fsh_manifest_add_file(&dataset->manifest, &info, error)
              : fsh_manifest_from_file(&dataset->manifest, &files->metadata, container->id, &info, error);
    }
    return status;
}

/* Writes to sum, 12 bytes, the size and the CRC32C that a record tells of itself. */
static FshStatus sum_record(const SplitFile *file, uint64_t record, uint8_t *sum, FshError *error)
{
    IndexRow row;
    FshStatus status = fsh_split_file_index_row(file, record, &row, error);
    /* What is too short is no record: whoever asks for it hears so. */
    const bool is_record = row.record_bytes >= RECORD_BYTES_MIN;
    store_le64(sum, row.record_bytes);
    store_le32(sum + 8, is_record ? fsh_record_crc(file->mapping.bytes + row.offset) : 0);
    return status;
}

/* Makes the id of files without a manifest, and counts their labels, in one pass over the records. The id of
 * shards is of the hashes in their footers, that of an LMDB, which has none, of what its records tell. */
static FshStatus look_at_records(FshDataset *dataset, const Container *container, FshError *error)
{
    Buffer sums = {0};
    const FshSplit *split = dataset->splits;
    const bool summed = !container_has(container, FSH_HAS_HASH);
    const size_t sum_bytes = summed ? (size_t)split->sample_count * 12 : 0;
    uint64_t *class_counts = dataset->manifest.splits[0].class_counts;
    FshStatus status = fsh_manifest_identify(&dataset->manifest, error);
    if (!status && summed)
        status = buffer_reserve(&sums, sum_bytes, error);
    for (uint64_t i = 0; i < split->sample_count && !status; i++) {
        const int64_t label = class_counts ? fsh_sample_label(split, i) : FSH_NO_LABEL;
        if (label >= 0)
            class_counts[label]++;
        if (summed)
            status = sum_record(&split->files->files[0], i, sums.bytes + i * 12, error);
        if (status)
            (void)fsh_error_prepend(error, "%s", dataset->path);
    }
    if (!status && summed)
        fsh_id_mix(dataset->manifest.id, sums.bytes, sum_bytes);
    buffer_free(&sums);
    return status;
}

/* Refuses a shard that does not come after the one before it in their split. Without a manifest some may be
 * left out, but none may come twice. */
static FshStatus compare_neighbours(const SplitFile *file, const CollectionFile *before_name,
                                    const SplitFile *before, FshError *error)
{
    if (file->shard_count == before->shard_count && file->shard_index > before->shard_index)
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "is shard %" PRIu32 " of %" PRIu32 " by its header and comes after %s, shard %" PRIu32 " of %" PRIu32
        "; name each shard of a split once, in order",
        file->shard_index, file->shard_count, before_name->path, before->shard_index, before->shard_count);
}

/* Opens one LMDB, or shards of one split, without a manifest. */
static FshStatus open_alone(FshDataset *dataset, const CollectionFile *list, size_t count,
                            const Container *container, FshError *error)
{
    dataset->splits = calloc(1, sizeof *dataset->splits);
    dataset->split_files = calloc(1, sizeof *dataset->split_files);
    struct FshSplitFiles *files = dataset->split_files;
    if (files)
        files->files = calloc(count, sizeof *files->files);
    if (!dataset->splits || !files || !files->files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", dataset->path);
    files->folder = dataset->folder;
    files->manifest = &dataset->manifest;
    FshStatus status = FSH_OK;
    uint64_t first = 0;
    for (size_t i = 0; i < count && !status; i++) {
        SplitFile *file = &files->files[i];
        const OpenRequest request = {.expected = i ? &files->metadata : NULL,
                                     .metadata_ret = i ? NULL : &files->metadata};
        status = fsh_split_file_open(file, list[i].path, container, &request, error);
        if (status)
            break;
        files->count = i + 1;
        file->first = first;
        first += file->record_count;
        if (i)
            status = compare_neighbours(file, &list[i - 1], file - 1, error);
        if (status)
            (void)fsh_error_prepend(error, "%s", list[i].path);
    }
    if (!status)
        status = make_manifest(dataset, list, count, container, error);
    if (status)
        return status;
    const FshSplitInfo *split = dataset->manifest.splits;
    dataset->splits[0] =
        (FshSplit){.dataset = dataset, .info = split, .sample_count = split->sample_count, .files = files};
    return look_at_records(dataset, container, error);
}

/* Splits path into *folder_ret, all before the last part, and name, the last part without slashes at its end.
 * The caller frees *folder_ret. */
static FshStatus split_path(const char *path, char **folder_ret, char name[NAME_MAX + 1], FshError *error)
{
    size_t name_bytes = 0;
    const char *last = fsh_path_name(path, &name_bytes);
    if (name_bytes > NAME_MAX)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: name is too long", path);
    memcpy(name, last, name_bytes);
    name[name_bytes] = '\0';
    *folder_ret = strndup(path, (size_t)(last - path));
    return *folder_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

/* What the threads that open files share. */
typedef struct CollectionOpening {
    const Collection *collection;
    SplitFile *files;
    uint64_t first; /* the file of item 0 */
} CollectionOpening;

static FshStatus open_collection_file(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    const CollectionOpening *opening = context;
    const size_t index = (size_t)(opening->first + item);
    /* The first file has found out what the fields are. */
    const SampleTable *table = &opening->files[0].table;
    OpenRequest request = {0};
    if (index) {
        request.field_names = (const char *const *)table->field_names;
        request.field_count = table->field_count;
    }
    return fsh_split_file_open(&opening->files[index], opening->collection->files[index].path,
                               opening->collection->container, &request, error);
}

/* Hands the opened files to the splits of the manifest, which are in their order. */
static FshStatus share_out(FshDataset *dataset, SplitFile *opened, FshError *error)
{
    const FshManifest *manifest = &dataset->manifest;
    size_t next = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplitInfo *info = &manifest->splits[i];
        struct FshSplitFiles *files = &dataset->split_files[i];
        files->files = calloc(info->file_count + 1, sizeof *files->files); /* none may have been readable */
        if (!files->files)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        files->folder = dataset->folder;
        files->manifest = manifest;
        files->count = info->file_count;
        uint64_t first = 0;
        for (size_t j = 0; j < files->count; j++, next++) {
            files->files[j] = opened[next];
            opened[next] = (SplitFile){0};
            files->files[j].first = first;
            first += files->files[j].record_count;
        }
        dataset->splits[i] =
            (FshSplit){.dataset = dataset, .info = info, .sample_count = info->sample_count, .files = files};
        FshStatus status = fsh_metadata_make(&files->metadata, manifest, info->name, error);
        if (status)
            return fsh_error_prepend(error, "%s", dataset->path);
    }
    return FSH_OK;
}

/* Makes the splits of the manifest of the files that were opened for it, and takes these over. */
static FshStatus take_opened(FshDataset *dataset, SplitFile *opened, FshError *error)
{
    dataset->splits = calloc(dataset->manifest.split_count, sizeof *dataset->splits);
    dataset->split_files = calloc(dataset->manifest.split_count, sizeof *dataset->split_files);
    return dataset->splits && dataset->split_files
               ? share_out(dataset, opened, error)
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", dataset->path);
}

/* Makes the manifest of the opened files, and takes them over. */
static FshStatus take_files(FshDataset *dataset, const Collection *collection, SplitFile *opened,
                            FshError *error)
{
    dataset->folder = strdup(collection->folder);
    FshStatus status = dataset->folder
                           ? fsh_collection_manifest(&dataset->manifest, collection, opened, error)
                           : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", dataset->path);
    return status ? status : take_opened(dataset, opened, error);
}

/* Opens files of others, and makes their manifest. */
static FshStatus open_collection(FshDataset *dataset, const Collection *collection, FshError *error)
{
    CollectionOpening opening = {.collection = collection};
    opening.files = calloc(collection->count, sizeof *opening.files);
    if (!opening.files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", dataset->path);
    FshStatus status = open_collection_file(0, 0, &opening, error);
    opening.first = 1;
    if (!status && collection->count > 1)
        status =
            pool_run(cpu_count_available(), collection->count - 1, open_collection_file, &opening, error);
    if (!status)
        status = fsh_unite_class_names(opening.files, collection->count, error);
    if (!status)
        status = take_files(dataset, collection, opening.files, error);
    for (size_t i = 0; i < collection->count; i++) {
        fsh_split_file_close(&opening.files[i]);
    }
    free(opening.files);
    return status;
}

static FshStatus open_folder(FshDataset *dataset, const char *path, FshError *error)
{
    char inside[PATH_MAX];
    FshStatus status = file_join(inside, sizeof inside, path, FSH_MANIFEST_NAME, error);
    if (status)
        return status;
    if (file_exists(inside)) {
        dataset->folder = strdup(path);
        return dataset->folder ? open_manifest(dataset, inside, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    status = file_join(inside, sizeof inside, path, LMDB_DATA_NAME, error);
    if (status)
        return status;
    if (!file_exists(inside))
        return fsh_error_set(
            error, FSH_ERR_NOT_FOUND,
            "%s: holds no " FSH_MANIFEST_NAME
            ", no tars, no LMDBs and no images in class folders (CLASS/x.jpg or train/CLASS/x.jpg), so it is "
            "no dataset; fpack makes one, or goes on with one that was stopped; fpack --repair-manifest "
            "makes a lost " FSH_MANIFEST_NAME " again",
            path);
    char name[NAME_MAX + 1];
    status = split_path(path, &dataset->folder, name, error);
    if (status)
        return status;
    const CollectionFile alone = {.path = (char *)path, .name = name};
    return open_alone(dataset, &alone, 1, &fsh_lmdb_container, error);
}

static bool begins_as_json(const FileMapping *mapping)
{
    static const char beginnings[] = {' ', '\t', '\r', '\n', '{'}; /* NUL is none of them */
    for (uint64_t i = 0; i < mapping->length; i++) {
        if (mapping->bytes[i] == '{' || !memchr(beginnings, mapping->bytes[i], sizeof beginnings))
            return mapping->bytes[i] == '{';
    }
    return false;
}

/* Returns the container of records that the mapped file is of; NULL: none. */
static const Container *sniff_records(const char *path, const FileMapping *mapping)
{
    const Container *container = NULL;
    for (size_t i = 0; (container = fsh_container_row(i)); i++) {
        if (container_has(container, FSH_HAS_METADATA) && container->sniff(path, mapping))
            break;
    }
    return container;
}

/* Opens a shard, a manifest, or the one file of an LMDB. */
static FshStatus open_file(FshDataset *dataset, const char *path, FshError *error)
{
    FileMapping mapping;
    FshStatus status = file_map(path, &mapping, error);
    if (status)
        return status;
    const Container *container = sniff_records(path, &mapping);
    const bool is_json = begins_as_json(&mapping);
    status = file_mapping_check(&mapping, 0, mapping.length, error);
    file_unmap(&mapping);
    if (status)
        return fsh_error_prepend(error, "%s", path);
    char name[NAME_MAX + 1];
    status = split_path(path, &dataset->folder, name, error);
    if (status)
        return status;
    const CollectionFile alone = {.path = (char *)path, .name = name};
    if (container)
        return open_alone(dataset, &alone, 1, container, error);
    if (is_json)
        return open_manifest(dataset, path, error);
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "%s: is neither a shard nor a tar nor a " FSH_MANIFEST_NAME, path);
}

static FshStatus open_path(FshDataset *dataset, const char *path, FshError *error)
{
    Collection collection = {0};
    FshStatus status = fsh_collection_find(&collection, path, error);
    if (!status && collection.container && container_has(collection.container, FSH_HAS_METADATA)) {
        dataset->folder = strdup(collection.folder);
        status = dataset->folder
                     ? open_alone(dataset, collection.files, collection.count, collection.container, error)
                     : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    } else if (!status && collection.container)
        status = open_collection(dataset, &collection, error);
    else if (!status)
        status = file_is_folder(path) ? open_folder(dataset, path, error) : open_file(dataset, path, error);
    fsh_collection_free(&collection);
    return status;
}

const void *fsh_dictionary(const FshDataset *dataset, size_t *bytes_ret)
{
    /* All files have the same, and there is at least one. */
    const SplitFile *file = dataset->split_files[0].files;
    *bytes_ret = file->dictionary_bytes;
    return file->dictionary;
}

static FshStatus prepare_dictionary(FshDataset *dataset, FshError *error)
{
    size_t bytes = 0;
    const void *dictionary = fsh_dictionary(dataset, &bytes);
    if (!bytes)
        return FSH_OK;
    FshStatus status = fsh_dictionary_prepare(dictionary, bytes, &dataset->dictionary, error);
    for (size_t i = 0; i < dataset->manifest.split_count; i++) {
        dataset->split_files[i].dictionary = dataset->dictionary;
    }
    return status ? fsh_error_prepend(error, "%s", dataset->path) : FSH_OK;
}

/* Allocates an empty dataset for path. *dataset_ret is NULL on failure. */
static FshStatus make_dataset(FshDataset **dataset_ret, const char *path, FshError *error)
{
    FshDataset *dataset = *dataset_ret = calloc(1, sizeof *dataset);
    if (dataset)
        dataset->lock = -1;
    if (dataset && (dataset->path = strdup(path)))
        return FSH_OK;
    free(dataset);
    *dataset_ret = NULL;
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

static FshStatus open_rebuilt(FshDataset *dataset, const char *folder, FshError *error)
{
    dataset->folder = strdup(folder);
    if (!dataset->folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    FshStatus status = fsh_manifest_rebuild(&dataset->manifest, folder, error);
    return status ? status : open_splits(dataset, folder, error);
}

FshStatus fsh_open(FshDataset **dataset_ret, const char *path, FshError *error)
{
    FshStatus status = make_dataset(dataset_ret, path, error);
    if (!status)
        status = open_path(*dataset_ret, path, error);
    if (!status)
        status = prepare_dictionary(*dataset_ret, error);
    if (status)
        fsh_close(dataset_ret);
    return status;
}

FshStatus fsh_collection_open(FshDataset **dataset_ret, const char *path, const Collection *collection,
                              SplitFile *opened, FshError *error)
{
    FshStatus status = make_dataset(dataset_ret, path, error);
    if (!status)
        status = take_files(*dataset_ret, collection, opened, error);
    for (size_t i = 0; i < collection->count; i++) {
        fsh_split_file_close(&opened[i]);
    }
    if (status)
        fsh_close(dataset_ret);
    return status;
}

FshStatus fsh_opened_take(FshDataset **dataset_ret, const char *path, const char *folder,
                          FshManifest *manifest, SplitFile *opened, size_t count, FshError *error)
{
    FshStatus status = make_dataset(dataset_ret, path, error);
    if (status) {
        fsh_manifest_free(manifest);
    } else {
        FshDataset *dataset = *dataset_ret;
        dataset->manifest = *manifest;
        *manifest = (FshManifest){0};
        dataset->folder = strdup(folder);
        status = dataset->folder ? take_opened(dataset, opened, error)
                                 : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    for (size_t i = 0; i < count; i++)
        fsh_split_file_close(&opened[i]);
    if (status)
        fsh_close(dataset_ret);
    return status;
}

/* Copies what a manifest says of one file of a split, which has no number there. */
static FshStatus copy_listed(FshManifest *copy, const FshManifest *manifest, const FshSplitInfo *split,
                             const FshFileInfo *file, FshError *error)
{
    Metadata metadata = {0};
    FshFileInfo own = *file;
    FshStatus status = fsh_metadata_make(&metadata, manifest, split->name, error);
    if (!status)
        status = fsh_manifest_from_file(copy, &metadata, manifest->container, &own, error);
    if (status)
        return status;
    copy->updates = manifest->updates;
    FshFileInfo *listed = &copy->splits[0].files[0];
    listed->removed = calloc(file->removed_count + 1, sizeof *listed->removed);
    if (!listed->removed)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < file->removed_count; i++)
        listed->removed[i] = file->removed[i];
    return FSH_OK;
}

FshStatus fsh_open_listed(FshDataset **dataset_ret, const char *folder, const FshManifest *manifest,
                          size_t split, size_t file, FshError *error)
{
    const FshSplitInfo *info = &manifest->splits[split];
    FshStatus status = make_dataset(dataset_ret, folder, error);
    if (!status && !((*dataset_ret)->folder = strdup(folder)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    if (!status)
        status = copy_listed(&(*dataset_ret)->manifest, manifest, info, &info->files[file], error);
    if (!status)
        status = open_splits(*dataset_ret, folder, error);
    if (!status)
        status = prepare_dictionary(*dataset_ret, error);
    if (status)
        fsh_close(dataset_ret);
    return status;
}

FshStatus fsh_open_without_manifest(FshDataset **dataset_ret, const char *folder, FshError *error)
{
    FshStatus status = make_dataset(dataset_ret, folder, error);
    if (!status)
        status = open_rebuilt(*dataset_ret, folder, error);
    if (!status)
        status = prepare_dictionary(*dataset_ret, error);
    if (status)
        fsh_close(dataset_ret);
    return status;
}

void fsh_close(FshDataset **dataset_ret)
{
    FshDataset *dataset = *dataset_ret;
    if (!dataset)
        return;
    for (size_t i = 0;
         dataset->split_files && i < (dataset->manifest.split_count ? dataset->manifest.split_count : 1);
         i++) {
        struct FshSplitFiles *files = &dataset->split_files[i];
        for (size_t j = 0; j < files->count; j++) {
            fsh_split_file_close(&files->files[j]);
        }
        free(files->files);
        fsh_metadata_free(&files->metadata);
    }
    fsh_chosen_free(dataset);
    fsh_joined_free(dataset);
    free(dataset->split_files);
    free(dataset->splits);
    fsh_dictionary_release(dataset->dictionary);
    fsh_manifest_free(&dataset->manifest);
    if (dataset->lock >= 0)
        (void)close(dataset->lock);
    free(dataset->folder);
    free(dataset->path);
    free(dataset);
    *dataset_ret = NULL;
}

const FshManifest *fsh_manifest(const FshDataset *dataset)
{
    return &dataset->manifest;
}

void fsh_set_class_display_names(FshDataset *dataset, char **names)
{
    fsh_names_free(dataset->manifest.class_display_names, dataset->manifest.class_count);
    dataset->manifest.class_display_names = names;
}

const char *fsh_path(const FshDataset *dataset)
{
    return dataset->path;
}

FshStatus fsh_set_path(FshDataset *dataset, const char *path, FshError *error)
{
    char *copy = strdup(path);
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    free(dataset->path);
    dataset->path = copy;
    return FSH_OK;
}

const FshSplit *fsh_split(const FshDataset *dataset, const char *name)
{
    for (size_t i = 0; i < dataset->manifest.split_count; i++) {
        if (strcmp(dataset->manifest.splits[i].name, name) == 0)
            return &dataset->splits[i];
    }
    return NULL;
}
