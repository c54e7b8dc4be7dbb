#include "tools/resize/resize_state.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/path.h"
#include "common/folder_list.h"
#include "tools/resize/resize_state_internal.h"

#define LEDGER_NAME "outputs" LEDGER_ENDING

/* ---- where things lie ---- */

bool state_has_ending(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length > ending_length && strcmp(name + length - ending_length, ending) == 0;
}

bool resize_state_is_tar(const char *destination)
{
    return state_has_ending(destination, ".tar");
}

FshStatus resize_state_part_name(const char *destination, Part part, char name[PATH_MAX], FshError *error)
{
    char suffix[64] = "";
    const bool has_own = part.count && resize_state_is_tar(destination);
    if (has_own)
        (void)snprintf(suffix, sizeof suffix, "-%u-of-%u.tar", part.index, part.count);
    size_t kept = strlen(destination) - (has_own ? strlen(".tar") : 0);
    if (kept + strlen(suffix) >= PATH_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the path is too long", destination);
    (void)snprintf(name, PATH_MAX, "%.*s%s", (int)kept, destination, suffix);
    return FSH_OK;
}

FshStatus resize_state_place(ResizeState *state, const char *destination, FshError *error)
{
    state->is_tar = resize_state_is_tar(destination);
    if (!state->is_tar)
        return file_join(state->folder, sizeof state->folder, destination, RESIZE_STATE_FOLDER, error);
    const char *slash = strrchr(destination, '/');
    size_t before = slash ? (size_t)(slash + 1 - destination) : 0;
    int written = snprintf(state->folder, sizeof state->folder, "%.*s.%s.fresize", (int)before, destination,
                           destination + before);
    if (written < 0 || (size_t)written >= sizeof state->folder)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the path is too long", destination);
    return FSH_OK;
}

bool resize_state_leads_to_source(const ResizeState *state, const char *output)
{
    char folder[PATH_MAX], resolved[PATH_MAX];
    const char *slash = strrchr(output, '/');
    (void)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - output) : 1, slash ? output : ".");
    return *state->source && !recipe_resolve(slash == output ? "/" : folder, resolved, NULL) &&
           path_lies_in(resolved, state->source);
}

/* ---- locks and ledgers ---- */

/* Writes to path where "lock", or "part-2-of-4" with the ending, lies. */
static FshStatus state_path(const ResizeState *state, Part part, const char *ending, char path[PATH_MAX],
                            FshError *error)
{
    char name[64];
    (void)snprintf(name, sizeof name, "part-%u-of-%u%s", part.index, part.count, ending);
    return file_join(path, PATH_MAX, state->folder, part.count ? name : ending + 1, error);
}

/* Takes a lock; *descriptor_ret holds it. Where read_only, a lock that nobody made is nobody's. */
static FshStatus take_lock(const char *path, int how, bool read_only, const char *destination,
                           int *descriptor_ret, FshError *error)
{
    *descriptor_ret = open(path, read_only ? O_RDONLY | O_CLOEXEC : O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*descriptor_ret < 0)
        return read_only ? FSH_OK : fsh_error_system(error, errno, "%s: cannot open", path);
    if (flock(*descriptor_ret, how | LOCK_NB) && errno == EWOULDBLOCK)
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: another fresize is writing it; wait for it, or stop it", destination);
    return FSH_OK; /* a file system without locks is no reason to stop */
}

static FshStatus take_locks(ResizeState *state, const ResizeOptions *options, bool read_only, FshError *error)
{
    static const Part whole = {0, 0};
    char path[PATH_MAX];
    FshStatus status = state_path(state, whole, ".lock", path, error);
    if (!status)
        status = take_lock(path, options->part.count ? LOCK_SH : LOCK_EX, read_only, options->destination,
                           &state->locks[0], error);
    if (status || !options->part.count)
        return status;
    status = state_path(state, options->part, ".lock", path, error);
    return status ? status
                  : take_lock(path, LOCK_EX, read_only, options->destination, &state->locks[1], error);
}

static bool is_from_earlier_run(const char *name)
{
    return state_has_ending(name, LEDGER_ENDING) || state_has_ending(name, OLD_LEDGER_ENDING) ||
           state_has_ending(name, ".json") || state_has_ending(name, ".tar");
}

static bool is_of_part(const char *name)
{
    return strncmp(name, "part-", 5) == 0;
}

static FshStatus remove_names(const ResizeState *state, bool (*is_chosen)(const char *name), FshError *error)
{
    DIR *folder = NULL;
    FshStatus status = folder_open(state->folder, &folder, error);
    for (const struct dirent *entry = folder_next(folder, state->folder, &status, error); entry;
         entry = folder_next(folder, state->folder, &status, error)) {
        if (is_chosen(entry->d_name) && unlinkat(dirfd(folder), entry->d_name, 0) && errno != ENOENT)
            status = fsh_error_system(error, errno, "%s/%s: cannot remove", state->folder, entry->d_name);
    }
    folder_close(folder);
    return status;
}

/* Removes, for --force, what earlier runs noted. A part removes only its own files. */
static FshStatus forget(const ResizeState *state, Part part, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = FSH_OK;
    static const char *const endings[] = {LEDGER_ENDING, OLD_LEDGER_ENDING, ".json"};
    if (part.count) {
        for (size_t i = 0; i < sizeof endings / sizeof endings[0] && !status; i++) {
            status = state_path(state, part, endings[i], path, error);
            if (!status && unlink(path) && errno != ENOENT)
                status = fsh_error_system(error, errno, "%s: cannot remove", path);
        }
        return status;
    }
    return remove_names(state, is_from_earlier_run, error);
}

/* Removes the ledgers of parts, which the whole has taken over. */
static FshStatus forget_parts(const ResizeState *state, FshError *error)
{
    return remove_names(state, is_of_part, error);
}

static FshStatus open_other(ResizeState *state, const char *path, FshError *error)
{
    Ledger **grown = realloc(state->others, (state->others_count + 1) * sizeof(Ledger *));
    if (!grown)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for what is done already");
    state->others = grown;
    state->others[state->others_count] = NULL;
    FshStatus status = ledger_open(&state->others[state->others_count], path, state->recipe, true, error);
    state->others_count += !status;
    return status;
}

/* Opens, to be read, the ledgers of all parts. */
static FshStatus open_parts(ResizeState *state, FshError *error)
{
    char path[PATH_MAX];
    DIR *folder = NULL;
    FshStatus status = folder_open(state->folder, &folder, error);
    for (const struct dirent *entry = folder_next(folder, state->folder, &status, error); entry;
         entry = folder_next(folder, state->folder, &status, error)) {
        if (!is_of_part(entry->d_name) || !state_has_ending(entry->d_name, LEDGER_ENDING))
            continue;
        status = file_join(path, sizeof path, state->folder, entry->d_name, error);
        if (!status)
            status = open_other(state, path, error);
    }
    folder_close(folder);
    return status;
}

/* Opens, to be read, outputs.ledger or that of a part, if it is there. */
static FshStatus open_one(ResizeState *state, Part part, FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = part.count ? state_path(state, part, LEDGER_ENDING, path, error)
                                  : file_join(path, sizeof path, state->folder, LEDGER_NAME, error);
    return status || !file_exists(path) ? status : open_other(state, path, error);
}

/* Opens all ledgers that are to be read, later rows first: parts begin when the whole has ended, which takes
 * over what they did. */
static FshStatus open_to_read(ResizeState *state, Part part, FshError *error)
{
    static const Part whole = {0, 0};
    FshStatus status = part.count ? open_one(state, part, error) : open_parts(state, error);
    return status || (part.count && state->is_tar) ? status : open_one(state, whole, error);
}

static void close_others(ResizeState *state)
{
    for (size_t i = 0; i < state->others_count; i++)
        ledger_close(&state->others[i]);
    free(state->others);
    state->others = NULL;
    state->others_count = 0;
}

static FshStatus adopt_row(const char *target, const char *source, const LedgerRow *row, void *context,
                           FshError *error)
{
    Ledger *ledger = context;
    FshStatus status = ledger_add(ledger, target, source, row, error);
    return status ? status : ledger_is_due(ledger) ? ledger_commit(ledger, 0, error) : FSH_OK;
}

/* Takes over, for the whole, what parts have done since. */
static FshStatus adopt_parts(ResizeState *state, FshError *error)
{
    FshStatus status = open_parts(state, error);
    for (size_t i = 0; i < state->others_count && !status; i++)
        status = ledger_each(state->others[i], adopt_row, state->ledger, error);
    if (!status && state->others_count)
        status = ledger_commit(state->ledger, 0, error);
    close_others(state);
    return status ? status : forget_parts(state, error);
}

static FshStatus open_ledgers(ResizeState *state, Part part, FshError *error)
{
    static const Part whole = {0, 0};
    char path[PATH_MAX];
    FshStatus status = part.count ? state_path(state, part, LEDGER_ENDING, path, error)
                                  : file_join(path, sizeof path, state->folder, LEDGER_NAME, error);
    if (!status)
        status = ledger_open(&state->ledger, path, state->recipe, false, error);
    if (status || state->is_tar)
        return status;
    return part.count ? open_one(state, whole, error) : adopt_parts(state, error);
}

/* Refuses a finished tar of another length than the one that was written: its end marker is two blocks of
 * zeros after the last entry. */
static FshStatus compare_length(const ResizeState *state, const ResizeOptions *options, FshError *error)
{
    enum { END_MARKER_BYTES = 2 * 512 };
    struct stat tar;
    const uint64_t offset = state->others_count ? ledger_tar_offset(state->others[0]) : 0;
    FshStatus status = FSH_OK;
    if (stat(options->destination, &tar) || (uint64_t)tar.st_size != offset + END_MARKER_BYTES)
        status =
            fsh_error_set(error, FSH_ERR_EXISTS,
                          "%s: is not the tar that fresize wrote: another length; --force writes it anew",
                          options->destination);
    return status;
}

/* ---- beginning and end ---- */

FshStatus resize_state_begin(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    FshStatus status = file_make_folders(state->folder, error);
    if (!status)
        status = take_locks(state, options, false, error);
    if (!status)
        status = state_look(state, options, error);
    if (!status && state->finished) {
        status = open_to_read(state, options->part, error);
        return status ? status : compare_length(state, options, error);
    }
    if (!status)
        (void)file_remove_stale_temporaries(state->folder);
    if (!status && !state->resume)
        status = forget(state, options->part, error);
    if (!status) /* anew in any case: a finished destination is no longer known to be complete */
        status = recipe_write(state, options, false, error);
    return status ? status : open_ledgers(state, options->part, error);
}

FshStatus resize_state_look(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    FshStatus status = take_locks(state, options, true, error);
    if (!status && state->resume)
        status = open_to_read(state, options->part, error);
    return status || !state->finished ? status : compare_length(state, options, error);
}

FshStatus resize_state_open(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    *state = (ResizeState){.locks = {-1, -1}, .resume = true};
    json_t *recipe = NULL;
    FshStatus status = resize_state_place(state, options->destination, error);
    if (!status)
        status = recipe_hash(state, options, error);
    if (!status)
        status = recipe_read_json(state, RECIPE_NAME, &recipe, error);
    if (!status && !recipe)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: fresize has not made this (there is no %s/" RECIPE_NAME ")",
                               options->destination, state->folder);
    if (!status)
        status = recipe_compare(state, recipe, options, false, error);
    json_decref(recipe);
    if (!status)
        status = take_locks(state, options, true, error);
    return status ? status : open_to_read(state, options->part, error);
}

static FshStatus write_part(const ResizeState *state, const char *name, uint64_t images_count,
                            uint64_t images_bytes, FshError *error)
{
    json_t *object =
        json_pack("{s:I, s:I}", "images", (json_int_t)images_count, "bytes", (json_int_t)images_bytes);
    if (!object)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for %s", name);
    return recipe_write_json(state, name, object, error);
}

FshStatus resize_state_note_part(const ResizeState *state, Part part, uint64_t images_count,
                                 uint64_t images_bytes, FshError *error)
{
    char name[64], path[PATH_MAX];
    (void)snprintf(name, sizeof name, "part-%u-of-%u.json", part.index, part.count);
    FshStatus status = write_part(state, name, images_count, images_bytes, error);
    DIR *folder = NULL;
    if (!status)
        status = folder_open(state->folder, &folder, error);
    for (const struct dirent *entry = folder_next(folder, state->folder, &status, error); entry;
         entry = folder_next(folder, state->folder, &status, error)) {
        unsigned index = 0, count = 0;
        json_t *theirs = NULL;
        if (!state_has_ending(entry->d_name, ".json") || strcmp(entry->d_name, name) == 0 ||
            sscanf(entry->d_name, "part-%u-of-%u.json", &index, &count) != 2)
            continue;
        status = recipe_read_json(state, entry->d_name, &theirs, error);
        uint64_t their_count = (uint64_t)json_integer_value(json_object_get(theirs, "images"));
        uint64_t their_bytes = (uint64_t)json_integer_value(json_object_get(theirs, "bytes"));
        if (!status && theirs && count != part.count)
            status =
                fsh_error_set(error, FSH_ERR_MISMATCH,
                              "%s: part %u was made of %u parts, this one is of %u; take as many, or run "
                              "without --part, which does what is missing",
                              state->folder, index, count, part.count);
        else if (!status && theirs && (their_count != images_count || their_bytes != images_bytes))
            status = fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s: the source has changed since part %u/%u began: %llu files of %llu bytes then, "
                "%llu of %llu now; let the parts that run come to their end, then run without "
                "--part, which does what is missing",
                state->folder, index, count, (unsigned long long)their_count, (unsigned long long)their_bytes,
                (unsigned long long)images_count, (unsigned long long)images_bytes);
        json_decref(theirs);
    }
    folder_close(folder);
    if (status && !file_join(path, sizeof path, state->folder, name, NULL))
        (void)unlink(path); /* it has done nothing */
    return status;
}

FshStatus resize_state_find(const ResizeState *state, const char *target, bool *found_ret, LedgerRow *row,
                            char source[PATH_MAX], FshError *error)
{
    *found_ret = false;
    FshStatus status =
        state->ledger ? ledger_find(state->ledger, target, found_ret, row, source, error) : FSH_OK;
    for (size_t i = 0; i < state->others_count && !status && !*found_ret; i++)
        status = ledger_find(state->others[i], target, found_ret, row, source, error);
    return status;
}

FshStatus resize_state_each(const ResizeState *state, LedgerVisit visit, void *context, FshError *error)
{
    FshStatus status = state->ledger ? ledger_each(state->ledger, visit, context, error) : FSH_OK;
    for (size_t i = 0; i < state->others_count && !status; i++)
        status = ledger_each(state->others[i], visit, context, error);
    return status;
}

uint64_t resize_state_count(const ResizeState *state)
{
    uint64_t count = state->ledger ? ledger_count(state->ledger) : 0;
    for (size_t i = 0; i < state->others_count; i++)
        count += ledger_count(state->others[i]);
    return count;
}

bool resize_row_is_current(const LedgerRow *row, uint64_t source_bytes, int64_t source_modified_ns)
{
    return row->source_bytes == source_bytes && row->source_modified_ns == source_modified_ns;
}

FshStatus resize_state_finish(const ResizeState *state, const ResizeOptions *options, FshError *error)
{
    FshStatus status = FSH_OK;
    int descriptor = open(state->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0 || syncfs(descriptor))
        status = fsh_error_system(error, errno, "%s: cannot write to disk", options->destination);
    if (descriptor >= 0)
        (void)close(descriptor);
    if (status || (options->part.count && !state->is_tar)) /* other parts are not known to be done */
        return status;
    status = ledger_settle(state->ledger, error);
    return status ? status : recipe_write(state, options, true, error);
}

void resize_state_undo(ResizeState *state, const char *destination)
{
    const bool is_folder = !state->is_tar;
    static const char *const names[] = {RECIPE_NAME, LEDGER_NAME, "lock", RESIZE_TAR_NAME};
    char path[PATH_MAX];
    resize_state_close(state);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!file_join(path, sizeof path, state->folder, names[i], NULL))
            (void)unlink(path);
    }
    if (rmdir(state->folder) == 0 && is_folder)
        (void)rmdir(destination);
}

void resize_state_close(ResizeState *state)
{
    ledger_close(&state->ledger);
    close_others(state);
    for (size_t i = 0; i < 2 && *state->folder; i++) {
        if (state->locks[i] >= 0)
            (void)close(state->locks[i]);
        state->locks[i] = -1;
    }
}
