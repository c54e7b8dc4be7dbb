/* One file (or folder) of a foreign container: mapped, and its table made. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "formats/internal.h"

/* Index rows as shards have them, so that labels, places and sizes are asked for in one way. */
FshStatus fsh_foreign_rows(SplitFile *file, FshError *error)
{
    const SampleTable *table = &file->table;
    FshStatus status = buffer_reserve(&file->own_rows, (size_t)table->sample_count * INDEX_ROW_BYTES, error);
    for (uint64_t i = 0; i < table->sample_count && !status; i++) {
        const FieldRow *fields = fsh_table_fields(table, i);
        IndexRow row = {.offset = fields[0].offset, .label = fsh_table_row(table, i)->label};
        for (unsigned j = 0; j < table->field_count; j++) {
            row.record_bytes += fields[j].bytes;
        }
        fsh_index_row_store(file->own_rows.bytes + i * INDEX_ROW_BYTES, &row);
    }
    file->own_rows.length = (size_t)table->sample_count * INDEX_ROW_BYTES;
    file->rows = file->own_rows.bytes;
    file->record_count = table->sample_count;
    return status;
}

static FshStatus fail_at_path(const char *path, FshStatus status, FshError *error)
{
    return status ? fsh_error_prepend(error, "%s", path) : FSH_OK;
}

static FshStatus open_tar(SplitFile *file, const char *path, const char *const *names, size_t name_count,
                          FshError *error)
{
    FshStatus status = file_map(path, &file->mapping, error);
    if (status)
        return status;
    /* Only headers are looked at: without this a disk would read everything between them too. */
    if (file->mapping.length)
        (void)madvise((void *)file->mapping.bytes, (size_t)file->mapping.length, MADV_RANDOM);
    status = fsh_tar_table(&file->table, file->mapping.bytes, file->mapping.length, names, name_count,
                           !file->written_by_us, error);
    if (file->mapping.length)
        (void)madvise((void *)file->mapping.bytes, (size_t)file->mapping.length, MADV_NORMAL);
    return fail_at_path(path, status, error);
}

/* An LMDB is a folder with data.mdb, or that file under any name. */
static FshStatus open_folder2lmdb(SplitFile *file, const char *path, FshError *error)
{
    char data_path[PATH_MAX];
    FshStatus status = fsh_lmdb_data_path(data_path, path, error);
    if (!status)
        status = file_map(data_path, &file->mapping, error);
    if (status)
        return status;
    status = fsh_folder2lmdb_table(&file->table, file->mapping.bytes, file->mapping.length, error);
    return fail_at_path(data_path, status, error);
}

/* ---- BasicSR ---- */

static bool has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_bytes = strlen(suffix);
    return length > suffix_bytes && strcmp(name + length - suffix_bytes, suffix) == 0;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the folders NAME.lmdb in path, without .lmdb, in byte order; owned by the caller. */
static FshStatus list_sides(const char *path, char *names[FSH_FIELDS_MAX], size_t *count_ret, FshError *error)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    FshStatus status = FSH_OK;
    *count_ret = 0;
    if (!folder)
        return fsh_error_system(error, errno, "%s: cannot be read", path);
    while (!status && (errno = 0, entry = readdir(folder))) {
        if (entry->d_name[0] == '.' || !has_suffix(entry->d_name, ".lmdb"))
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
    if (!status && errno)
        status = fsh_error_system(error, errno, "%s: cannot be listed", path);
    (void)closedir(folder);
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

/* Sides in the order of names; folder is the LMDB of each, or NULL for path/NAME.lmdb. */
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
    return fail_at_path(path, status, error);
}

static FshStatus open_basicsr(SplitFile *file, const char *path, const char *const *names, size_t name_count,
                              FshError *error)
{
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

FshStatus fsh_foreign_open(SplitFile *file, const char *path, FshContainer container,
                           const char *const *names, size_t name_count, bool written_by_us, FshError *error)
{
    FshStatus status = FSH_OK;
    *file = (SplitFile){.container = container, .written_by_us = written_by_us};
    if (container == FSH_CONTAINER_TAR)
        status = open_tar(file, path, names, name_count, error);
    else if (container == FSH_CONTAINER_BASICSR)
        status = open_basicsr(file, path, names, name_count, error);
    else
        status = open_folder2lmdb(file, path, error);
    if (!status && file->table.field_count == 0)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: holds no sample with an image", path);
    if (!status)
        status = fsh_foreign_rows(file, error);
    if (status != FSH_ERR_MEMORY && fsh_split_file_check_all_read(file, error))
        status = fail_at_path(path, FSH_ERR_SYSTEM, error); /* why the rest was wrong */
    if (status)
        fsh_split_file_close(file);
    return status;
}
