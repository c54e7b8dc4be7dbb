/* pack_update_manifest.c - dataset.json of a dataset that was updated: what stays of the old shards, the new
 * ones, and the sums of all of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/progress.h"
#include "formats/updated.h"
#include "tools/pack/pack_measure.h"
#include "tools/pack/pack_update_parts.h"

static FshStatus out_of_memory(const Update *update, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", update->options->destination);
}

/* ---- statistics ---- */

/* The samples that go, whose pixels are to be taken out of the sums. */
typedef struct Leaving {
    const Update *update;
    const FshSplit *split;
    uint64_t *samples;
    uint64_t count;
    Measurer *measurers;
    PixelStatistics total;
    Progress progress;
} Leaving;

static FshStatus measure_one(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    Leaving *leaving = context;
    PixelStatistics *statistics = slot;
    FshSample sample;
    *statistics = (PixelStatistics){0};
    FshStatus status = fsh_sample_get(leaving->split, leaving->samples[item], &sample, error);
    for (unsigned i = 0; i < sample.field_count && !status; i++)
        status =
            measure_field(&leaving->measurers[thread], leaving->split, &sample, i, true, statistics, error);
    if (!status)
        status = fsh_sample_check_read(leaving->split, &sample, error);
    return status;
}

static FshStatus measured_one(uint64_t item, void *slot, void *context, FshError *error)
{
    Leaving *leaving = context;
    (void)item;
    (void)error;
    progress_add(&leaving->progress, 1, 0, 0);
    stats_merge(&leaving->total, slot);
    return FSH_OK;
}

/* Lists the samples of the split at `index` that go, but for those of shards that go whole and had no dead
 * records: *whole_ret gets the sums of these. */
static void list_leaving(Leaving *leaving, uint32_t index, PixelStatistics *whole_ret)
{
    const Update *update = leaving->update;
    for (size_t i = 0; i < update->file_count; i++) {
        const OldFile *file = &update->files[i];
        if (file->split != index)
            continue;
        if (file->live_count == 0 && file->record_count == file->head.record_count) {
            stats_merge(whole_ret, &file->statistics);
            continue;
        }
        for (uint64_t n = 0; n < file->record_count; n++) {
            const OldRecord *record = &update->records[file->first_record + n];
            if (!record->live)
                leaving->samples[leaving->count++] = record->sample;
        }
    }
}

/* Takes what goes out of the sums: its pixels, by decoding them once more. */
static FshStatus subtract_leaving(const Update *update, uint32_t index, PixelStatistics *sums,
                                  FshError *error)
{
    const int jobs = update->options->jobs;
    PixelStatistics whole = {0};
    Leaving leaving = {.update = update,
                       .split = fsh_split(update->dataset, fsh_split_name(index)),
                       .samples = calloc(update->record_count + 1, sizeof *leaving.samples),
                       .measurers = calloc((size_t)jobs, sizeof *leaving.measurers)};
    FshStatus status = leaving.samples && leaving.measurers ? FSH_OK : out_of_memory(update, error);
    if (!status) {
        list_leaving(&leaving, index, &whole);
        progress_start(&leaving.progress, stderr, "measuring what goes", "samples", leaving.count,
                       update->options->quiet);
        status = pool_run_ordered(jobs, leaving.count, 0, sizeof(PixelStatistics), measure_one, measured_one,
                                  NULL, &leaving, error);
        progress_finish(&leaving.progress);
    }
    stats_merge(&whole, &leaving.total);
    if (!status && !stats_subtract_pixels(sums, &whole))
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: its sums of pixels are less than those of what goes: the sums are "
                               "damaged; pack it anew, with --force",
                               update->options->destination);
    for (int thread = 0; leaving.measurers && thread < jobs; thread++)
        measurer_free(&leaving.measurers[thread]);
    free(leaving.measurers);
    free(leaving.samples);
    return status;
}

/* Fills the sums of pixels as they are: of shards that nobody has updated the sum of theirs. */
static FshStatus old_sums(const Update *update, PixelStatistics *sums, FshError *error)
{
    *sums = (PixelStatistics){0};
    if (!update->manifest->updates) {
        for (size_t i = 0; i < update->file_count; i++)
            stats_merge(sums, &update->files[i].statistics);
        return FSH_OK;
    }
    json_t *provenance = json_loads(update->manifest->provenance_json, 0, NULL);
    const bool good = stats_from_json(json_object_get(provenance, "pixel_sums"), sums);
    json_decref(provenance);
    return good ? FSH_OK
                : fsh_error_set(error, FSH_ERR_CORRUPT,
                                "%s: its " FSH_MANIFEST_NAME " has no sums of pixels under provenance any "
                                "more: pack it anew, with --force",
                                update->options->destination);
}

/* Adds the sizes of images that stay. */
static FshStatus add_sizes(const Update *update, PixelStatistics *sizes, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < update->file_count && !status; i++) {
        const OldFile *file = &update->files[i];
        if (file->live_count == file->head.record_count) {
            stats_merge_sizes(sizes, &file->statistics);
            continue;
        }
        /* Which of its masks had the most classes is not noted: as many as all of them had stay possible. */
        if (file->live_count && file->statistics.mask_classes > sizes->mask_classes)
            sizes->mask_classes = file->statistics.mask_classes;
        for (uint64_t n = 0; n < file->record_count && file->live_count && !status; n++) {
            const OldRecord *record = &update->records[file->first_record + n];
            SourceRecord sources;
            if (!record->live)
                continue;
            status = update_old_sources(update, record, &sources, error);
            for (unsigned f = 0; f < sources.field_count && !status; f++)
                stats_add_size(sizes, sources.fields[f].width, sources.fields[f].height,
                               sources.fields[f].channels);
        }
    }
    return status;
}

/* Reads the statistics of a new shard. */
static FshStatus add_fresh(const Update *update, const FshFileInfo *info, PixelStatistics *sums,
                           PixelStatistics *sizes, FshError *error)
{
    char hidden[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX], path[PATH_MAX];
    Buffer bytes = {0};
    SourcesView view;
    PixelStatistics own;
    FshStatus status = file_join(path, sizeof path, update->base.folder,
                                 fsh_sources_name(hidden, sizeof hidden, info->name), error);
    if (!status)
        status = file_read(path, &bytes, error);
    if (!status && fsh_sources_parse(&view, bytes.bytes, bytes.length, error))
        status = fsh_error_prepend(error, "%s", path);
    json_t *object = status ? NULL : json_loadb(view.head.statistics, view.head.statistics_bytes, 0, NULL);
    if (!status && !stats_from_json(object, &own))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: its statistics are damaged", path);
    if (!status) {
        stats_merge(sums, &own);
        stats_merge_sizes(sizes, &own);
    }
    json_decref(object);
    buffer_free(&bytes);
    return status;
}

/* Fills the sums of pixels of the dataset afterwards, with the sizes of all its images. */
static FshStatus add_up(const Update *update, const PackPlan *plan, const FshManifest *fresh,
                        PixelStatistics *sums, FshError *error)
{
    PixelStatistics sizes = {0};
    FshStatus status = old_sums(update, sums, error);
    if (!status && (sums->gray.pixel_count || sums->rgb.pixel_count))
        status = subtract_leaving(update, plan->split.main, sums, error);
    if (!status)
        status = add_sizes(update, &sizes, error);
    for (size_t i = 0; i < fresh->split_count; i++)
        for (size_t j = 0; j < fresh->splits[i].file_count && !status; j++)
            status = add_fresh(update, &fresh->splits[i].files[j], sums, &sizes, error);
    stats_take_sizes(sums, &sizes);
    return status;
}

/* ---- files ---- */

/* Adds what stays of an old shard. */
static FshStatus keep_file(const Update *update, OldFile *file, FshSplitInfo *split, const int32_t *labels,
                           FshError *error)
{
    FshFileInfo *info = &split->files[split->file_count];
    *info = *file->info;
    info->name = strdup(file->info->name);
    info->removed = file->removed;
    info->removed_count = file->removed_count;
    info->sample_count = file->live_count;
    file->removed = NULL; /* moved over */
    split->file_count++;
    if (!info->files_id[0])
        memcpy(info->files_id, update->manifest->files_id, sizeof info->files_id);
    split->sample_count += file->live_count;
    for (uint64_t n = 0; n < file->record_count && split->class_counts; n++) {
        const OldRecord *record = &update->records[file->first_record + n];
        if (record->live && record->label >= 0)
            split->class_counts[labels[record->label]]++;
    }
    return info->name ? FSH_OK : out_of_memory(update, error);
}

/* Makes a split of what stays of old shards and of the new ones; leaves it empty where there are none. */
static FshStatus make_split(Update *update, uint32_t index, FshSplitInfo *fresh, const FshManifest *manifest,
                            const int32_t *labels, FshSplitInfo *split, FshError *error)
{
    const char *name = fsh_split_name(index);
    const size_t fresh_count = fresh ? fresh->file_count : 0;
    FshStatus status = FSH_OK;
    split->name = strdup(name);
    split->files = calloc(update->file_count + fresh_count + 1, sizeof *split->files);
    if (manifest->kind == FSH_KIND_CLASSES)
        split->class_counts = calloc(manifest->class_count + 1, sizeof *split->class_counts);
    if (!split->name || !split->files || (manifest->kind == FSH_KIND_CLASSES && !split->class_counts))
        return out_of_memory(update, error);
    for (size_t i = 0; i < update->file_count && !status; i++) {
        if (update->files[i].split == index && update->files[i].live_count)
            status = keep_file(update, &update->files[i], split, labels, error);
    }
    for (size_t i = 0; i < fresh_count && !status; i++) {
        char updated[NAME_MAX + 1];
        FshFileInfo *info = &split->files[split->file_count++];
        *info = fresh->files[i];
        info->name = strdup(fsh_updated_name(updated, sizeof updated, name, manifest->updates, (uint32_t)i,
                                             (uint32_t)fresh_count));
        split->sample_count += info->sample_count;
        if (!info->name)
            status = out_of_memory(update, error);
    }
    for (size_t i = 0; i < manifest->class_count && fresh && split->class_counts; i++)
        split->class_counts[i] += fresh->class_counts[i];
    return status;
}

static FshSplitInfo *find_split(const FshManifest *manifest, uint32_t index)
{
    for (size_t i = 0; i < manifest->split_count; i++) {
        if (strcmp(manifest->splits[i].name, fsh_split_name(index)) == 0)
            return &manifest->splits[i];
    }
    return NULL;
}

static FshStatus make_splits(Update *update, const PackPlan *plan, const FshManifest *fresh,
                             FshManifest *manifest, FshError *error)
{
    int32_t *labels = update_map_classes(update->manifest, &plan->keyed);
    manifest->splits = calloc(PACK_SPLITS, sizeof *manifest->splits);
    FshStatus status = labels && manifest->splits ? FSH_OK : out_of_memory(update, error);
    for (uint32_t index = 0; index < PACK_SPLITS && !status; index++) {
        FshSplitInfo *own = find_split(fresh, index), *split = &manifest->splits[manifest->split_count];
        bool any = own && own->file_count;
        for (size_t i = 0; i < update->file_count && !any; i++)
            any = update->files[i].split == index && update->files[i].live_count;
        if (!any)
            continue;
        manifest->split_count++;
        status = make_split(update, index, own, manifest, labels, split, error);
    }
    free(labels);
    return status;
}

FshStatus update_manifest(Update *update, const PackPlan *plan, FshManifest *fresh, uint64_t left_out_count,
                          FshManifest *manifest_ret, FshError *error)
{
    FshManifest *manifest = manifest_ret;
    PixelStatistics sums = {0};
    *manifest = *fresh; /* names and the rest; its splits are made anew */
    manifest->splits = NULL;
    manifest->split_count = 0;
    manifest->provenance_json = NULL;
    manifest->updates = update->manifest->updates + 1;
    memcpy(manifest->files_id, plan->id, sizeof manifest->files_id);
    manifest->dictionary = update->manifest->dictionary;
    FshManifest old = {.splits = fresh->splits, .split_count = fresh->split_count};
    old.provenance_json = fresh->provenance_json;
    *fresh = old;
    FshStatus status = make_splits(update, plan, fresh, manifest, error);
    if (!status && !update->wanted.dry_run)
        status = add_up(update, plan, fresh, &sums, error);
    manifest->statistics = stats_finish(&sums);
    if (!status)
        status = update_provenance(update, plan, left_out_count, &sums, &manifest->provenance_json, error);
    return status;
}
