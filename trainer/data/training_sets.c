#include "trainer/data/training_sets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

static FshStatus out_of_memory(size_t count, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu sets", count);
}

/* ---- splits ---- */

static FshStatus check_split(const FshDataset *member, const char *name, const char *hint, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(member);
    const FshSplit *split = fsh_split(member, name);
    char names[200] = "";
    for (size_t i = 0; i < manifest->split_count; i++)
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                       manifest->splits[i].name);
    if (!split)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: has no split '%s', which every set of a run needs%s; it has: %s",
                             fsh_path(member), name, hint, names);
    if (split->sample_count == 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: split '%s' is empty", fsh_path(member), name);
    return FSH_OK;
}

static bool any_has(FshDataset *const *members, size_t count, const char *name)
{
    bool has = false;
    for (size_t i = 0; i < count; i++)
        has |= fsh_split(members[i], name) != NULL;
    return has;
}

FshStatus training_sets_check_splits(FshDataset *const *members, size_t count, const char *train_split,
                                     const char *evaluation_split, FshError *error)
{
    static const char usual[] = "val", other[] = "test";
    const char *evaluated = evaluation_split                 ? evaluation_split
                            : any_has(members, count, usual) ? usual
                            : any_has(members, count, other) ? other
                                                             : NULL;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const bool trains_alone = train_split && !evaluation_split && !fsh_split(members[i], usual) &&
                                  !fsh_split(members[i], other);
        if (train_split)
            status = check_split(members[i], train_split, " (--train-split)", error);
        if (!status && evaluated && !trains_alone)
            status = check_split(members[i], evaluated, " (--val-split)", error);
    }
    return status;
}

/* ---- names ---- */

/* Copies a path without slashes at its end. */
static char *copy_path(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    return strndup(path, length);
}

FshStatus training_sets_name(TrainingSets *sets, const FshDataset *dataset, FshError *error)
{
    const size_t count = fsh_member_count(dataset);
    char **paths = calloc(count, sizeof *paths);
    bool unique = true, whole = paths != NULL;
    *sets = (TrainingSets){.count = count, .names = calloc(count, sizeof *sets->names)};
    for (size_t i = 0; i < count && whole && sets->names; i++)
        whole = (paths[i] = copy_path(fsh_path(fsh_member(dataset, i)))) != NULL;
    whole &= sets->names != NULL;
    for (size_t i = 0; i < count && whole; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = strrchr(paths[i], '/'), *b = strrchr(paths[k], '/');
            unique &= strcmp(a ? a + 1 : paths[i], b ? b + 1 : paths[k]) != 0;
        }
    for (size_t i = 0; i < count && whole; i++) {
        const char *slash = unique ? strrchr(paths[i], '/') : NULL;
        whole = (sets->names[i] = strdup(slash && slash[1] ? slash + 1 : paths[i])) != NULL;
    }
    for (size_t i = 0; i < count && paths; i++)
        free(paths[i]);
    free(paths);
    return whole ? FSH_OK : out_of_memory(count, error);
}

/* ---- weights ---- */

FshStatus training_sets_weigh(TrainingSets *sets, const double *weights, size_t count, FshError *error)
{
    char names[400] = "";
    bool alike = true;
    for (size_t i = 0; i < sets->count; i++)
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                       sets->names[i]);
    if (count != sets->count)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "--set-weights: %zu weight%s for %zu set%s: %s", count,
                             text_plural(count), sets->count, text_plural(sets->count), names);
    for (size_t i = 0; i < count; i++)
        alike &= weights[i] == 1;
    if (alike)
        return FSH_OK;
    sets->weights = calloc(count, sizeof *sets->weights);
    if (!sets->weights)
        return out_of_memory(count, error);
    memcpy(sets->weights, weights, count * sizeof *weights);
    return FSH_OK;
}

void training_sets_free(TrainingSets *sets)
{
    for (size_t i = 0; i < sets->count && sets->names; i++)
        free(sets->names[i]);
    free(sets->names);
    free(sets->weights);
    *sets = (TrainingSets){0};
}
