/* resize_state_look.c - may a run write this destination, and does it go on from an earlier one? */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/path.h"
#include "common/folder_list.h"
#include "tools/resize/resize_report.h"
#include "tools/resize/resize_state_internal.h"

/* Looks whether a folder is empty. *empty_ret: it holds no name but the state's, which a run that was killed
 * early left. */
static FshStatus is_folder_empty(const char *path, bool *empty_ret, FshError *error)
{
    *empty_ret = true;
    DIR *folder = opendir(path);
    if (!folder)
        return errno == ENOENT
                   ? FSH_OK
                   : fsh_error_system(error, errno, "%s: cannot be used as the destination", path);
    FshStatus status = FSH_OK;
    for (const struct dirent *entry = folder_next(folder, path, &status, error); entry;
         entry = folder_next(folder, path, &status, error)) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, RESIZE_STATE_FOLDER) != 0)
            *empty_ret = false;
    }
    folder_close(folder);
    return status;
}

static FshStatus refuse_places_in_each_other(ResizeState *state, const ResizeOptions *options,
                                             FshError *error)
{
    char to[PATH_MAX], *from = state->source;
    FshStatus status = recipe_resolve(options->source.path, from, error);
    if (!status)
        status = recipe_resolve(options->destination, to, error);
    if (!status && (path_lies_in(to, from) || path_lies_in(from, to)))
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: source and destination lie in each other; take a destination beside %s",
                               options->destination, options->source.path);
    return status;
}

/* Returns whether `path` was made from `to`, by one run or several: each folder, one above it or a tar has a
 * memory that says what it was made from. `path` becomes the one of them that `to` was the source of. */
static bool find_made_from(const char *to, char path[PATH_MAX], int steps)
{
    bool found = false;
    while (path[0] && !found) {
        ResizeState theirs = {.locks = {-1, -1}};
        json_t *recipe = NULL;
        /* A damaged one knows nothing that would hold this run up. */
        if (!resize_state_place(&theirs, path, NULL) &&
            !recipe_read_json(&theirs, RECIPE_NAME, &recipe, NULL)) {
            const char *original = json_string_value(json_object_get(recipe, "source"));
            char source[PATH_MAX];
            found = original && path_lies_in(to, original);
            (void)snprintf(source, sizeof source, "%s", original && original[0] == '/' ? original : "");
            if (!found && steps > 1 && find_made_from(to, source, steps - 1)) {
                memcpy(path, source, sizeof source);
                found = true;
            }
        }
        json_decref(recipe);
        if (!found)
            *strrchr(path, '/') = '\0';
    }
    return found;
}

/* Refuses to write into what the source was made from, forced or not: the swapped names of a run would have
 * its originals replaced by what came of them. */
static FshStatus refuse_originals(const ResizeState *state, const ResizeOptions *options, FshError *error)
{
    enum { STEPS_MOST = 8 }; /* more have come from a circle */
    char made[PATH_MAX], to[PATH_MAX];
    FshStatus status = recipe_resolve(options->destination, to, error);
    (void)snprintf(made, sizeof made, "%s", state->source);
    if (status || !find_made_from(to, made, STEPS_MOST))
        return status;
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "%s: %s was made from it, and its images would replace the originals; SRC comes "
                         "first, then DST",
                         options->destination, made);
}

bool resize_state_is_unfinished(const char *path)
{
    ResizeState state = {.locks = {-1, -1}};
    json_t *recipe = NULL;
    const bool known =
        !resize_state_place(&state, path, NULL) && !recipe_read_json(&state, RECIPE_NAME, &recipe, NULL);
    const bool unfinished = known && recipe && !json_is_true(json_object_get(recipe, "complete"));
    json_decref(recipe);
    return unfinished;
}

FshStatus resize_state_refuse_report(const ResizeOptions *options, FshError *error)
{
    ResizeState state = {.locks = {-1, -1}};
    const char *const places[] = {options->destination, state.folder};
    char report[PATH_MAX], place[PATH_MAX];
    if (!options->report || resize_report_is_stdout(options->report))
        return FSH_OK;
    FshStatus status = resize_state_place(&state, options->destination, error);
    if (!status)
        status = recipe_resolve(options->report, report, error);
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !status; i++) {
        status = recipe_resolve(places[i], place, error);
        if (!status && path_lies_in(report, place))
            status = fsh_error_set(
                error, FSH_ERR_USAGE,
                "--report: %s lies in %s, which is to hold images and nothing else; choose a name outside",
                options->report, places[i]);
    }
    return status;
}

/* Refuses a destination without a state of ours unless it is empty, or a tar that does not exist. */
static FshStatus refuse_foreign(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    const char *destination = options->destination;
    FshStatus status = FSH_OK;
    if (state->is_tar) {
        state->fresh = true;
        return FSH_OK;
    }
    status = is_folder_empty(destination, &state->fresh, error);
    if (!status && !state->fresh && !options->force)
        status = fsh_error_set(
            error, FSH_ERR_EXISTS,
            "%s: is not empty, and fresize has not made what it holds; take another destination",
            destination);
    return status;
}

/* Refuses a state that is not files of ours in a folder of ours: a link that somebody put there would have
 * others truncated or removed. */
static FshStatus refuse_links(const ResizeState *state, FshError *error)
{
    struct stat kind;
    FshStatus status = FSH_OK;
    if (lstat(state->folder, &kind))
        return FSH_OK; /* what it is to hold will tell, if it is not that there is none */
    if (!S_ISDIR(kind.st_mode))
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: is no folder, and fresize keeps its state there; remove it", state->folder);
    DIR *folder = NULL;
    status = folder_open(state->folder, &folder, error);
    for (const struct dirent *entry = folder_next(folder, state->folder, &status, error); entry;
         entry = folder_next(folder, state->folder, &status, error)) {
        if (entry->d_name[0] != '.' && !fstatat(dirfd(folder), entry->d_name, &kind, AT_SYMLINK_NOFOLLOW) &&
            !S_ISREG(kind.st_mode))
            status = fsh_error_set(error, FSH_ERR_EXISTS, "%s/%s: is not a file that fresize made; remove it",
                                   state->folder, entry->d_name);
    }
    folder_close(folder);
    return status;
}

/* Looks for a tar that has its name, one that is under way, both, or neither: what the recipe says of a tar
 * holds only as far as it is there. */
static FshStatus look_at_tar(ResizeState *state, const ResizeOptions *options, const json_t *recipe,
                             FshError *error)
{
    char path[PATH_MAX];
    FshStatus status = file_join(path, sizeof path, state->folder, RESIZE_TAR_NAME, error);
    if (status || options->force)
        return status;
    const bool is_there = file_exists(options->destination), under_way = file_exists(path);
    state->finished = is_there && !under_way && json_is_true(json_object_get(recipe, "complete"));
    state->resume = recipe && (state->finished || under_way);
    if (is_there && !recipe)
        return fsh_error_set(error, FSH_ERR_EXISTS,
                             "%s: exists already, and fresize has not made it; take another name",
                             options->destination);
    if (is_there && !state->finished)
        return fsh_error_set(
            error, FSH_ERR_EXISTS,
            "%s: exists already, and another is under way in its place; --force writes it anew",
            options->destination);
    return FSH_OK;
}

/* Returns whether the run that left this has made nothing that is known: a slip of the hand must not bind the
 * next run. Parts may run at this moment. */
static bool has_made_nothing(const ResizeState *state, const ResizeOptions *options)
{
    char path[PATH_MAX];
    bool empty = options->part.count == 0;
    if (empty && !state->is_tar)
        empty = is_folder_empty(options->destination, &empty, NULL) == FSH_OK && empty;
    DIR *folder = NULL;
    FshStatus status = empty ? folder_open(state->folder, &folder, NULL) : FSH_OK;
    for (const struct dirent *entry = folder_next(folder, state->folder, &status, NULL); entry && empty;
         entry = folder_next(folder, state->folder, &status, NULL)) {
        if (state_has_ending(entry->d_name, LEDGER_ENDING))
            empty = file_join(path, sizeof path, state->folder, entry->d_name, NULL) == FSH_OK &&
                    ledger_is_blank(path);
    }
    folder_close(folder);
    return empty && !status;
}

/* Refuses the lists of earlier versions, LMDBs that are not read any more: what they say is done would be
 * done again. */
static FshStatus refuse_old_ledgers(const ResizeState *state, FshError *error)
{
    bool found = false;
    DIR *folder = NULL;
    FshStatus status = folder_open(state->folder, &folder, error);
    for (const struct dirent *entry = folder_next(folder, state->folder, &status, error); entry && !found;
         entry = folder_next(folder, state->folder, &status, error))
        found = state_has_ending(entry->d_name, OLD_LEDGER_ENDING);
    folder_close(folder);
    return found ? fsh_error_set(error, FSH_ERR_EXISTS,
                                 "%s: an older fresize has made this, and its list of outputs is not read "
                                 "any more; --force "
                                 "makes the output anew",
                                 state->folder)
                 : status;
}

FshStatus state_look(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    json_t *recipe = NULL;
    state->fresh = state->resume = state->finished = false;
    FshStatus status = resize_state_place(state, options->destination, error);
    if (!status)
        status = refuse_places_in_each_other(state, options, error);
    if (!status)
        status = refuse_originals(state, options, error);
    if (!status)
        status = refuse_links(state, error);
    if (!status)
        status = recipe_hash(state, options, error);
    if (!status && state->is_tar && file_is_folder(options->destination))
        status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: is a folder, and a tar is to have this name",
                               options->destination);
    if (!status)
        status = recipe_read_json(state, RECIPE_NAME, &recipe, error);
    if (status == FSH_ERR_CORRUPT && options->force) /* what it said does not matter any more */
        status = FSH_OK;
    if (status)
        return status;
    state->resume = recipe && !options->force;
    if (state->is_tar)
        status = look_at_tar(state, options, recipe, error);
    if (!status && state->resume)
        status = refuse_old_ledgers(state, error);
    if (!status && state->resume) {
        status = recipe_compare(state, recipe, options, true, error);
        if (status == FSH_ERR_EXISTS && !state->finished && has_made_nothing(state, options)) {
            state->resume = false;
            status = FSH_OK;
        }
    }
    if (!status && !state->resume)
        status = refuse_foreign(state, options, error);
    json_decref(recipe);
    return status;
}

FshStatus resize_state_check(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    *state = (ResizeState){.locks = {-1, -1}};
    return state_look(state, options, error);
}
