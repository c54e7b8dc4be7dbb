#include "tools/pack/pack_repair_manifest.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/pool.h"
#include "common/progress.h"
#include "tools/job/destination.h"
#include "tools/job/stats.h"
#include "tools/pack/pack_measure.h"

enum { OLD_MANIFEST_BYTES_MAX = 1 << 30 };

typedef struct Repair {
    const FshSplit *split;
    bool sums_pixels; /* it is the split whose mean the manifest tells */
    Measurer *threads;
    PixelStatistics statistics;
    RepairResult *result;
    Progress progress;
} Repair;

/* What came of a sample; slots are not cleared between samples. */
typedef struct RepairSample {
    PixelStatistics statistics;
    FshError failure;
    char key[PATH_MAX];
} RepairSample;

static FshStatus work(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    Repair *repair = context;
    RepairSample *own = slot;
    FshSample sample = {0};
    own->statistics = (PixelStatistics){0};
    own->failure.status = FSH_OK;
    FshStatus status = fsh_sample_get(repair->split, item, &sample, &own->failure);
    sample.index = item; /* of one that cannot be told, too */
    (void)snprintf(own->key, sizeof own->key, "%.*s", (int)sample.key_bytes, sample.key ? sample.key : "");
    for (unsigned i = 0; i < sample.field_count && !status; i++)
        status = measure_field(&repair->threads[thread], repair->split, &sample, i, repair->sums_pixels,
                               &own->statistics, &own->failure);
    /* What the disk cannot read says nothing of the images: no mean is made of the others. */
    if (fsh_sample_check_read(repair->split, &sample, &own->failure))
        status = FSH_ERR_SYSTEM;
    return status == FSH_ERR_MEMORY || status == FSH_ERR_SYSTEM
               ? fsh_error_set(error, status, "%s", own->failure.message)
               : FSH_OK;
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    Repair *repair = context;
    const RepairSample *own = slot;
    char where[PATH_MAX];
    progress_add(&repair->progress, 1, 0, own->failure.status != FSH_OK);
    if (own->failure.status == FSH_OK) {
        stats_merge(&repair->statistics, &own->statistics);
        return FSH_OK;
    }
    const char *name = own->key[0] ? own->key : fsh_sample_where(repair->split, item, where, sizeof where);
    return notes_add(&repair->result->undecodable, own->failure.status, name, own->failure.message, error);
}

/* Measures mean and deviation of train or, where there is none, of the first split, and the sizes of all. */
static FshStatus measure(const RepairOptions *options, RepairResult *result, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(result->dataset);
    const char *main_split = fsh_split(result->dataset, "train") ? "train" : manifest->splits[0].name;
    Repair repair = {.threads = calloc((size_t)options->jobs, sizeof *repair.threads), .result = result};
    uint64_t count = 0;
    if (!repair.threads)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->folder);
    for (size_t i = 0; i < manifest->split_count; i++)
        count += manifest->splits[i].sample_count;
    progress_start(&repair.progress, stderr, "measuring", "samples", count, options->quiet);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < manifest->split_count && !status; i++) {
        repair.split = fsh_split(result->dataset, manifest->splits[i].name);
        repair.sums_pixels = strcmp(manifest->splits[i].name, main_split) == 0;
        status = pool_run_ordered(options->jobs, repair.split->sample_count, 0, sizeof(RepairSample), work,
                                  deliver, NULL, &repair, error);
    }
    progress_finish(&repair.progress);
    for (int thread = 0; thread < options->jobs; thread++)
        measurer_free(&repair.threads[thread]);
    free(repair.threads);
    if (repair.statistics.image_count)
        result->statistics = stats_finish(&repair.statistics);
    return status;
}

static FshStatus save_indexes(const RepairOptions *options, const FshManifest *manifest, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        for (size_t j = 0; j < split->file_count && !status; j++) {
            char path[PATH_MAX];
            status = file_join(path, sizeof path, options->folder, split->files[j].name, error);
            if (!status)
                status = fsh_tar_index_save(path, error);
        }
    }
    return status;
}

/* Returns whether folder's old manifest held display names of classes, or may have: a manifest that is
 * missing or is no JSON does not say. To be called before the new manifest takes its place. */
static bool loses_names(const char *folder, const FshManifest *manifest)
{
    char path[PATH_MAX];
    const bool masks = manifest->kind == FSH_KIND_MASKS;
    if (manifest->kind == FSH_KIND_PAIRS || manifest->class_display_names || manifest->mask_names ||
        file_join(path, sizeof path, folder, FSH_MANIFEST_NAME, NULL))
        return false;
    json_t *old = json_file_load(path, OLD_MANIFEST_BYTES_MAX);
    const bool lost =
        !json_is_object(old) || json_object_get(old, masks ? "mask_class_names" : "class_display_names");
    json_decref(old);
    return lost;
}

/* Does what repair_manifest does, while nobody else writes there. */
static FshStatus repair(const RepairOptions *options, RepairResult *result, FshError *error)
{
    FshStatus status = fsh_open_without_manifest(&result->dataset, options->folder, error);
    if (!status)
        status = measure(options, result, error);
    if (!status)
        result->names_lost = loses_names(options->folder, fsh_manifest(result->dataset));
    if (status || options->dry_run)
        return status;
    FshManifest manifest = *fsh_manifest(result->dataset); /* borrows */
    manifest.statistics = result->statistics;
    if (fsh_container_has(manifest.container, FSH_HAS_INDEX))
        status = save_indexes(options, &manifest, error);
    return status ? status : fsh_manifest_save(&manifest, options->folder, true, error);
}

FshStatus repair_manifest(const RepairOptions *options, RepairResult *result, FshError *error)
{
    int lock = -1;
    *result = (RepairResult){0};
    if (!file_is_folder(options->folder))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--repair-manifest: %s is no folder; name that of the dataset", options->folder);
    FshStatus status = options->dry_run ? destination_check_finished(options->folder, error)
                                        : destination_hold_dataset(options->folder, &lock, error);
    if (!status)
        status = repair(options, result, error);
    destination_release(options->folder, lock);
    return status;
}

void repair_result_free(RepairResult *result)
{
    fsh_close(&result->dataset);
    notes_free(&result->undecodable);
    *result = (RepairResult){0};
}
