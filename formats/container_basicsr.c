/* The container of BasicSR's LMDBs: a folder of them, one for each field, or a single one. Tables are
 * basicsr.c's. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/text.h"
#include "formats/basicsr.h"
#include "formats/collection.h"
#include "formats/container.h"
#include "formats/lmdb_reader.h"
#include "formats/split_file.h"
#include "formats/writer.h"

static void write_name(char *buffer, size_t buffer_bytes, const char *split, uint32_t index, uint32_t count)
{
    (void)index;
    (void)count;
    (void)snprintf(buffer, buffer_bytes, "%s.basicsr", split);
}

static bool sniff(const char *path, const FileMapping *data)
{
    char meta_path[PATH_MAX];
    (void)data;
    return file_is_folder(path) &&
           file_join(meta_path, sizeof meta_path, path, BASICSR_META_NAME, NULL) == FSH_OK &&
           file_exists(meta_path);
}

/* Finds the LMDBs in a folder, which are the sides of one split. */
static FshStatus find(Collection *collection, const char *path, FshError *error)
{
    const FshStatus status = fsh_collection_gather(collection, path, ".lmdb", &fsh_basicsr_container, error);
    return status || !collection->count ? status : fsh_collection_take(collection, path, error);
}

static bool owns(const FshManifest *manifest, const char *name)
{
    bool owned = false;
    for (size_t i = 0; i < manifest->field_count; i++) {
        const size_t length = strlen(manifest->field_names[i]);
        owned = owned ||
                (strncmp(name, manifest->field_names[i], length) == 0 && strcmp(name + length, ".lmdb") == 0);
    }
    return owned;
}

/* ---- opening ---- */

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists the folders NAME.lmdb in path, without .lmdb, in byte order: *count_ret of them. The caller frees the
 * names. */
static FshStatus list_sides(const char *path, char *names[FSH_FIELDS_MAX], size_t *count_ret, FshError *error)
{
    DIR *folder = opendir(path);
    FshStatus status = FSH_OK;
    *count_ret = 0;
    if (!folder)
        return fsh_error_system(error, errno, "%s: cannot be read", path);
    for (const struct dirent *entry; (entry = folder_next(folder, path, &status, error));) {
        if (entry->d_name[0] == '.' || !text_has_suffix(entry->d_name, ".lmdb"))
            continue;
        if (*count_ret == FSH_FIELDS_MAX) {
            status =
                fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: more than %d LMDBs", path, FSH_FIELDS_MAX);
            break;
        }
        names[*count_ret] = strndup(entry->d_name, strlen(entry->d_name) - strlen(".lmdb"));
        if (!names[*count_ret])
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        else
            (*count_ret)++;
    }
    folder_close(folder);
    qsort(names, *count_ret, sizeof *names, compare_text);
    return status;
}

static FshStatus map_side(const char *folder, FileMapping *data, FileMapping *meta, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, folder, LMDB_DATA_NAME, error);
    if (!status)
        status = file_map(path, data, error);
    if (!status)
        status = file_join(path, sizeof path, folder, BASICSR_META_NAME, error);
    return status ? status : file_map(path, meta, error);
}

/* Opens the sides in the order of names: path itself if path_is_lmdb, else path/NAME.lmdb for each. */
static FshStatus open_sides(SplitFile *file, const char *path, bool path_is_lmdb, const char *const *names,
                            size_t count, FshError *error)
{
    BasicsrSide sides[FSH_FIELDS_MAX];
    FshStatus status = FSH_OK;
    if (count < 1 || count > FSH_FIELDS_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: %zu LMDBs", path, count);
    file->other_count = 2 * count - 1;
    file->others = calloc(file->other_count, sizeof *file->others);
    if (!file->others) {
        file->other_count = 0;
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    }
    for (size_t i = 0; i < count && !status; i++) {
        char folder[PATH_MAX], name[NAME_MAX + 1];
        FileMapping *data = i ? &file->others[2 * i - 1] : &file->mapping, *meta = &file->others[2 * i];
        (void)snprintf(name, sizeof name, "%s.lmdb", names[i]);
        if (path_is_lmdb)
            (void)snprintf(folder, sizeof folder, "%s", path);
        else
            status = file_join(folder, sizeof folder, path, name, error);
        if (!status)
            status = map_side(folder, data, meta, error);
        sides[i] = (BasicsrSide){names[i], data->bytes, data->length, (const char *)meta->bytes,
                                 (size_t)meta->length};
    }
    if (status)
        return status;
    status = fsh_basicsr_table(&file->table, sides, count, file->written_by_us, error);
    return fsh_split_file_conclude(file, path, status, error);
}

static FshStatus open_file(SplitFile *file, const char *path, const OpenRequest *request, FshError *error)
{
    const char *const *names = request->field_names;
    const size_t name_count = request->field_count;
    char *found[FSH_FIELDS_MAX] = {0}, meta_path[PATH_MAX];
    size_t count = 0;
    FshStatus status = file_join(meta_path, sizeof meta_path, path, BASICSR_META_NAME, error);
    if (status)
        return status;
    if (file_exists(meta_path)) { /* a single LMDB */
        static const char *const image[] = {"image"};
        return open_sides(file, path, true, name_count ? names : image, name_count ? name_count : 1, error);
    }
    if (name_count)
        return open_sides(file, path, false, names, name_count, error);
    status = list_sides(path, found, &count, error);
    if (!status)
        status = open_sides(file, path, false, (const char *const *)found, count, error);
    for (size_t i = 0; i < count; i++) {
        free(found[i]);
    }
    return status;
}

const Container fsh_basicsr_container = {
    .id = FSH_CONTAINER_BASICSR,
    .name = "basicsr",
    .one = "folder of LMDBs",
    .many = "folders of LMDBs",
    .facts = CONTAINER_SIDES,
    .suffix = ".basicsr",
    .data_name = LMDB_DATA_NAME,
    .writer = &fsh_basicsr_writer,
    .sniff = sniff,
    .find = find,
    .write_name = write_name,
    .encode_key = fsh_basicsr_key_encode,
    .open = open_file,
    .sample = fsh_table_file_sample,
    .verify = fsh_table_file_verify,
    .stretches = fsh_table_file_stretches,
    .check = fsh_table_file_check,
    .owns = owns,
};
