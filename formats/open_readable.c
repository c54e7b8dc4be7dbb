/* Opening what can be read of a dataset that fsh_open refuses, for whoever counts what is left of it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/file.h"
#include "common/pool.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/dataset.h"
#include "formats/names.h"

/* What the threads that open files share. */
typedef struct Opening {
    const Container *container;
    char *const *paths;
    const OpenRequest *requests; /* of each file */
    SplitFile *files;
    FshStatus *statuses; /* of each file */
    uint64_t first;      /* the file of item 0 */
} Opening;

/* Opens a file as far as it can be read, and notes its status. Fails for want of memory alone. */
static FshStatus open_file(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    const Opening *opening = context;
    const size_t i = (size_t)(opening->first + item);
    FshError tear = {0}, found = {0}; /* who checks the file tells them */
    OpenRequest request = opening->requests[i];
    request.tear_ret = &tear;
    const FshStatus status =
        fsh_split_file_open(&opening->files[i], opening->paths[i], opening->container, &request, &found);
    opening->statuses[i] = status;
    return status == FSH_ERR_MEMORY ? fsh_error_set(error, status, "%s", found.message) : FSH_OK;
}

/* Makes room for `count` files. FSH_ERR_MEMORY. */
static FshStatus make_opening(Opening *opening, const Container *container, size_t count, const char *path,
                              FshError *error)
{
    *opening = (Opening){.container = container,
                         .files = calloc(count + 1, sizeof *opening->files),
                         .statuses = calloc(count + 1, sizeof *opening->statuses)};
    return opening->files && opening->statuses
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

/* ---- without a manifest ---- */

/* Takes what cannot be opened from the collection and from the files. */
static void drop_unread(Collection *collection, const Opening *opening)
{
    size_t kept = 0;
    for (size_t i = 0; i < collection->count; i++) {
        if (opening->statuses[i]) {
            free(collection->files[i].path);
            free(collection->files[i].name);
            continue;
        }
        collection->files[kept] = collection->files[i];
        opening->files[kept++] = opening->files[i];
    }
    for (size_t i = kept; i < collection->count; i++)
        opening->files[i] = (SplitFile){0};
    collection->count = kept;
}

static FshStatus open_collection(FshDataset **dataset_ret, const char *path, Collection *collection,
                                 FshError *error)
{
    const size_t count = collection->count;
    Opening opening;
    OpenRequest *requests = calloc(count + 1, sizeof *requests);
    char **paths = calloc(count + 1, sizeof *paths);
    FshStatus status = make_opening(&opening, collection->container, count, path, error);
    if (!requests || !paths)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    opening.requests = requests;
    opening.paths = paths;
    for (size_t i = 0; i < count && !status; i++)
        paths[i] = collection->files[i].path;
    /* The first that can be read has found out what the fields are. */
    do {
        if (!status)
            status = open_file(0, 0, &opening, error);
    } while (!status && opening.statuses[opening.first++] && opening.first < count);
    const SampleTable *table =
        opening.first && opening.files ? &opening.files[opening.first - 1].table : NULL;
    for (uint64_t i = opening.first; i < count && !status; i++)
        requests[i] = (OpenRequest){.field_names = (const char *const *)table->field_names,
                                    .field_count = table->field_count};
    if (!status && opening.first < count)
        status = pool_run(cpu_count_available(), count - opening.first, open_file, &opening, error);
    if (!status) {
        drop_unread(collection, &opening);
        status = collection->count
                     ? fsh_unite_class_names(opening.files, collection->count, error)
                     : fsh_error_set(error, FSH_ERR_CORRUPT, "%s: nothing can be read of its %s", path,
                                     collection->container->many);
    }
    if (!status) {
        status = fsh_collection_open(dataset_ret, path, collection, opening.files, error);
    } else {
        for (size_t i = 0; i < count && opening.files; i++)
            fsh_split_file_close(&opening.files[i]);
    }
    free(opening.files);
    free(opening.statuses);
    free(requests);
    free(paths);
    return status;
}

/* ---- with a manifest ---- */

static size_t count_files(const FshManifest *manifest)
{
    size_t count = 0;
    for (size_t i = 0; i < manifest->split_count; i++)
        count += manifest->splits[i].file_count;
    return count;
}

/* Takes what cannot be opened from the manifest and from the files, and counts the samples of the others. */
static void keep_read(FshManifest *manifest, const Opening *opening)
{
    size_t next = 0, kept = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        FshSplitInfo *split = &manifest->splits[i];
        const size_t listed = split->file_count;
        split->file_count = 0;
        split->sample_count = 0;
        for (size_t c = 0; c < manifest->class_count && split->class_counts; c++)
            split->class_counts[c] = 0;
        for (size_t j = 0; j < listed; j++, next++) {
            if (opening->statuses[next]) {
                free(split->files[j].name);
                free(split->files[j].removed);
                continue;
            }
            const SplitFile *file = &opening->files[next];
            FshFileInfo *info = &split->files[split->file_count++];
            *info = split->files[j];
            info->sample_count = file->record_count;
            info->bytes = fsh_split_file_bytes(file);
            split->sample_count += file->record_count;
            for (uint64_t record = 0; record < file->record_count && split->class_counts; record++) {
                const int64_t label = fsh_split_file_label(file, record);
                if (label >= 0) /* below class_count: else the file was refused */
                    split->class_counts[label]++;
            }
            opening->files[kept++] = *file;
        }
    }
    for (size_t i = kept; i < next; i++)
        opening->files[i] = (SplitFile){0};
}

/* Fills what each file is opened for and where it lies. *expected_ret, of each split, and paths are the
 * caller's, also on failure. */
static FshStatus list_files(const FshManifest *manifest, const char *folder, Metadata *expected, char **paths,
                            OpenRequest *requests, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t next = 0;
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        status = fsh_metadata_make(&expected[i], manifest, split->name, error);
        for (size_t j = 0; j < split->file_count && !status; j++, next++) {
            char path[PATH_MAX];
            status = file_join(path, sizeof path, folder, split->files[j].name, error);
            if (!status && !(paths[next] = strdup(path)))
                status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
            requests[next] = (OpenRequest){.expected = &expected[i],
                                           .field_names = (const char *const *)expected[i].field_names,
                                           .field_count = expected[i].field_count,
                                           .written_by_us = true};
        }
    }
    return status;
}

/* Opens the files of a manifest in folder, and takes it over in any case. */
static FshStatus open_listed(FshDataset **dataset_ret, const char *path, const char *folder,
                             FshManifest *manifest, FshError *error)
{
    const size_t count = count_files(manifest), split_count = manifest->split_count;
    Opening opening;
    OpenRequest *requests = calloc(count + 1, sizeof *requests);
    Metadata *expected = calloc(split_count + 1, sizeof *expected);
    char **paths = calloc(count + 1, sizeof *paths);
    FshStatus status = make_opening(&opening, fsh_container_find(manifest->container), count, path, error);
    if (!requests || !expected || !paths)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    opening.requests = requests;
    opening.paths = paths;
    if (!status)
        status = list_files(manifest, folder, expected, paths, requests, error);
    if (!status)
        status = pool_run(cpu_count_available(), count, open_file, &opening, error);
    if (!status) {
        keep_read(manifest, &opening);
        status = fsh_opened_take(dataset_ret, path, folder, manifest, opening.files, count, error);
    } else {
        for (size_t i = 0; i < count && opening.files; i++)
            fsh_split_file_close(&opening.files[i]);
        fsh_manifest_free(manifest);
    }
    for (size_t i = 0; i < split_count && expected; i++)
        fsh_metadata_free(&expected[i]);
    fsh_names_free(paths, count);
    free(expected);
    free(requests);
    free(opening.files);
    free(opening.statuses);
    return status;
}

/* Loads the dataset.json that path is, or that is in the folder path; folder gets the folder it is in. */
static FshStatus load_manifest(const char *path, char folder[PATH_MAX], FshManifest *manifest,
                               FshError *error)
{
    size_t name_bytes = 0;
    const bool is_folder = file_is_folder(path);
    const size_t before = is_folder ? strlen(path) : (size_t)(fsh_path_name(path, &name_bytes) - path);
    (void)snprintf(folder, PATH_MAX, "%.*s", (int)before, before ? path : "");
    if (!before)
        (void)snprintf(folder, PATH_MAX, ".");
    return fsh_manifest_load(manifest, path, error);
}

FshStatus fsh_open_readable(FshDataset **dataset_ret, const char *path, FshError *error)
{
    Collection collection = {0};
    FshManifest manifest = {0};
    char folder[PATH_MAX];
    *dataset_ret = NULL;
    FshStatus status = fsh_collection_find(&collection, path, error);
    const bool is_found = !status && collection.container;
    if (!status && !is_found)
        status = load_manifest(path, folder, &manifest, error);
    const Container *container = is_found ? collection.container : fsh_container_find(manifest.container);
    if (!status && container_has(container, FSH_HAS_METADATA))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: its %s are opened one by one", path,
                               container->many);
    else if (!status)
        status = is_found ? open_collection(dataset_ret, path, &collection, error)
                          : open_listed(dataset_ret, path, folder, &manifest, error);
    fsh_manifest_free(&manifest);
    fsh_collection_free(&collection);
    return status;
}
