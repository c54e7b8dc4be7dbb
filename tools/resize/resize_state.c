#include "tools/resize/resize_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/json_text.h"

/* ---- where things lie ---- */

/* Whether a part of the path is "..". */
static bool has_parent_step(const char *path)
{
    for (size_t length = 0; *path; path += length + (path[length] == '/')) {
        length = strcspn(path, "/");
        if (length == 2 && path[0] == '.' && path[1] == '.')
            return true;
    }
    return false;
}

/* The path without links and dots, also where its last parts do not exist yet. */
static FshStatus resolve(const char *path, char resolved[PATH_MAX], FshError *error)
{
    char existing[PATH_MAX], whole[PATH_MAX];
    if (strlen(path) >= sizeof existing)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the path is too long", path);
    size_t length = strlen(path);
    memcpy(existing, path, length + 1);
    while (!realpath(length ? existing : ".", whole)) {
        if (errno != ENOENT)
            return fsh_error_system(error, errno, "%s: cannot find out where this is", path);
        while (length > 0 && existing[length - 1] == '/')
            length--;
        while (length > 0 && existing[length - 1] != '/')
            length--;
        existing[length] = '\0';
    }
    if (length == strlen(path)) {
        memcpy(resolved, whole, sizeof whole);
        return FSH_OK;
    }
    if (has_parent_step(path + length))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: goes up from a folder that does not exist; name it without ..", path);
    return file_join(resolved, PATH_MAX, whole, path + length, error);
}

/* Whether inner is outer, or below it. */
static bool lies_in(const char *inner, const char *outer)
{
    size_t length = strlen(outer);
    if (strcmp(outer, "/") == 0)
        return true;
    return strncmp(inner, outer, length) == 0 && (inner[length] == '/' || inner[length] == '\0');
}

/* ---- the state as JSON ---- */

static json_t *state_json(const char *source, const ResizeRecipe *recipe, bool complete, FshError *error)
{
    char resolved[PATH_MAX];
    if (resolve(source, resolved, error))
        return NULL;
    json_t *state = json_pack(
        "{s:s, s:s, s:o*, s:i, s:s, s:s, s:i, s:s, s:s, s:s, s:b, s:b}", "tool", "fresize", "version",
        FSHARD_VERSION, "source", json_text(resolved), "max_size", (int)recipe->max_size, "edge",
        recipe->long_edge ? "long" : "short", "filter", resample_filter_names[recipe->filter], "quality",
        recipe->quality, "subsampling", recipe->subsampling == IMAGE_SUBSAMPLING_420 ? "420" : "444",
        "orient", recipe->ignore_orientation ? "ignore" : "apply", "icc",
        recipe->ignore_icc ? "ignore" : "srgb", "exact", recipe->exact, "complete", complete);
    if (!state)
        (void)fsh_error_set(error, FSH_ERR_MEMORY, "no memory for " RESIZE_STATE_NAME);
    return state;
}

/* What may differ between two runs over one tree. */
static const char *const free_keys[] = {"version", "complete", NULL};

/* The first key in which two states differ; NULL: none. */
static const char *first_difference(const json_t *ours, const json_t *theirs)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)ours, key, value)
    {
        bool compared = true;
        for (const char *const *name = free_keys; *name; name++)
            compared = compared && strcmp(*name, key) != 0;
        if (compared && !json_equal(value, json_object_get(theirs, key)))
            return key;
    }
    return NULL;
}

static FshStatus write_state(const char *destination, const char *source, const ResizeRecipe *recipe,
                             bool complete, FshError *error)
{
    char path[PATH_MAX];
    char *text = NULL;
    json_t *state = state_json(source, recipe, complete, error);
    FshStatus status =
        state ? file_join(path, sizeof path, destination, RESIZE_STATE_NAME, error) : error->status;
    if (!status) {
        text = json_dumps(state, JSON_INDENT(2));
        status = text ? file_write_atomic(path, text, strlen(text), true, true, error)
                      : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for " RESIZE_STATE_NAME);
    }
    free(text);
    json_decref(state);
    return status;
}

/* ---- checking ---- */

/* Any name but those of temporary files, which a killed run may leave. */
static FshStatus is_folder_empty(const char *path, bool *empty_ret, FshError *error)
{
    *empty_ret = true;
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT
                   ? FSH_OK
                   : fsh_error_system(error, errno, "%s: cannot be used as the destination", path);
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        const char *name = entry->d_name;
        bool temporary =
            strncmp(name, "." RESIZE_STATE_NAME ".tmp-", sizeof "." RESIZE_STATE_NAME ".tmp-" - 1) == 0;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !temporary)
            *empty_ret = false;
    }
    (void)closedir(folder);
    return FSH_OK;
}

/* The destination holds a state: is it ours? */
static FshStatus compare_state(const char *destination, const Buffer *file, const char *source,
                               const ResizeRecipe *recipe, FshError *error)
{
    json_t *ours = state_json(source, recipe, false, error);
    json_t *theirs = json_loadb((const char *)file->bytes, file->length, 0, NULL);
    FshStatus status = ours ? FSH_OK : error->status;
    const char *key = !status && json_is_object(theirs) ? first_difference(ours, theirs) : NULL;
    if (!status && !json_is_object(theirs)) {
        status =
            fsh_error_set(error, FSH_ERR_EXISTS,
                          "%s/" RESIZE_STATE_NAME ": is not what fresize wrote; take another destination, or "
                          "--force to write this one anew",
                          destination);
    } else if (!status && key) {
        char *before = json_dumps(json_object_get(theirs, key), JSON_ENCODE_ANY);
        char *now = json_dumps(json_object_get(ours, key), JSON_ENCODE_ANY);
        status = fsh_error_set(
            error, FSH_ERR_EXISTS,
            "%s: was made with another %s (%s, now %s); take another destination, or --force to "
            "write it anew",
            destination, key, before ? before : "none", now ? now : "none");
        free(before);
        free(now);
    }
    json_decref(ours);
    json_decref(theirs);
    return status;
}

FshStatus resize_state_check(const char *destination, const char *source, const ResizeRecipe *recipe,
                             bool force, bool *resume_ret, FshError *error)
{
    char from[PATH_MAX], to[PATH_MAX], path[PATH_MAX];
    *resume_ret = false;
    FshStatus status = resolve(source, from, error);
    if (!status)
        status = resolve(destination, to, error);
    if (status)
        return status;
    if (lies_in(to, from) || lies_in(from, to))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: source and destination lie in each other; take a destination beside %s",
                             destination, source);
    bool empty = true;
    status = is_folder_empty(destination, &empty, error);
    if (status || empty || force)
        return status;
    status = file_join(path, sizeof path, destination, RESIZE_STATE_NAME, error);
    if (status)
        return status;
    Buffer file = {0};
    if (!file_exists(path))
        status = fsh_error_set(error, FSH_ERR_EXISTS,
                               "%s: is not empty; take another destination, or --force to write into it",
                               destination);
    else
        status = file_read(path, &file, error);
    if (!status)
        status = compare_state(destination, &file, source, recipe, error);
    buffer_free(&file);
    *resume_ret = !status;
    return status;
}

/* ---- beginning and end ---- */

/* File systems keep times by the nanosecond, or by 100 (SMB, NTFS), the microsecond, millisecond, second or two (FAT). */
static bool is_same_time(int64_t kept_ns, int64_t given_ns)
{
    static const int64_t steps_ns[] = {1, 100, 1000, 1000000, 10000000, 1000000000, 2000000000};
    for (size_t i = 0; i < sizeof steps_ns / sizeof steps_ns[0]; i++) {
        if (kept_ns % steps_ns[i] == 0 && given_ns >= kept_ns &&
            (uint64_t)given_ns - (uint64_t)kept_ns < (uint64_t)steps_ns[i])
            return true;
    }
    return false;
}

bool resize_state_is_finished(const char *path, const FileEntry *source)
{
    struct stat status;
    /* A file system may lose the bytes of a file that it had not written at a power cut, and keep the name. */
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
           is_same_time(file_time_ns(status.st_mtim), source->modified_ns);
}

/* Fails if an output's name leads to its own source: by a link inside the destination, or a second mount of the source. */
static FshStatus refuse_own_source(const char *source, const ResizeItem *item, const char *target,
                                   FshError *error)
{
    char path[PATH_MAX];
    struct stat from, to;
    FshStatus status = file_join(path, sizeof path, source, item->source->path, error);
    if (status || stat(path, &from) || stat(target, &to) || from.st_dev != to.st_dev ||
        from.st_ino != to.st_ino)
        return status;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: is the same file as %s; take another destination", target,
                         path);
}

/* Calls file_remove_stale_temporaries once for each folder that outputs lie in, and unmarks what looks finished. */
static FshStatus clear_leftovers(const char *destination, const char *source, const ResizePlan *plan,
                                 bool resume, FshError *error)
{
    char path[PATH_MAX], folder[PATH_MAX] = "";
    for (uint64_t i = 0; i < plan->count; i++) {
        FshStatus status = file_join(path, sizeof path, destination, plan->items[i].target, error);
        if (status)
            return status;
        if (!resume &&
            resize_state_is_finished(path, plan->items[i].source)) { /* its own source would look so */
            status = refuse_own_source(source, &plan->items[i], path, error);
            if (!status && utimensat(AT_FDCWD, path, NULL, 0))
                status = fsh_error_system(error, errno, "%s: cannot be replaced", path);
            if (status)
                return status;
        }
        size_t length = (size_t)(strrchr(path, '/') - path);
        if (strncmp(folder, path, length) != 0 || folder[length] != '\0') {
            memcpy(folder, path, length);
            folder[length] = '\0';
            (void)file_remove_stale_temporaries(folder);
        }
    }
    return FSH_OK;
}

FshStatus resize_state_begin(const char *destination, const char *source, const ResizeRecipe *recipe,
                             const ResizePlan *plan, bool resume, FshError *error)
{
    bool empty = true;
    FshStatus status = file_make_folders(destination, error);
    if (!status) {
        (void)file_remove_stale_temporaries(destination);
        status = is_folder_empty(destination, &empty, error);
    }
    if (!status && !empty)
        status = clear_leftovers(destination, source, plan, resume, error);
    if (!status)
        status = write_state(destination, source, recipe, false, error);
    return status;
}

FshStatus resize_state_finish(const char *destination, const char *source, const ResizeRecipe *recipe,
                              FshError *error)
{
    int descriptor = open(destination, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot open", destination);
    FshStatus status = FSH_OK;
    if (syncfs(descriptor))
        status = fsh_error_system(error, errno, "%s: cannot write to disk", destination);
    (void)close(descriptor);
    return status ? status : write_state(destination, source, recipe, true, error);
}
