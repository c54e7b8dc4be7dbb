/* The shard list of webdataset's indexed reader (wids): https://github.com/webdataset/webdataset, wids/wids_specs.py. Its
 * md5sum is optional and left out: the manifest has an XXH3-128 of each tar, and MD5 runs at a tenth of the speed of all else. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/internal.h"

FshStatus fsh_wids_save(const FshManifest *manifest, const FshSplitInfo *split, const char *folder,
                        bool force, FshError *error)
{
    char path[PATH_MAX], name[FSH_FILE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s-wids.json", split->name);
    FshStatus status = file_join(path, sizeof path, folder, name, error);
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
    (void)snprintf(cache_name, sizeof cache_name, "%s-%s", split->name, manifest->id);
    json_t *object = json_pack("{s:s, s:i, s:s, s:o}", "__kind__", "wids-shard-index-v1", "wids_version", 1,
                               "name", cache_name, "shardlist", shards);
    char *text = object && !failed ? json_dumps(object, JSON_INDENT(2)) : NULL;
    if (!status && !text)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status)
        status = file_write_atomic(path, text, strlen(text), force, true, error);
    free(text);
    json_decref(object);
    return status;
}
