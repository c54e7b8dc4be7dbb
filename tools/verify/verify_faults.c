#include "tools/verify/verify_faults.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/verify/verify_report.h"

static FshStatus reserve(Thumbs *thumbs, size_t count, const VerifyReport *report, FshError *error)
{
    thumbs->items = calloc(count + 1, sizeof *thumbs->items);
    return thumbs->items ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", report->path);
}

/* ---- suspicious pairs ---- */

static FshStatus make_suspects(const VerifyReport *report, const FshDataset *dataset,
                               const ThumbOptions *options, Thumbs *thumbs, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    FshStatus status = reserve(thumbs, options->count, report, error);
    for (size_t i = 0; i < report->suspect_count && thumbs->count < options->count && !status; i++) {
        const VerifySuspect *suspect = &report->suspects[i];
        const FshSplit *split = suspect->split < manifest->split_count
                                    ? fsh_split(dataset, manifest->splits[suspect->split].name)
                                    : NULL;
        if (!split || suspect->index >= split->sample_count)
            continue;
        Thumb *thumb = &thumbs->items[thumbs->count++];
        *thumb = (Thumb){.split = split, .index = suspect->index};
        (void)snprintf(thumb->note, sizeof thumb->note, "likeness %.3f", suspect->likeness);
    }
    return status ? status : thumbs_fill(thumbs, options, report->path, error);
}

/* ---- problems ---- */

/* Finds a record by its file's name and its number there. A file that was opened by itself need not be called
 * so. */
static bool find_record(const FshDataset *dataset, const VerifyProblem *problem, Thumb *thumb)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    const bool alone = manifest->split_count == 1 && manifest->splits[0].file_count == 1;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplitInfo *info = &manifest->splits[i];
        uint64_t first = 0;
        for (size_t f = 0; f < info->file_count; f++) {
            const uint64_t count = alone ? info->sample_count : info->files[f].sample_count;
            if ((alone || strcmp(info->files[f].name, problem->file) == 0) &&
                (uint64_t)problem->record < count) {
                thumb->split = fsh_split(dataset, info->name);
                thumb->index = first + (uint64_t)problem->record;
                return thumb->split && thumb->index < thumb->split->sample_count;
            }
            first += info->files[f].sample_count;
        }
    }
    return false;
}

/* Returns the file of a problem, opened by itself; NULL where it cannot be. */
static const FshDataset *open_file(Faults *faults, const VerifyReport *report, const char *file)
{
    char path[PATH_MAX];
    const char *slash = strrchr(report->path, '/');
    const int folder_bytes = file_is_folder(report->path) ? (int)strlen(report->path)
                             : slash                      ? (int)(slash - report->path)
                                                          : 0;
    if (snprintf(path, sizeof path, "%.*s%s%s", folder_bytes, report->path, folder_bytes ? "/" : "", file) >=
        (int)sizeof path)
        return NULL;
    for (size_t i = 0; i < faults->dataset_count; i++)
        if (strcmp(fsh_path(faults->datasets[i]), path) == 0)
            return faults->datasets[i];
    FshDataset *dataset = NULL;
    if (fsh_open(&dataset, path, NULL) != FSH_OK)
        return NULL;
    faults->datasets[faults->dataset_count++] = dataset;
    return dataset;
}

/* Returns whether a problem has a picture of its own: the first problem of each record has one. suspects:
 * suspicious pairs are shown elsewhere, and have none here. */
static bool is_shown(const VerifyReport *report, size_t index, bool suspects)
{
    const VerifyProblem *problem = &report->problems[index], *before = problem - 1;
    if (problem->record < 0 || (suspects && strncmp(problem->reason, "suspicious: ", 12) == 0))
        return false;
    return index == 0 || before->record != problem->record || strcmp(before->file, problem->file) != 0;
}

static FshStatus make_problems(const VerifyReport *report, const FshDataset *dataset,
                               const ThumbOptions *options, Faults *faults, FshError *error)
{
    Thumbs *thumbs = &faults->problems;
    VerifyListed listed = {0};
    FshStatus status = reserve(thumbs, options->count, report, error);
    faults->datasets = calloc(options->count + 1, sizeof(FshDataset *));
    if (!status && !faults->datasets)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", report->path);
    for (size_t i = 0; i < report->problem_count && thumbs->count < options->count && !status; i++) {
        const VerifyProblem *problem = &report->problems[i];
        if (!is_shown(report, i, faults->suspects.count > 0) ||
            !verify_is_listed(report, problem, SIZE_MAX, &listed))
            continue;
        const FshDataset *own = dataset ? dataset : open_file(faults, report, problem->file);
        Thumb *thumb = &thumbs->items[thumbs->count];
        if (!own || !find_record(own, problem, thumb))
            continue;
        (void)snprintf(thumb->note, sizeof thumb->note, "%s", problem->reason);
        thumbs->count++;
    }
    return status ? status : thumbs_fill(thumbs, options, report->path, error);
}

FshStatus faults_make(const VerifyReport *report, const FshDataset *dataset, const ThumbOptions *options,
                      Faults *faults, FshError *error)
{
    *faults = (Faults){0};
    FshStatus status = dataset && report->suspect_count
                           ? make_suspects(report, dataset, options, &faults->suspects, error)
                           : FSH_OK;
    return status ? status : make_problems(report, dataset, options, faults, error);
}

void faults_free(Faults *faults)
{
    thumbs_free(&faults->suspects);
    thumbs_free(&faults->problems);
    for (size_t i = 0; i < faults->dataset_count; i++)
        fsh_close(&faults->datasets[i]);
    free(faults->datasets);
    *faults = (Faults){0};
}
