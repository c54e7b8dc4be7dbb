#include "formats/check_list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/text.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/lmdb_reader.h"
#include "formats/manifest.h"
#include "formats/manifest_lock.h"
#include "formats/names.h"
#include "formats/source_list.h"
#include "formats/updated.h"

static FshStatus add_file(CheckList *list, const char *name, FileCheck file, size_t split, FshError *error)
{
    if (list->file_count == list->file_capacity) {
        size_t capacity = list->file_capacity ? 2 * list->file_capacity : 16;
        FileCheck *files = realloc(list->files, capacity * sizeof *files);
        if (files)
            list->files = files;
        char **paths = realloc(list->paths, capacity * sizeof *paths);
        if (paths)
            list->paths = paths;
        char **names = realloc(list->names, capacity * sizeof *names);
        if (names)
            list->names = names;
        size_t *split_of = realloc(list->split_of, capacity * sizeof *split_of);
        if (split_of)
            list->split_of = split_of;
        if (!files || !paths || !names || !split_of)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        list->file_capacity = capacity;
    }
    char path[PATH_MAX];
    FshStatus status = FSH_OK;
    if (list->folder[0])
        status = file_join(path, sizeof path, list->folder, name, error);
    else if (snprintf(path, sizeof path, "%s", name) >= (int)sizeof path)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", name);
    if (status)
        return status;
    size_t i = list->file_count;
    list->paths[i] = strdup(path);
    list->names[i] = strdup(name);
    if (!list->paths[i] || !list->names[i]) {
        free(list->paths[i]);
        free(list->names[i]);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    list->split_of[i] = split;
    list->files[i] = file;
    list->files[i].path = list->paths[i];
    list->files[i].name = list->names[i];
    list->files[i].level = list->level;
    list->files[i].counting = list->counting && list->counting->add ? list->counting : NULL;
    list->file_count++;
    return FSH_OK;
}

static FshStatus list_manifest(CheckList *list, FshError *error)
{
    const FshManifest *manifest = &list->manifest;
    FshStatus status = FSH_OK;
    list->expected = calloc(manifest->split_count, sizeof *list->expected);
    if (!list->expected)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        status = fsh_metadata_make(&list->expected[i], manifest, split->name, error);
        for (size_t j = 0; j < split->file_count && !status; j++) {
            FileCheck file = {.container = fsh_container_find(manifest->container),
                              .expected = &list->expected[i],
                              .info = &split->files[j],
                              .file_index = j,
                              .file_count = manifest->updates ? 0 : split->file_count,
                              .updated = manifest->updates != 0};
            status = add_file(list, split->files[j].name, file, i, error);
        }
    }
    return status;
}

/* Returns whether a name looks like one of ours. *container_ret: the container whose files are called so;
 * NULL where the name is that of an index or a list, which stand beside the files. */
static bool is_ours(const char *name, const Container **container_ret)
{
    const Container *container = NULL;
    *container_ret = fsh_container_of_name(name);
    for (size_t i = 0; !*container_ret && (container = fsh_container_row(i)); i++) {
        if ((container->index_suffix && text_has_suffix(name, container->index_suffix)) ||
            (container->list_suffix && text_has_suffix(name, container->list_suffix)))
            return true;
    }
    return *container_ret != NULL;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the names in the folder, sorted, hidden ones too. The caller frees *names_ret, of *count_ret
 * names. */
static FshStatus list_folder(const char *folder, char ***names_ret, size_t *count_ret, FshError *error)
{
    size_t count = 0, capacity = 0;
    char **names = NULL;
    FshStatus status = FSH_OK;
    DIR *entries = opendir(folder);
    if (!entries)
        return fsh_error_system(error, errno, "%s: cannot read the folder", folder);
    for (const struct dirent *entry; !status && (entry = folder_next(entries, folder, &status, error));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            char **grown = realloc(names, capacity * sizeof *grown);
            if (grown)
                names = grown;
            else
                status = FSH_ERR_MEMORY;
        }
        if (!status && !(names[count++] = strdup(entry->d_name)))
            status = FSH_ERR_MEMORY;
    }
    if (status == FSH_ERR_MEMORY)
        (void)fsh_error_set(error, status, "%s: out of memory", folder);
    folder_close(entries);
    if (status) {
        fsh_names_free(names, count);
        return status;
    }
    if (count)
        qsort(names, count, sizeof *names, compare_names);
    *names_ret = names;
    *count_ret = count;
    return FSH_OK;
}

/* Sorts the names of the files so far into *listed_ret. The caller frees the array, but not the names. */
static FshStatus sort_listed(const CheckList *list, char ***listed_ret, FshError *error)
{
    *listed_ret = calloc(list->file_count + 1, sizeof **listed_ret);
    if (!*listed_ret)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", list->folder);
    if (list->file_count) {
        memcpy(*listed_ret, list->names, list->file_count * sizeof **listed_ret);
        qsort(*listed_ret, list->file_count, sizeof **listed_ret, compare_names);
    }
    return FSH_OK;
}

/* Returns whether a name is that of the index of a listed file, or of a list of one of the splits. */
static bool is_beside(const CheckList *list, char **listed, size_t listed_count, const char *name)
{
    const FshManifest *manifest = &list->manifest;
    const Container *container = fsh_container_find(manifest->container);
    char file[NAME_MAX + 8];
    const char *wanted = file;
    const size_t length = strlen(name);
    if (container->list_suffix && text_has_suffix(name, container->list_suffix)) {
        const size_t stem = length - strlen(container->list_suffix);
        for (size_t i = 0; i < manifest->split_count; i++) {
            if (strlen(manifest->splits[i].name) == stem && memcmp(manifest->splits[i].name, name, stem) == 0)
                return true;
        }
    }
    if (!container->index_suffix || !text_has_suffix(name, container->index_suffix))
        return false;
    (void)snprintf(file, sizeof file, "%.*s%s", (int)(length - strlen(container->index_suffix)), name,
                   container->suffix);
    return bsearch(&wanted, listed, listed_count, sizeof *listed, compare_names) != NULL;
}

/* Reports what does not belong in a file that is a folder, as an LMDB is. */
static void check_inside(CheckList *list, const FileCheck *file)
{
    char **names = NULL;
    size_t count = 0;
    if (!file->container->owns || list_folder(file->path, &names, &count, NULL))
        return; /* whoever opens it says what is wrong */
    for (size_t i = 0; i < count; i++) {
        char reason[NAME_MAX + 64];
        (void)snprintf(reason, sizeof reason, "holds %.*s, which is not of it: remove it", NAME_MAX,
                       names[i]);
        if (names[i][0] != '.' && !file->container->owns(&list->manifest, names[i]))
            list->tell(list->context, file->name, FSH_ERR_MISMATCH, reason);
    }
    fsh_names_free(names, count);
}

/* Lists the files of the manifests that updates have replaced, in the order of strcmp. names: of the folder.
 * A manifest that cannot be read lists none: it is looked at as any other file. *old_ret is for
 * fsh_names_free. */
static FshStatus list_old(const CheckList *list, char **names, size_t count, char ***old_ret,
                          size_t *old_count_ret, FshError *error)
{
    Buffer found = {0};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        char path[PATH_MAX];
        FshManifest manifest;
        if (!manifest_is_old_name(names[i]) || file_join(path, sizeof path, list->folder, names[i], NULL) ||
            fsh_manifest_load(&manifest, path, NULL))
            continue;
        for (size_t s = 0; s < manifest.split_count && !status; s++)
            for (size_t f = 0; f < manifest.splits[s].file_count && !status; f++) {
                char *name = strdup(manifest.splits[s].files[f].name);
                status = name ? buffer_append(&found, &name, sizeof name, error)
                              : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
                if (status)
                    free(name);
            }
        fsh_manifest_free(&manifest);
    }
    *old_ret = (char **)(void *)found.bytes;
    *old_count_ret = found.length / sizeof **old_ret;
    if (*old_count_ret)
        qsort(*old_ret, *old_count_ret, sizeof **old_ret, compare_names);
    return status;
}

/* Proves what the samples of a shard were made of, a hidden file beside it that only fpack --update reads. */
static FshStatus check_sources(CheckList *list, const char *name, FshError *error)
{
    char path[PATH_MAX];
    FileMapping mapping = {0};
    SourcesView view;
    FshError found = {0};
    FshStatus status = file_join(path, sizeof path, list->folder, name, error);
    if (status)
        return status;
    if (file_map(path, &mapping, &found) == FSH_OK &&
        fsh_sources_parse(&view, mapping.bytes, mapping.length, &found))
        (void)file_mapping_check(&mapping, 0, mapping.length, &found);
    file_unmap(&mapping);
    if (found.status)
        list->tell(list->context, name, found.status, found.message);
    return FSH_OK;
}

/* Looks for files besides those listed. With a manifest, a file of a dataset that the manifest does not list
 * is a problem; any other file, and a hidden mark of fpack, is a remark. Without a manifest the files found
 * are what is checked. */
static FshStatus look_for_others(CheckList *list, FshError *error)
{
    char **names = NULL, **listed = NULL, **old = NULL;
    size_t count = 0, old_count = 0;
    const size_t listed_count = list->file_count;
    FshStatus status = list_folder(list->folder, &names, &count, error);
    if (!status)
        status = sort_listed(list, &listed, error);
    if (!status && list->has_manifest)
        status = list_old(list, names, count, &old, &old_count, error);
    for (size_t i = 0; i < count && !status; i++) {
        FileCheck file = {0};
        const bool ours = names[i][0] != '.' && is_ours(names[i], &file.container);
        char waiting[] = "is of the dataset before an update; fpack --update removes it once nobody reads it";
        char left_over[] = "is not in the manifest: left over from another run, remove it";
        char mark[] = "a mark that a run of fpack left; nothing reads it, and it may be removed";
        char other[] = "is no file of the dataset";
        if (!list->has_manifest) {
            if (ours && file.container)
                status = add_file(list, names[i], file, i, error);
        } else if (names[i][0] == '.') {
            if (strcmp(names[i], FSH_UNFINISHED_NAME) == 0 || strncmp(names[i], ".fpack-", 7) == 0)
                list->tell(list->context, names[i], FSH_OK, mark);
            else if (text_has_suffix(names[i], ".fshard" FSH_SOURCES_SUFFIX))
                status = check_sources(list, names[i], error);
        } else if (ours) {
            const bool known = bsearch(&names[i], listed, listed_count, sizeof *listed, compare_names) ||
                               (!file.container && is_beside(list, listed, listed_count, names[i]));
            if (!known && (fsh_is_updated_name(names[i]) ||
                           (old_count && bsearch(&names[i], old, old_count, sizeof *old, compare_names))))
                list->tell(list->context, names[i], FSH_OK, waiting);
            else if (!known)
                list->tell(list->context, names[i], FSH_ERR_MISMATCH, left_over);
        } else if (strcmp(names[i], list->manifest_name) != 0) {
            list->tell(list->context, names[i], FSH_OK, other);
        }
    }
    for (size_t i = 0; i < listed_count && !status; i++)
        check_inside(list, &list->files[i]);
    free(listed);
    fsh_names_free(old, old_count);
    fsh_names_free(names, count);
    return status;
}

/* Checks the lists of a split's files that stand beside them, as tars have them. */
static FshStatus check_lists(CheckList *list, FshError *error)
{
    const FshManifest *manifest = &list->manifest;
    const Container *container = fsh_container_find(manifest->container);
    for (size_t i = 0; container->check_list && i < manifest->split_count; i++) {
        FshError found = {0};
        char name[FSH_FILE_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%s%s", manifest->splits[i].name, container->list_suffix);
        if (container->check_list(manifest, &manifest->splits[i], list->folder, &found) == FSH_ERR_MEMORY)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s", found.message);
        if (found.status)
            list->tell(list->context, name, found.status, found.message);
    }
    return FSH_OK;
}

/* ---- what path is ---- */

/* Splits a path into list->folder and *name_ret, without slashes at its end; a path without '/' is in
 * ".". */
static FshStatus take_folder(CheckList *list, const char *path, const char **name_ret, FshError *error)
{
    size_t name_bytes = 0;
    *name_ret = fsh_path_name(path, &name_bytes);
    size_t folder_bytes = (size_t)(*name_ret - path);
    int length = folder_bytes ? snprintf(list->folder, sizeof list->folder, "%.*s", (int)folder_bytes, path)
                              : snprintf(list->folder, sizeof list->folder, ".");
    if (length < 0 || (size_t)length >= sizeof list->folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    return FSH_OK;
}

/* Takes from a manifest's list the files that are not wanted. */
static void drop_unwanted(CheckList *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->file_count; i++) {
        if (!list->counting->wants(list->files[i].info, list->counting_context)) {
            free(list->paths[i]);
            free(list->names[i]);
            continue;
        }
        list->files[kept] = list->files[i];
        list->paths[kept] = list->paths[i];
        list->names[kept] = list->names[i];
        list->split_of[kept++] = list->split_of[i];
    }
    list->file_count = kept;
}

/* Lists the files of the manifest. A manifest that cannot be read is a problem; then the files are checked as
 * they are. */
static FshStatus list_dataset(CheckList *list, const char *manifest_path, const char *manifest_name,
                              FshError *error)
{
    FshError found = {0};
    char unproved[] = "is of version 1, without a checksum: that nobody has changed it cannot be proved; "
                      "fpack --repair-manifest makes one with a checksum";
    list->manifest_name = manifest_name;
    FshStatus status = fsh_manifest_load(&list->manifest, manifest_path, &found);
    if (status == FSH_ERR_MEMORY) {
        if (error)
            *error = found;
        return status;
    }
    if (status) { /* the problem says which file it is about: its message need not */
        size_t path_bytes = strlen(manifest_path);
        bool named = strncmp(found.message, manifest_path, path_bytes) == 0 &&
                     strncmp(found.message + path_bytes, ": ", 2) == 0;
        list->tell(list->context, manifest_name, status, found.message + (named ? path_bytes + 2 : 0));
    }
    list->has_manifest = list->has_splits = status == FSH_OK;
    if (list->has_manifest && list->manifest.version == MANIFEST_VERSION_WITHOUT_SEAL)
        list->tell(list->context, manifest_name, FSH_OK, unproved);
    status = list->has_manifest ? list_manifest(list, error) : FSH_OK;
    if (!status && list->has_manifest)
        status = check_lists(list, error);
    if (!status)
        status = look_for_others(list, error);
    if (!status && list->has_manifest && list->counting && list->counting->wants)
        drop_unwanted(list);
    return status;
}

static FshStatus is_lmdb(const char *path, bool *is_ret, FshError *error)
{
    FileMapping mapping;
    FshStatus status = file_map(path, &mapping, error);
    *is_ret = !status && fsh_lmdb_sniff(mapping.bytes, mapping.length);
    if (!status && file_mapping_check(&mapping, 0, mapping.length, error))
        status = fsh_error_prepend(error, "%s", path);
    file_unmap(&mapping);
    return status == FSH_ERR_UNSUPPORTED ? FSH_OK : status;
}

static FshStatus list_own(CheckList *list, const char *path, FshError *error)
{
    char inside[PATH_MAX], plain[PATH_MAX];
    const char *name = "";
    /* Without slashes at the end, so that the name is a name. */
    size_t name_bytes = 0;
    size_t length = (size_t)(fsh_path_name(path, &name_bytes) - path) + name_bytes;
    if (length >= sizeof plain)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: path is too long", path);
    memcpy(plain, path, length);
    plain[length] = '\0';
    if (!file_exists(plain))
        return fsh_error_system(error, ENOENT, "%s: cannot open", path);
    if (!file_is_folder(plain)) {
        FshStatus status = take_folder(list, plain, &name, error);
        if (status)
            return status;
        if (text_has_suffix(name, ".json"))
            return list_dataset(list, plain, name, error);
        if (text_has_suffix(name, ".fshard")) /* by name: its content may be what is damaged */
            return add_file(list, name, (FileCheck){.container = &fsh_shards_container}, 0, error);
        bool lmdb = text_has_suffix(name, ".mdb");
        if (!lmdb)
            status = is_lmdb(plain, &lmdb, error);
        if (status)
            return status;
        if (lmdb)
            return add_file(list, name, (FileCheck){.container = &fsh_lmdb_container}, 0, error);
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: is neither a shard nor a " FSH_MANIFEST_NAME,
                             path);
    }
    FshStatus status = file_join(inside, sizeof inside, plain, LMDB_DATA_NAME, error);
    if (!status && file_exists(inside)) {
        status = take_folder(list, plain, &name, error);
        return status ? status
                      : add_file(list, name, (FileCheck){.container = &fsh_lmdb_container}, 0, error);
    }
    (void)snprintf(list->folder, sizeof list->folder, "%s", plain);
    status = file_join(inside, sizeof inside, plain, FSH_MANIFEST_NAME, error);
    if (status)
        return status;
    if (file_exists(inside))
        return list_dataset(list, inside, FSH_MANIFEST_NAME, error);
    status = look_for_others(list, error);
    if (!status && list->file_count == 0)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: holds no " FSH_MANIFEST_NAME " and no shards",
                             path);
    char reason[] = "missing: packing did not finish, or it was removed; each file is checked alone; "
                    "fpack --repair-manifest makes it again";
    if (!status)
        list->tell(list->context, FSH_MANIFEST_NAME, FSH_ERR_NOT_FOUND, reason);
    return status;
}

/* Lists tars and LMDBs of others, which have no manifest. */
static FshStatus list_collection(CheckList *list, const Collection *collection, FshError *error)
{
    FshStatus status = FSH_OK;
    size_t split = 0;
    list->has_splits = true;
    (void)snprintf(list->folder, sizeof list->folder, "%s", collection->folder);
    for (size_t i = 0; i < collection->count && !status; i++) {
        const CollectionFile *file = &collection->files[i];
        split += i && file->split != collection->files[i - 1].split;
        status = add_file(list, file->name, (FileCheck){.container = collection->container}, split, error);
    }
    return status;
}

FshStatus fsh_check_list(CheckList *list, const char *path, FshError *error)
{
    Collection collection;
    FshStatus status = fsh_collection_find(&collection, path, error);
    const bool found = collection.container && collection.container->check; /* else nothing can be proved */
    if (!status && found)
        status = list_collection(list, &collection, error);
    fsh_collection_free(&collection);
    return status || found ? status : list_own(list, path, error);
}

void fsh_check_list_free(CheckList *list)
{
    for (size_t i = 0; i < list->file_count; i++) {
        free(list->paths[i]);
        free(list->names[i]);
    }
    for (size_t i = 0; list->expected && i < list->manifest.split_count; i++) {
        fsh_metadata_free(&list->expected[i]);
    }
    free(list->expected);
    free(list->files);
    free(list->paths);
    free(list->names);
    free(list->split_of);
    fsh_manifest_free(&list->manifest);
    *list = (CheckList){0};
}
