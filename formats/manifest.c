/* The rules that hold for every manifest, read or written; its memory. */
#include "formats/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/container.h"
#include "formats/metadata.h"
#include "formats/names.h"
#include "formats/updated.h"

/* ---- rules ---- */

static FshStatus check_file(const FshManifest *manifest, const FshFileInfo *file, FshStatus status,
                            FshError *error)
{
    if (!fsh_file_name_valid(file->name))
        return fsh_error_set(
            error, status,
            "file name \"%s\": must be a plain name in the dataset's folder, not a path or hidden",
            file->name);
    /* The suffix keeps a manifest from naming any other file of the folder, itself for one. */
    const char *suffix = fsh_container_find(manifest->container)->suffix;
    size_t name_bytes = strlen(file->name), suffix_bytes = strlen(suffix);
    if (name_bytes <= suffix_bytes || strcmp(file->name + name_bytes - suffix_bytes, suffix) != 0)
        return fsh_error_set(error, status, "file name \"%s\" does not end in %s", file->name, suffix);
    const uint64_t removed = fsh_rows_count(file->removed, file->removed_count);
    if (!manifest->updates && (file->files_id[0] || file->removed_count))
        return fsh_error_set(error, status, "file \"%s\" is of an update, in a dataset without updates",
                             file->name);
    if (manifest->updates && (!fsh_container_has(manifest->container, FSH_HAS_SOURCES) ||
                              removed > UINT32_MAX || file->sample_count > UINT32_MAX - removed))
        return fsh_error_set(error, status, "file \"%s\": %" PRIu64 " samples and %" PRIu64 " removed ones",
                             file->name, file->sample_count, removed);
    return FSH_OK;
}

static FshStatus check_split(const FshManifest *manifest, const FshSplitInfo *split, FshStatus status,
                             FshError *error)
{
    if (!fsh_split_name_valid(split->name))
        return fsh_error_set(error, status, "split \"%s\": letters, digits, '_' and '-' only, at most 64",
                             split->name);
    if (split->file_count < 1 || split->file_count > UINT32_MAX ||
        (!fsh_container_has(manifest->container, FSH_HAS_SHARDS) && split->file_count != 1))
        return fsh_error_set(error, status, "split %s: %zu files in a dataset of %s", split->name,
                             split->file_count, fsh_container_name(manifest->container));
    uint64_t in_files = 0, in_classes = 0;
    bool overflow = false;
    for (size_t i = 0; i < split->file_count; i++) {
        FshStatus failure = check_file(manifest, &split->files[i], status, error);
        if (failure)
            return failure;
        overflow |= __builtin_add_overflow(in_files, split->files[i].sample_count, &in_files);
    }
    if (overflow || in_files != split->sample_count)
        return fsh_error_set(error, status, "split %s: %" PRIu64 " samples, but its files hold %" PRIu64,
                             split->name, split->sample_count, in_files);
    for (size_t i = 0; split->class_counts && i < manifest->class_count; i++) {
        overflow |= __builtin_add_overflow(in_classes, split->class_counts[i], &in_classes);
    }
    if (overflow || in_classes > split->sample_count)
        return fsh_error_set(error, status, "split %s: %" PRIu64 " samples, but its classes count %" PRIu64,
                             split->name, split->sample_count, in_classes);
    return FSH_OK;
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that no two splits and no two files have the same name. */
static FshStatus check_unique(const FshManifest *manifest, FshStatus status, FshError *error)
{
    size_t count = manifest->split_count;
    for (size_t i = 0; i < manifest->split_count; i++) {
        count += manifest->splits[i].file_count;
    }
    const char **names = malloc(count * sizeof *names);
    if (!names)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    size_t next = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const FshSplitInfo *split = &manifest->splits[i];
        names[next++] = split->name; /* split names end in no suffix: they cannot meet a file's */
        for (size_t j = 0; j < split->file_count; j++) {
            names[next++] = split->files[j].name;
        }
    }
    qsort(names, count, sizeof *names, compare_text);
    FshStatus found = FSH_OK;
    for (size_t i = 1; i < count && !found; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            found = fsh_error_set(error, status, "\"%s\" is listed twice", names[i]);
    }
    free(names);
    return found;
}

/* Checks that a mean and a deviation of values in 0..1 are possible. A deviation is at most 0.5, and its
 * square at most mean * (1 - mean). Of n pixels, one of which differs by a step of 255, it is about 1 / (255
 * * sqrt(n)): below `least`, n is above 10^13, more than any dataset has. Zero is that of one colour
 * throughout, or of pixels that nobody looked at. */
static FshStatus check_deviation(uint32_t channel, double mean, double deviation, FshStatus status,
                                 FshError *error)
{
    const double least = 1e-9, slack = 1e-6;
    if (!(mean >= 0 && mean <= 1))
        return fsh_error_set(error, status, "statistics.mean[%" PRIu32 "] is %g, not between 0 and 1",
                             channel, mean);
    if (deviation != 0 && !(deviation >= least && deviation <= 0.5))
        return fsh_error_set(error, status,
                             "statistics.std[%" PRIu32 "] is %g, neither 0 nor between %g and 0.5", channel,
                             deviation, least);
    if (deviation * deviation > mean * (1 - mean) + slack)
        return fsh_error_set(error, status,
                             "statistics.std[%" PRIu32 "] is %g, more than values with the mean %g can have",
                             channel, deviation, mean);
    return FSH_OK;
}

static FshStatus check_statistics(const FshStatistics *statistics, FshStatus status, FshError *error)
{
    if (statistics->channels != 0 && statistics->channels != 1 && statistics->channels != 3)
        return fsh_error_set(error, status,
                             "statistics.channels is %" PRIu32 ", not 1 or 3 (0: not measured)",
                             statistics->channels);
    const struct {
        const char *name;
        uint32_t least, most;
    } ranges[] = {{"width", statistics->width_min, statistics->width_max},
                  {"height", statistics->height_min, statistics->height_max}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (ranges[i].least > ranges[i].most || (ranges[i].least == 0 && ranges[i].most > 0))
            return fsh_error_set(error, status,
                                 "statistics.%s is %" PRIu32 " to %" PRIu32
                                 ": the least must be 1 or more, and not above the greatest",
                                 ranges[i].name, ranges[i].least, ranges[i].most);
    }
    FshStatus failure = FSH_OK;
    for (uint32_t i = 0; i < statistics->channels && !failure; i++)
        failure = check_deviation(i, statistics->mean[i], statistics->standard_deviation[i], status, error);
    return failure;
}

FshStatus fsh_manifest_check(const FshManifest *manifest, FshStatus status, FshError *error)
{
    if (manifest->split_count < 1)
        return fsh_error_set(error, status, "no splits");
    /* The rules for names, kind and identity are those of the files. */
    Metadata metadata;
    FshStatus failure = fsh_metadata_make(&metadata, manifest, "any", error);
    fsh_metadata_free(&metadata);
    if (failure == FSH_ERR_USAGE) {
        failure = status;
        if (error)
            error->status = status;
    }
    for (size_t i = 0; i < manifest->split_count && !failure; i++) {
        failure = check_split(manifest, &manifest->splits[i], status, error);
    }
    if (!failure)
        failure = check_unique(manifest, status, error);
    if (!failure && manifest->pair_scale > 1 &&
        (manifest->kind != FSH_KIND_PAIRS || manifest->pair_scale > FSH_PAIR_SCALE_MAX))
        failure = fsh_error_set(error, status, "pair_scale %" PRIu32 ": of pairs, at most %d",
                                manifest->pair_scale, FSH_PAIR_SCALE_MAX);
    if (!failure && manifest->statistics.mask_classes && manifest->kind != FSH_KIND_MASKS)
        failure = fsh_error_set(error, status, "statistics.mask_classes is %" PRIu32 " in a dataset of %s",
                                manifest->statistics.mask_classes, fsh_kind_name(manifest->kind));
    if (!failure && manifest->mask_name_count &&
        (manifest->kind != FSH_KIND_MASKS || manifest->mask_name_count > FSH_MASK_IGNORED))
        failure = fsh_error_set(error, status, "%zu names of mask classes: of masks, at most %d",
                                manifest->mask_name_count, FSH_MASK_IGNORED);
    return failure ? failure : check_statistics(&manifest->statistics, status, error);
}

/* ---- memory ---- */

static void split_info_free(FshSplitInfo *split)
{
    for (size_t i = 0; split->files && i < split->file_count; i++) {
        free(split->files[i].name);
        free(split->files[i].removed);
    }
    free(split->files);
    free(split->class_counts);
    free(split->name);
}

void fsh_manifest_free(FshManifest *manifest)
{
    for (size_t i = 0; manifest->splits && i < manifest->split_count; i++) {
        split_info_free(&manifest->splits[i]);
    }
    free(manifest->splits);
    fsh_names_free(manifest->field_names, manifest->field_count);
    fsh_names_free(manifest->class_names, manifest->class_count);
    fsh_names_free(manifest->class_display_names, manifest->class_count);
    fsh_names_free(manifest->mask_names, manifest->mask_name_count);
    free(manifest->provenance_json);
    *manifest = (FshManifest){0};
}

FshStatus fsh_manifest_from_file(FshManifest *manifest, Metadata *metadata, FshContainer container,
                                 const FshFileInfo *file, FshError *error)
{
    *manifest = (FshManifest){
        .container = container,
        .kind = metadata->kind,
        .field_names = metadata->field_names,
        .field_count = metadata->field_count,
        .class_names = metadata->class_names,
        .class_count = metadata->class_count,
        .dictionary = metadata->dictionary,
        .provenance_json = strdup("{}"),
        .splits = calloc(1, sizeof *manifest->splits),
    };
    memcpy(manifest->id, metadata->id, sizeof manifest->id);
    memcpy(manifest->files_id, metadata->id, sizeof manifest->files_id);
    metadata->field_names = NULL;
    metadata->class_names = NULL;
    FshSplitInfo *split = manifest->splits;
    if (split) {
        manifest->split_count = 1;
        split->name = metadata->split;
        metadata->split = NULL;
        split->sample_count = file->sample_count;
        split->class_counts =
            manifest->class_count ? calloc(manifest->class_count, sizeof *split->class_counts) : NULL;
        split->files = calloc(1, sizeof *split->files);
        split->file_count = 1;
    }
    if (split && split->files) {
        split->files[0] = *file;
        split->files[0].name = strdup(file->name);
    }
    fsh_metadata_free(metadata);
    if (!manifest->provenance_json || !split || !split->files || !split->files[0].name ||
        (manifest->class_count && !split->class_counts)) {
        fsh_manifest_free(manifest);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    return FSH_OK;
}

FshStatus fsh_manifest_add_file(FshManifest *manifest, const FshFileInfo *file, FshError *error)
{
    FshSplitInfo *split = &manifest->splits[0];
    char *name = strdup(file->name);
    FshFileInfo *grown = reallocarray(split->files, split->file_count + 1, sizeof *grown);
    split->files = grown ? grown : split->files;
    if (!name || !grown) {
        free(name);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    grown[split->file_count] = *file;
    grown[split->file_count++].name = name;
    split->sample_count += file->sample_count;
    return FSH_OK;
}
