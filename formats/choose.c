/* Some samples and some classes of an open dataset, as if there were no others. */
#include <stdlib.h>
#include <string.h>

#include "formats/dataset.h"
#include "formats/names.h"

void fsh_chosen_free(FshDataset *dataset)
{
    while (dataset->chosen) {
        ChosenSplit *chosen = dataset->chosen;
        dataset->chosen = chosen->next;
        free(chosen->info.class_counts);
        free(chosen->chosen);
        free(chosen);
    }
    free(dataset->label_places);
    dataset->label_places = NULL;
}

/* ---- samples ---- */

static bool are_ascending(const uint64_t *chosen, uint64_t count, uint64_t end)
{
    for (uint64_t i = 0; i < count; i++)
        if (chosen[i] >= end || (i && chosen[i] <= chosen[i - 1]))
            return false;
    return true;
}

static FshStatus count_labels(const FshDataset *dataset, ChosenSplit *made, FshError *error)
{
    const size_t classes = dataset->manifest.class_count;
    if (!classes)
        return FSH_OK;
    made->info.class_counts = calloc(classes, sizeof *made->info.class_counts);
    if (!made->info.class_counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (uint64_t i = 0; i < made->split.sample_count; i++) {
        const int64_t label = fsh_sample_label(&made->split, i);
        if (label >= 0)
            made->info.class_counts[label]++;
    }
    return FSH_OK;
}

FshStatus fsh_split_choose(FshDataset *dataset, const FshSplit *split, const uint64_t *chosen, uint64_t count,
                           const FshSplit **split_ret, FshError *error)
{
    *split_ret = NULL;
    if (split->files->chosen || !are_ascending(chosen, count, split->sample_count))
        return fsh_error_set(error, FSH_ERR_USAGE, "the chosen samples are not those of a split, in order");
    ChosenSplit *made = calloc(1, sizeof *made);
    uint64_t *own = calloc(count + 1, sizeof *own);
    if (!made || !own) {
        free(made);
        free(own);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %llu chosen samples",
                             (unsigned long long)count);
    }
    memcpy(own, chosen, count * sizeof *own);
    *made = (ChosenSplit){.split = *split,
                          .info = *split->info,
                          .files = *split->files,
                          .chosen = own,
                          .next = dataset->chosen};
    dataset->chosen = made;
    made->files.chosen = own;
    made->info.sample_count = made->split.sample_count = count;
    made->info.class_counts = NULL;
    made->split.info = &made->info;
    made->split.files = &made->files;
    FshStatus status = count_labels(dataset, made, error);
    if (!status)
        *split_ret = &made->split;
    return status;
}

/* ---- classes ---- */

/* Fills places, of `stored` entries, with what each class is now. */
static FshStatus place_classes(const size_t *classes, size_t count, int32_t *places, size_t stored,
                               FshError *error)
{
    for (size_t i = 0; i < stored; i++)
        places[i] = FSH_NO_LABEL;
    for (size_t i = 0; i < count; i++) {
        if (classes[i] >= stored || places[classes[i]] != FSH_NO_LABEL)
            return fsh_error_set(error, FSH_ERR_USAGE, "class %zu of %zu is not there, or comes twice",
                                 classes[i], stored);
        places[classes[i]] = (int32_t)i;
    }
    return FSH_OK;
}

/* Puts the texts of the classes in the place of those of all, in as long a list, so that a failure before all
 * lists are replaced leaves none too short. Does nothing where there are none. */
static FshStatus pick_texts(char ***texts, size_t stored, const size_t *classes, size_t count,
                            FshError *error)
{
    char **picked = *texts ? calloc(stored, sizeof *picked) : NULL;
    bool whole = !*texts || picked;
    for (size_t i = 0; picked && i < count; i++)
        whole &= (picked[i] = strdup((*texts)[classes[i]])) != NULL;
    if (!whole) {
        fsh_names_free(picked, count);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the names of %zu classes", count);
    }
    if (picked) {
        fsh_names_free(*texts, stored);
        *texts = picked;
    }
    return FSH_OK;
}

/* Does so with the counts of the classes. */
static FshStatus pick_counts(FshSplitInfo *info, size_t stored, const size_t *classes, size_t count,
                             FshError *error)
{
    uint64_t *picked = info->class_counts ? calloc(stored, sizeof *picked) : NULL;
    if (info->class_counts && !picked)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the counts of %zu classes", count);
    for (size_t i = 0; picked && i < count; i++)
        picked[i] = info->class_counts[classes[i]];
    free(info->class_counts);
    info->class_counts = picked;
    return FSH_OK;
}

FshStatus fsh_set_classes(FshDataset *dataset, const size_t *classes, size_t count, FshError *error)
{
    FshManifest *manifest = &dataset->manifest;
    const size_t stored = manifest->class_count;
    if (!count || dataset->label_places || dataset->chosen)
        return fsh_error_set(error, FSH_ERR_USAGE, "classes are chosen once, before samples");
    dataset->label_places = calloc(stored, sizeof *dataset->label_places);
    if (!dataset->label_places)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu classes", stored);
    FshStatus status = place_classes(classes, count, dataset->label_places, stored, error);
    if (!status)
        status = pick_texts(&manifest->class_names, stored, classes, count, error);
    if (!status)
        status = pick_texts(&manifest->class_display_names, stored, classes, count, error);
    for (size_t i = 0; i < manifest->split_count && !status; i++)
        status = pick_counts(&manifest->splits[i], stored, classes, count, error);
    if (status)
        return status;
    manifest->class_count = count;
    for (size_t i = 0; i < manifest->split_count; i++) {
        dataset->split_files[i].label_places = dataset->label_places;
        dataset->split_files[i].label_count = stored;
    }
    return FSH_OK;
}
