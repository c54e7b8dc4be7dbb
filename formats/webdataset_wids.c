/* The shard list of webdataset's indexed reader (wids): https://github.com/webdataset/webdataset,
 * wids/wids_specs.py. Its md5sum is optional and left out: the manifest has an XXH3-128 of each tar, and MD5
 * runs at a tenth of the speed of all else. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/file.h"
#include "formats/names.h"
#include "formats/webdataset.h"

/* Returns the text of a split's list, the caller's to free; NULL: out of memory. id: what the dataset is
 * called in it. */
static char *make_text(const FshSplitInfo *split, const char *id)
{
    json_t *shards = json_array();
    bool failed = false;
    for (size_t i = 0; i < split->file_count; i++) {
        const FshFileInfo *file = &split->files[i];
        failed |= json_array_append_new(shards, json_pack("{s:s, s:I, s:I}", "url", file->name, "nsamples",
                                                          (json_int_t)file->sample_count, "filesize",
                                                          (json_int_t)file->bytes)) != 0;
    }
    /* wids keeps its cache under the name: two datasets must not share it. */
    char cache_name[FSH_FILE_NAME_BYTES];
    (void)snprintf(cache_name, sizeof cache_name, "%s-%s", split->name, id);
    json_t *object = json_pack("{s:s, s:i, s:s, s:o}", "__kind__", "wids-shard-index-v1", "wids_version", 1,
                               "name", cache_name, "shardlist", shards);
    char *text = object && !failed ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return text;
}

static FshStatus find_path(const FshSplitInfo *split, const char *folder, char path[PATH_MAX],
                           FshError *error)
{
    char name[FSH_FILE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s" WIDS_SUFFIX, split->name);
    return file_join(path, PATH_MAX, folder, name, error);
}

FshStatus fsh_wids_save(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                        bool force, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = find_path(split, folder, path, error);
    char *text = status ? NULL : make_text(split, manifest->id);
    if (!status && !text)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status)
        status = file_write_atomic(path, text, strlen(text), force, true, error);
    free(text);
    return status;
}

FshStatus fsh_wids_check(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                         FshError *error)
{
    /* With a manifest of version 1 it was called by what each file tells of itself. */
    const char *const ids[] = {manifest->id, manifest->files_id};
    char path[PATH_MAX];
    Buffer found = {0};
    bool same = false;
    FshStatus status = find_path(split, folder, path, error);
    if (!status && !file_exists(path))
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "missing; fpack --repair-manifest makes it again");
    for (size_t i = 0; i < sizeof ids / sizeof *ids && !status && !same; i++) {
        char *text = make_text(split, ids[i]);
        if (!text)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
        else if (file_read_most(path, strlen(text), &found, NULL) == FSH_OK)
            same = found.length == strlen(text) && memcmp(found.bytes, text, found.length) == 0;
        free(text);
    }
    buffer_free(&found);
    if (!status && !same)
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "is not the list of the manifest's tars: it was changed or cut short; fpack "
                               "--repair-manifest makes it again");
    return status;
}
