#include "trainer/inference/restore_origin.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/file.h"
#include "common/json_text.h"

static const char name[] = ".ftrain-restored";

/* Sets *object_ret to the description of this run, a new reference. */
static FshStatus make_origin(const TrainOptions *options, json_t **object_ret, FshError *error)
{
    FileMapping weights = {0};
    char checksum[32];
    FshStatus status = file_map(options->weights, &weights, error);
    if (status)
        return status;
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64,
                   (uint64_t)XXH3_64bits(weights.bytes, (size_t)weights.length));
    file_unmap(&weights);
    *object_ret = json_pack("{s:o, s:s, s:b}", "weights", json_text(options->weights), "xxh3", checksum,
                            "flip_tta", options->image.flip_tta);
    return *object_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->weights);
}

static bool is_same(const json_t *a, const json_t *b)
{
    static const char *const members[] = {"xxh3", "flip_tta"};
    bool same = true;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *of_a = json_object_get(a, members[i]), *of_b = json_object_get(b, members[i]);
        same = same && of_a && of_b && json_equal(of_a, of_b);
    }
    return same;
}

/* Returns whether the folder has files that are not hidden. */
static bool has_images(const char *folder)
{
    DIR *entries = opendir(folder);
    const struct dirent *entry = NULL;
    while (entries && (entry = readdir(entries)) && entry->d_name[0] == '.')
        ;
    const bool found = entry != NULL;
    if (entries)
        (void)closedir(entries);
    return found;
}

FshStatus restore_origin_check(const char *folder, const TrainOptions *options, FshError *error)
{
    char path[PATH_MAX];
    json_t *now = NULL, *before = NULL;
    FshStatus status = file_join(path, sizeof path, folder, name, error);
    if (status || !file_exists(path) || !has_images(folder))
        return status;
    status = make_origin(options, &now, error);
    if (!status)
        before = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    if (!status && !is_same(now, before)) {
        const char *weights = json_string_value(json_object_get(before, "weights"));
        status = fsh_error_set(error, FSH_ERR_EXISTS,
                               "%s: holds images that %s has restored, or that were restored in another way "
                               "(--flip-tta); choose another folder, or use --force to restore all anew",
                               folder, weights ? weights : "another file of weights");
    }
    json_decref(before);
    json_decref(now);
    return status;
}

FshStatus restore_origin_write(const char *folder, const TrainOptions *options, FshError *error)
{
    char path[PATH_MAX], *text = NULL;
    json_t *object = NULL;
    FshStatus status = file_join(path, sizeof path, folder, name, error);
    if (!status)
        status = make_origin(options, &object, error);
    if (!status && !(text = json_dumps(object, JSON_INDENT(2))))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status)
        status = file_write_atomic(path, text, strlen(text), true, true, error);
    free(text);
    json_decref(object);
    return status;
}
