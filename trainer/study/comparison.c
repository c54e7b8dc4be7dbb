#include "trainer/study/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/folder_list.h"
#include "common/text.h"

enum { LABEL_OPTIONS_MAX = 4 }; /* a label of more options says less than the folder's name */

/* ---- runs ---- */

static FshStatus add_run(Comparison *comparison, const char *folder, FshError *error)
{
    StudyRun *longer = realloc(comparison->runs, (comparison->run_count + 1) * sizeof *longer);
    if (!longer)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    comparison->runs = longer;
    FshStatus status = study_run_read(&longer[comparison->run_count], folder, error);
    comparison->run_count += !status;
    return status;
}

/* Folders of runs that lie in one folder. */
typedef struct Folders {
    char **paths; /* [count], each owned, as the array */
    size_t count;
} Folders;

static void free_folders(Folders *folders)
{
    for (size_t i = 0; i < folders->count; i++)
        free(folders->paths[i]);
    free(folders->paths);
}

static FshStatus add_folder(Folders *folders, const char *path, FshError *error)
{
    char **longer = realloc(folders->paths, (folders->count + 1) * sizeof *longer);
    char *copy = longer ? text_copy(path, strlen(path)) : NULL;
    folders->paths = longer ? longer : folders->paths;
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    folders->paths[folders->count++] = copy;
    return FSH_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static FshStatus list_runs(const char *folder, Folders *folders, FshError *error)
{
    DIR *entries = NULL;
    const struct dirent *entry;
    FshStatus status = folder_open(folder, &entries, error);
    while (!status && entries && (entry = folder_next(entries, folder, &status, error))) {
        char path[PATH_MAX];
        if (entry->d_name[0] != '.' && !file_join(path, sizeof path, folder, entry->d_name, NULL) &&
            study_run_is_there(path))
            status = add_folder(folders, path, error);
    }
    folder_close(entries);
    if (!status && folders->count)
        qsort(folders->paths, folders->count, sizeof *folders->paths, compare_names);
    return status;
}

/* Adds the run of the folder, or those that lie in it. */
static FshStatus add_runs(Comparison *comparison, const char *folder, FshError *error)
{
    Folders folders = {0};
    if (study_run_is_there(folder))
        return add_run(comparison, folder, error);
    FshStatus status = list_runs(folder, &folders, error);
    if (!status && !folders.count)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: holds no run of ftrain (args.json), and no folder of one", folder);
    for (size_t i = 0; i < folders.count && !status; i++)
        status = add_run(comparison, folders.paths[i], error);
    free_folders(&folders);
    return status;
}

/* ---- groups ---- */

double comparison_measure(const StudyRun *run, Measure measure)
{
    const StudyResult *result = &run->result;
    const double values[] = {[MEASURE_BEST] = result->best,
                             [MEASURE_LAST] = result->last,
                             [MEASURE_AVERAGE] = result->average,
                             [MEASURE_LOSS] = result->last_loss,
                             [MEASURE_SECONDS] = result->seconds};
    return values[measure];
}

const char *comparison_unit(const Comparison *comparison)
{
    return comparison->counts_iterations ? "iteration" : "epoch";
}

uint64_t comparison_length(const Comparison *comparison, const StudyRun *run)
{
    return !comparison->counts_iterations ? run->epochs
           : run->counts_iterations       ? run->iterations
                                          : (uint64_t)study_run_iterations_of(run, (double)run->epochs);
}

uint64_t comparison_planned(const Comparison *comparison, const StudyRun *run)
{
    return run->counts_iterations || !comparison->counts_iterations
               ? run->planned
               : (uint64_t)study_run_iterations_of(run, (double)run->planned);
}

double comparison_best_place(const Comparison *comparison, const StudyRun *run)
{
    const StudyResult *result = &run->result;
    return !comparison->counts_iterations ? result->best_epoch
           : run->counts_iterations       ? result->best_iteration
                                          : study_run_iterations_of(run, result->best_epoch + 1);
}

/* Returns whether the comparison is in iterations: a run counts them, and of each other it is known how many
 * an epoch is. */
static bool takes_iterations(const Comparison *comparison)
{
    bool any = false, all = true;
    for (size_t i = 0; i < comparison->run_count; i++) {
        any = any || comparison->runs[i].counts_iterations;
        all = all && (comparison->runs[i].counts_iterations || comparison->runs[i].epoch_iterations > 0);
    }
    return any && all;
}

static bool is_same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_group(const StudyRun *a, const StudyRun *b)
{
    return a->seed != b->seed && is_same_text(a->dataset, b->dataset) && is_same_text(a->choice, b->choice) &&
           json_equal(a->options, b->options);
}

/* Returns the group to which the run belongs; NULL: none yet. A run with a seed that the group has already is
 * another attempt, and a group of its own. */
static StudyGroup *group_of(const Comparison *comparison, const StudyRun *run)
{
    for (size_t g = 0; g < comparison->group_count; g++) {
        StudyGroup *group = &comparison->groups[g];
        bool belongs = true;
        for (size_t i = 0; i < group->count && belongs; i++)
            belongs = same_group(&comparison->runs[group->runs[i]], run);
        if (belongs)
            return group;
    }
    return NULL;
}

static FshStatus make_groups(Comparison *comparison, FshError *error)
{
    comparison->groups = calloc(comparison->run_count + 1, sizeof *comparison->groups);
    for (size_t i = 0; i < comparison->run_count && comparison->groups; i++) {
        StudyGroup *group = group_of(comparison, &comparison->runs[i]);
        if (!group)
            group = &comparison->groups[comparison->group_count++];
        size_t *longer = realloc(group->runs, (group->count + 1) * sizeof *longer);
        if (!longer)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a comparison");
        group->runs = longer;
        group->runs[group->count++] = i;
    }
    return comparison->groups ? FSH_OK
                              : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a comparison");
}

static void measure_groups(Comparison *comparison)
{
    for (size_t g = 0; g < comparison->group_count; g++)
        for (int m = 0; m < MEASURE_COUNT; m++) {
            const StudyGroup *group = &comparison->groups[g];
            double sum = 0, squares = 0;
            size_t count = 0;
            for (size_t i = 0; i < group->count; i++) {
                const double value = comparison_measure(&comparison->runs[group->runs[i]], (Measure)m);
                sum += isfinite(value) ? value : 0;
                count += isfinite(value);
            }
            const double mean = count ? sum / (double)count : NAN;
            for (size_t i = 0; i < group->count; i++) {
                const double value = comparison_measure(&comparison->runs[group->runs[i]], (Measure)m);
                squares += isfinite(value) ? (value - mean) * (value - mean) : 0;
            }
            comparison->groups[g].of[m] =
                (Spread){mean, count > 1 ? sqrt(squares / (double)(count - 1)) : NAN, count};
            comparison->measured[m] = comparison->measured[m] || count > 0;
        }
}

/* Returns whether the first group is better: by its metric and, where that is the same, by its loss. */
static bool is_better(const Comparison *comparison, const StudyGroup *group, const StudyGroup *other)
{
    const double own = group->of[MEASURE_BEST].mean, theirs = other->of[MEASURE_BEST].mean;
    const double own_loss = group->of[MEASURE_LOSS].mean, their_loss = other->of[MEASURE_LOSS].mean;
    if (own == theirs)
        return own_loss < their_loss || (isfinite(own_loss) && !isfinite(their_loss));
    return comparison_task(comparison)->rises ? own > theirs : own < theirs;
}

bool comparison_has_best(const Comparison *comparison)
{
    return comparison->group_count > 1 && !comparison->mixed_tasks && !comparison->mixed_data;
}

bool comparison_is_best(const Comparison *comparison, const StudyGroup *group)
{
    for (size_t g = 0; g < comparison->group_count; g++)
        if (is_better(comparison, &comparison->groups[g], group))
            return false;
    return isfinite(group->of[MEASURE_BEST].mean) && comparison_has_best(comparison);
}

/* ---- what differs ---- */

static const StudyRun *first_run(const Comparison *comparison, size_t group)
{
    return &comparison->runs[comparison->groups[group].runs[0]];
}

/* Returns whether the option has one value in all groups. A run of a version that did not have it is like one
 * that left it unset. */
static bool is_alike(const Comparison *comparison, const char *option)
{
    const json_t *first = json_object_get(first_run(comparison, 0)->options, option);
    for (size_t g = 1; g < comparison->group_count; g++) {
        const json_t *other = json_object_get(first_run(comparison, g)->options, option);
        const bool unset = (!first || json_is_null(first)) && (!other || json_is_null(other));
        if (!unset && !json_equal(first, other))
            return false;
    }
    return true;
}

static bool has_name(const json_t *array, const char *name)
{
    const json_t *item;
    size_t i;
    json_array_foreach((json_t *)array, i, item)
    {
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

static FshStatus find_differing(Comparison *comparison, FshError *error)
{
    bool failed = !(comparison->differing = json_array());
    for (size_t g = 0; g < comparison->group_count && !failed; g++) {
        const char *name;
        json_t *value;
        json_object_foreach(first_run(comparison, g)->options, name, value)
        {
            if (!failed && !is_alike(comparison, name) && !has_name(comparison->differing, name))
                failed = json_array_append_new(comparison->differing, json_string(name));
        }
    }
    for (size_t i = 1; i < comparison->run_count; i++) {
        const StudyRun *run = &comparison->runs[i], *first = comparison->runs;
        comparison->mixed_tasks = comparison->mixed_tasks || run->task != first->task;
        comparison->mixed_data = comparison->mixed_data || !run->dataset || !first->dataset ||
                                 strcmp(run->dataset, first->dataset) != 0 ||
                                 !is_same_text(run->choice, first->choice);
    }
    return failed ? fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a comparison") : FSH_OK;
}

const char *comparison_option_name(const char *name, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "%s", name);
    for (char *at = text; *at; at++)
        *at = *at == '_' ? '-' : *at;
    return text;
}

const char *comparison_value_text(const StudyRun *run, const char *option, char *text, size_t text_bytes)
{
    const json_t *value = json_object_get(run->options, option);
    char *other = NULL;
    if (!value || json_is_null(value))
        (void)snprintf(text, text_bytes, "-");
    else if (json_is_string(value))
        (void)snprintf(text, text_bytes, "%s", json_string_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, text_bytes, "%.6g", json_real_value(value));
    else
        (void)snprintf(text, text_bytes, "%s", (other = json_dumps(value, JSON_ENCODE_ANY)) ? other : "?");
    free(other);
    return text;
}

/* Writes "lr 0.1, weight-decay 0.05"; the folder's name if nothing differs, or too much. */
static void label_group(Comparison *comparison, StudyGroup *group)
{
    const StudyRun *run = &comparison->runs[group->runs[0]];
    const json_t *name;
    char option[64], value[64];
    size_t i, length = 0;
    const size_t count = json_array_size(comparison->differing);
    json_array_foreach(comparison->differing, i, name)
    {
        if (count > LABEL_OPTIONS_MAX || length >= sizeof group->label)
            break;
        length += (size_t)snprintf(group->label + length, sizeof group->label - length, "%s%s %s",
                                   length ? ", " : "",
                                   comparison_option_name(json_string_value(name), option, sizeof option),
                                   comparison_value_text(run, json_string_value(name), value, sizeof value));
    }
    if (length && length < sizeof group->label)
        return;
    comparison->labelled = false;
    /* the name that a sweep gives the first run of a group, without its seed */
    const char *seed = group->count > 1 ? strstr(run->name, ",seed=") : NULL;
    const bool alone = group->count > 1 && strncmp(run->name, "seed=", 5) == 0; /* --seeds without --sweep */
    const int bytes = seed ? (int)(seed - run->name) : COMPARISON_LABEL_BYTES - 1;
    (void)snprintf(group->label, sizeof group->label, "%.*s", bytes, alone ? "all seeds" : run->name);
}

/* Appends the folder's name to labels that are those of another group: a second attempt, other data. */
static void tell_labels_apart(Comparison *comparison)
{
    for (size_t a = 0; a < comparison->group_count; a++)
        for (size_t b = a + 1; b < comparison->group_count; b++) {
            StudyGroup *group = &comparison->groups[b];
            const size_t length = strlen(group->label);
            if (strcmp(comparison->groups[a].label, group->label) == 0)
                (void)snprintf(group->label + length, sizeof group->label - length, " (%s)",
                               first_run(comparison, b)->folder);
        }
}

/* ---- the whole ---- */

FshStatus comparison_open(Comparison **comparison_ret, const char *const *folders, size_t count,
                          FshError *error)
{
    Comparison *comparison = *comparison_ret = calloc(1, sizeof *comparison);
    FshStatus status =
        comparison ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a comparison");
    for (size_t i = 0; i < count && !status; i++)
        status = add_runs(comparison, folders[i], error);
    if (!status)
        status = make_groups(comparison, error);
    if (!status && comparison->group_count)
        status = find_differing(comparison, error);
    if (status) {
        comparison_close(comparison_ret);
        return status;
    }
    measure_groups(comparison);
    comparison->counts_iterations = takes_iterations(comparison);
    comparison->labelled = true;
    for (size_t g = 0; g < comparison->group_count; g++)
        label_group(comparison, &comparison->groups[g]);
    tell_labels_apart(comparison);
    return FSH_OK;
}

void comparison_close(Comparison **comparison_ret)
{
    Comparison *comparison = *comparison_ret;
    if (!comparison)
        return;
    for (size_t g = 0; g < comparison->group_count; g++)
        free(comparison->groups[g].runs);
    for (size_t i = 0; i < comparison->run_count; i++)
        study_run_free(&comparison->runs[i]);
    json_decref(comparison->differing);
    free(comparison->groups);
    free(comparison->runs);
    free(comparison);
    *comparison_ret = NULL;
}
