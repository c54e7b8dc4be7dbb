#include "trainer/data/classification.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_LOOKED_AT = 512 }; /* images: enough for a median, and a millisecond on any set */

/* "train, val" */
static const char *split_names(const FshManifest *manifest, char *buffer, size_t buffer_bytes)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < manifest->split_count && length < buffer_bytes; i++)
        length += (size_t)snprintf(buffer + length, buffer_bytes - length, "%s%s", i ? ", " : "",
                                   manifest->splits[i].name);
    return buffer;
}

static FshStatus check_kind(const FshDataset *dataset, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    const char *path = fsh_path(dataset);
    if (manifest->kind != FSH_KIND_CLASSES)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: holds pairs of images, not classes; pack class folders (fpack SRC DST) to train a "
            "classifier",
            path);
    if (manifest->class_count < 2)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: has %zu class; a classifier needs at least two class folders", path,
                             manifest->class_count);
    if (manifest->statistics.channels != 1 && manifest->statistics.channels != 3)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: has no mean and deviation; give the folder that fpack made, with its %s (tars and LMDBs "
            "of others: fpack them first)",
            path, FSH_MANIFEST_NAME);
    return FSH_OK;
}

static FshStatus find_split(const FshDataset *dataset, const char *name, const FshSplit **split_ret,
                            FshError *error)
{
    char names[256];
    *split_ret = fsh_split(dataset, name);
    if (!*split_ret)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: has no split '%s'; it has: %s", fsh_path(dataset),
                             name, split_names(fsh_manifest(dataset), names, sizeof names));
    if ((*split_ret)->sample_count == 0)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: split '%s' is empty", fsh_path(dataset), name);
    return FSH_OK;
}

/* The index rows say it all: no record is touched but one that is wrong. */
static FshStatus check_labels(const FshSplit *split, FshError *error)
{
    for (uint64_t i = 0; i < split->sample_count; i++) {
        char where[256];
        FshSample sample;
        if (fsh_sample_label(split, i) != FSH_NO_LABEL)
            continue;
        FshStatus status =
            fsh_sample_get(split, i, &sample, error); /* says so where the label is out of range */
        if (status)
            return status;
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: %s (key %.*s): has no label; pack it from class folders",
                             fsh_path(split->dataset), fsh_sample_where(split, i, where, sizeof where),
                             (int)sample.key_bytes, sample.key);
    }
    return FSH_OK;
}

/* A class that training never sees can only be got wrong: the splits do not belong together. */
static FshStatus check_same_classes(const Classification *classification, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(classification->dataset);
    const FshSplitInfo *train = classification->train->info, *evaluation = classification->evaluation->info;
    if (!train->class_counts || !evaluation->class_counts)
        return FSH_OK;
    for (size_t i = 0; i < manifest->class_count; i++)
        if (evaluation->class_counts[i] && !train->class_counts[i])
            return fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s: split '%s' has images of class '%s', split '%s' has none; both need the same class "
                "folders",
                fsh_path(classification->dataset), evaluation->name, manifest->class_names[i], train->name);
    return FSH_OK;
}

static FshStatus choose_evaluation(Classification *classification, const char *name, FshError *error)
{
    if (!name)
        name = fsh_split(classification->dataset, "val")    ? "val"
               : fsh_split(classification->dataset, "test") ? "test"
                                                            : NULL;
    return name ? find_split(classification->dataset, name, &classification->evaluation, error) : FSH_OK;
}

static int compare_edges(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static FshStatus measure_images(Classification *classification, FshError *error)
{
    const FshStatistics *statistics = &fsh_manifest(classification->dataset)->statistics;
    const FshSplit *split = classification->train ? classification->train : classification->evaluation;
    uint32_t edges[SIZES_LOOKED_AT];
    uint64_t looked_at = split->sample_count < SIZES_LOOKED_AT ? split->sample_count : SIZES_LOOKED_AT;
    for (uint64_t i = 0; i < looked_at; i++) {
        FshSample sample;
        FshStatus status = fsh_sample_get(split, split->sample_count / looked_at * i, &sample, error);
        if (status)
            return status;
        const FshField *field = &sample.fields[0];
        edges[i] = field->width < field->height ? field->width : field->height;
    }
    qsort(edges, looked_at, sizeof *edges, compare_edges);
    classification->short_edge = edges[looked_at / 2];
    classification->uniform = statistics->width_min == statistics->width_max &&
                              statistics->height_min == statistics->height_max &&
                              statistics->width_min == statistics->height_min;
    return FSH_OK;
}

/* fpack --no-check decodes nothing, so it knows sizes but no pixels: all zero. */
static bool has_statistics(const FshStatistics *statistics)
{
    for (uint32_t c = 0; c < statistics->channels; c++)
        if (statistics->mean[c] > 0 || statistics->standard_deviation[c] > 0)
            return true;
    return false;
}

static void take_statistics(Classification *classification)
{
    /* ImageNet's, as torchvision has them: what photographs are normalised by where nothing else is known. Gray is
     * their mean over the channels. */
    static const FshStatistics colour = {.mean = {0.485, 0.456, 0.406},
                                         .standard_deviation = {0.229, 0.224, 0.225}},
                               gray = {.mean = {0.449}, .standard_deviation = {0.226}};
    const FshManifest *manifest = fsh_manifest(classification->dataset);
    const FshStatistics *statistics = &manifest->statistics;
    classification->class_count = (int64_t)manifest->class_count;
    classification->channels = statistics->channels;
    classification->measured = has_statistics(statistics);
    if (!classification->measured)
        statistics = classification->channels == 1 ? &gray : &colour;
    for (uint32_t c = 0; c < classification->channels; c++) {
        double deviation = statistics->standard_deviation[c];
        classification->mean[c] = statistics->mean[c];
        /* Images of one flat colour have none, and nothing may be divided by zero. */
        classification->standard_deviation[c] = deviation > 1.0 / 255 ? deviation : 1.0 / 255;
    }
}

FshStatus classification_open(Classification *classification, const char *path, const char *train_split,
                              const char *evaluation_split, FshError *error)
{
    *classification = (Classification){0};
    FshStatus status = fsh_open(&classification->dataset, path, error);
    if (!status)
        status = check_kind(classification->dataset, error);
    if (!status && train_split)
        status = find_split(classification->dataset, train_split, &classification->train, error);
    if (!status)
        status = choose_evaluation(classification, evaluation_split, error);
    if (!status && !train_split && !classification->evaluation)
        status = fsh_error_set(
            error, FSH_ERR_NOT_FOUND,
            "%s: has neither a split 'val' nor 'test' to evaluate; name one with --val-split", path);
    if (!status && classification->train)
        status = check_labels(classification->train, error);
    if (!status && classification->evaluation)
        status = check_labels(classification->evaluation, error);
    if (!status && classification->train && classification->evaluation)
        status = check_same_classes(classification, error);
    if (!status) {
        take_statistics(classification);
        status = measure_images(classification, error);
    }
    if (status)
        classification_close(classification);
    return status;
}

void classification_close(Classification *classification)
{
    fsh_close(&classification->dataset);
    *classification = (Classification){0};
}
