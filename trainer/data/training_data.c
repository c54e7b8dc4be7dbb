#include "trainer/data/training_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/display_names.h"
#include "formats/names.h"
#include "imaging/decode.h"
#include "trainer/data/paired_classes.h"

enum {
    SIZES_LOOKED_AT = 512, /* images: enough for a median, and a millisecond on any set */
    USUAL_EDGE = 256,      /* torchvision's: of images that are not looked at before they are used */
};

/* Writes the names of the splits, "train, val", and returns buffer. */
static const char *split_names(const FshManifest *manifest, char *buffer, size_t buffer_bytes)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < manifest->split_count && length < buffer_bytes; i++)
        length += (size_t)snprintf(buffer + length, buffer_bytes - length, "%s%s", i ? ", " : "",
                                   manifest->splits[i].name);
    return buffer;
}

/* Checks that the statistics tell 1 or 3 channels, unless the images themselves are looked at: those of
 * others do not. Checks that there are enough classes, unless labels stand beside the dataset: two to train,
 * one to evaluate weights that know more classes. */
static FshStatus check_classes(const FshManifest *manifest, const char *path, bool trains, bool labelled,
                               FshError *error)
{
    if (manifest->statistics.channels != 1 && manifest->statistics.channels != 3 &&
        !fsh_container_has(manifest->container, FSH_HAS_FILES)) /* whose images are looked at */
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: has no mean and deviation; give the folder that fpack made, with its %s (tars and LMDBs "
            "of others: fpack them first)",
            path, FSH_MANIFEST_NAME);
    if (!labelled && manifest->class_count < (trains ? 2 : 1)) {
        const char *small =
            manifest->class_count ? fsh_split_in_small_letters(manifest->class_names[0]) : NULL;
        char hint[96] = "";
        if (small)
            (void)snprintf(hint, sizeof hint, "; if '%.16s' is a split, call the folder %s, in small letters",
                           manifest->class_names[0], small);
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: has %zu class; a classifier needs at least two class folders, or --labels%s", path,
            manifest->class_count, hint);
    }
    return FSH_OK;
}

static FshStatus check_pairs(const FshManifest *manifest, const char *path, FshError *error)
{
    if (manifest->field_count < 2)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s: each of its samples has one image, '%s'; a restoration network needs two (fpack "
            "--pairs INPUT:TARGET SRC DST)",
            path, manifest->field_names[0]);
    if (manifest->pair_scale > 1)
        return fsh_error_set(
            error, FSH_ERR_UNSUPPORTED,
            "%s: its '%s' is %u times as large as its '%s', for super-resolution; networks here "
            "train on sides of one size: enlarge '%s' first, and pack without --pair-scale",
            path, manifest->field_names[1], (unsigned)manifest->pair_scale, manifest->field_names[0],
            manifest->field_names[0]);
    return FSH_OK;
}

/* Checks that the number of classes is known: masks are not read for it. */
static FshStatus check_masks(const FshManifest *manifest, const char *path, bool trains, FshError *error)
{
    const uint32_t classes = manifest->statistics.mask_classes;
    if (!classes)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: does not tell how many classes its masks have; give the folder that fpack "
                             "made, with its %s",
                             path, FSH_MANIFEST_NAME);
    if (trains && classes < 2)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: its masks have the value 0 alone; a network needs two classes", path);
    return FSH_OK;
}

/* What a dataset of each kind holds, who takes it, and how it is packed. */
static const struct {
    const char *holds, *network, *packing;
} kinds[] = {
    [FSH_KIND_CLASSES] = {"classes", "a classifier", "class folders (fpack SRC DST)"},
    [FSH_KIND_PAIRS] = {"pairs of images", "a restoration network",
                        "pairs (fpack --pairs INPUT:TARGET SRC DST)"},
    [FSH_KIND_MASKS] = {"images and masks", "a segmentation network",
                        "images and masks (fpack --masks IMAGES:MASKS SRC DST)"},
};

static FshStatus check_kind(const FshDataset *dataset, FshKind kind, bool trains, bool labelled,
                            FshError *error)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    const char *path = fsh_path(dataset);
    if (kind && manifest->kind != kind)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: holds %s, not %s; pack %s to train %s", path,
                             kinds[manifest->kind].holds, kinds[kind].holds, kinds[kind].packing,
                             kinds[kind].network);
    if (manifest->kind != FSH_KIND_CLASSES && labelled)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "--labels: %s holds %s, which have no labels", path,
                             kinds[manifest->kind].holds);
    return manifest->kind == FSH_KIND_PAIRS   ? check_pairs(manifest, path, error)
           : manifest->kind == FSH_KIND_MASKS ? check_masks(manifest, path, trains, error)
                                              : check_classes(manifest, path, trains, labelled, error);
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

/* Checks that every sample has a label within the classes. Index rows say that; only a wrong record is
 * read. */
static FshStatus check_records(const FshSplit *split, FshError *error)
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

/* Checks that training has samples of every class that evaluation has: a class that is never seen can only be
 * got wrong. */
static FshStatus check_same_classes(const TrainingData *data, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(data->dataset);
    const FshSplitInfo *train = data->train->info, *evaluation = data->evaluation->info;
    if (!train->class_counts || !evaluation->class_counts)
        return FSH_OK;
    for (size_t i = 0; i < manifest->class_count; i++)
        if (evaluation->class_counts[i] && !train->class_counts[i])
            return fsh_error_set(
                error, FSH_ERR_MISMATCH,
                "%s: split '%s' has images of class '%s', split '%s' has none%s; both need the same class%s",
                fsh_path(data->dataset), evaluation->name, manifest->class_names[i], train->name,
                data->choice.made ? " that were chosen" : "",
                data->choice.made ? "es: choose without it (and not class = NAME), or of both" : " folders");
    return FSH_OK;
}

static FshStatus choose_evaluation(TrainingData *data, const char *name, FshError *error)
{
    if (!name)
        name = fsh_split(data->dataset, "val") ? "val" : fsh_split(data->dataset, "test") ? "test" : NULL;
    return name ? find_split(data->dataset, name, &data->evaluation, error) : FSH_OK;
}

/* ---- the images ---- */

static int compare_edges(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* Takes the image's size from its header, where the container does not know it (tars and LMDBs of others). */
static FshStatus probe_field(ImageDecoder *decoder, FshUnpacker *unpacker, const FshSplit *split,
                             uint64_t index, FshField *field, FshError *error)
{
    const void *bytes;
    size_t length;
    ImageInfo info;
    char where[256];
    if (field->width && field->height && field->channels)
        return FSH_OK;
    FshStatus status = fsh_field_unpack(unpacker, split, field, &bytes, &length, error);
    if (status)
        return status;
    status = image_probe(decoder, bytes, length, &info, error);
    if (status)
        return fsh_error_prepend(error, "%s: %s", fsh_path(split->dataset),
                                 fsh_sample_where(split, index, where, sizeof where));
    field->width = info.width;
    field->height = info.height;
    field->channels = (uint8_t)info.channels;
    return FSH_OK;
}

/* Looks at images taken evenly from the split: finds the median of their short edges, and whether any has
 * colours. Passes over images that cannot be read, which the loader may skip; fails if none can be read. */
static FshStatus look_at_images(TrainingData *data, const FshSplit *split, ImageDecoder *decoder,
                                FshUnpacker *unpacker, FshError *error)
{
    uint32_t edges[SIZES_LOOKED_AT];
    uint64_t looked_at = split->sample_count < SIZES_LOOKED_AT ? split->sample_count : SIZES_LOOKED_AT;
    uint32_t channels = 1;
    size_t seen = 0, jpegs = 0;
    FshError failure = {0};
    for (uint64_t i = 0; i < looked_at; i++) {
        uint64_t index = split->sample_count / looked_at * i;
        FshSample sample;
        FshStatus status = fsh_sample_get(split, index, &sample, &failure);
        FshField *field = &sample.fields[data->input_field];
        if (!status)
            status = probe_field(decoder, unpacker, split, index, field, &failure);
        if (status)
            continue;
        edges[seen++] = field->width < field->height ? field->width : field->height;
        if (field->channels == 3)
            channels = 3;
        if (field->codec == FSH_CODEC_JPEG || field->codec == FSH_CODEC_Y4M)
            jpegs++;
    }
    if (!seen) {
        if (error)
            *error = failure;
        return failure.status;
    }
    qsort(edges, seen, sizeof *edges, compare_edges);
    data->short_edge = edges[seen / 2];
    data->jpegs = 2 * jpegs > seen;
    if (!data->channels)
        data->channels = channels;
    return FSH_OK;
}

static FshStatus measure_images(TrainingData *data, FshError *error)
{
    const FshSplit *split = data->train ? data->train : data->evaluation;
    ImageDecoder *decoder = NULL;
    FshUnpacker *unpacker = NULL;
    FshStatus status = image_decoder_new(&decoder, error);
    if (!status)
        status = fsh_unpacker_new(&unpacker, error);
    if (!status)
        status = look_at_images(data, split, decoder, unpacker, error);
    image_decoder_free(&decoder);
    fsh_unpacker_free(&unpacker);
    return status;
}

/* Returns whether mean and deviation are known. fpack --no-check decodes nothing and leaves them zero. */
static bool has_statistics(const FshStatistics *statistics)
{
    for (uint32_t c = 0; c < statistics->channels; c++)
        if (statistics->mean[c] > 0 || statistics->standard_deviation[c] > 0)
            return true;
    return false;
}

/* Names the classes of masks as the dataset does, else by their values. FSH_ERR_MEMORY. */
static FshStatus name_mask_classes(TrainingData *data, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(data->dataset);
    const size_t count = (size_t)data->class_count;
    data->mask_names = calloc(count + 1, sizeof *data->mask_names);
    data->own_class_count = data->mask_names ? count : 0;
    for (size_t i = 0; i < count && data->mask_names; i++) {
        char name[24];
        (void)snprintf(name, sizeof name, "%zu", i);
        data->mask_names[i] = strdup(i < manifest->mask_name_count ? manifest->mask_names[i] : name);
        if (!data->mask_names[i])
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of classes");
    }
    data->class_names = data->own_class_names = data->mask_names;
    return data->mask_names ? FSH_OK
                            : fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of classes");
}

/* Returns as many classes as the masks have or, where names tell of more, as have one: another part of the
 * same data may have them. */
static int64_t mask_class_count(const FshManifest *manifest)
{
    const size_t found = manifest->statistics.mask_classes;
    return (int64_t)(manifest->mask_name_count > found ? manifest->mask_name_count : found);
}

static void take_fields(TrainingData *data)
{
    const FshManifest *manifest = fsh_manifest(data->dataset);
    data->kind = manifest->kind;
    data->class_count = data->kind == FSH_KIND_CLASSES ? (int64_t)manifest->class_count
                        : data->kind == FSH_KIND_MASKS ? mask_class_count(manifest)
                                                       : 0;
    data->class_names = data->own_class_names = manifest->class_names;
    data->own_class_count = (size_t)data->class_count;
    data->target_field = data->kind != FSH_KIND_CLASSES ? (unsigned)manifest->field_count - 1 : 0;
    data->input_name = manifest->field_names[data->input_field];
    data->target_name = manifest->field_names[data->target_field];
    const FshStatistics *statistics = &manifest->statistics;
    data->channels = statistics->channels;
    data->width_min = statistics->width_min;
    data->width_max = statistics->width_max;
    data->height_min = statistics->height_min;
    data->height_max = statistics->height_max;
    data->uniform = statistics->width_min == statistics->width_max &&
                    statistics->height_min == statistics->height_max &&
                    statistics->width_min == statistics->height_min && statistics->width_min > 0;
}

/* ImageNet's statistics, as torchvision has them, for images of which nothing else is known. Gray is the mean
 * over the channels. */
static const FshStatistics colour = {.mean = {0.485, 0.456, 0.406},
                                     .standard_deviation = {0.229, 0.224, 0.225}},
                           gray = {.mean = {0.449}, .standard_deviation = {0.226}};

/* Sets mean and deviation, after the images were looked at: data of others has its channels from there. */
static void take_statistics(TrainingData *data)
{
    const FshStatistics *statistics = &fsh_manifest(data->dataset)->statistics;
    data->measured = has_statistics(statistics);
    if (!data->measured)
        statistics = data->channels == 1 ? &gray : &colour;
    for (uint32_t c = 0; c < data->channels; c++) {
        double deviation = statistics->standard_deviation[c];
        data->mean[c] = statistics->mean[c];
        /* Images of one flat colour have none, and nothing may be divided by zero. */
        data->standard_deviation[c] = deviation > 1.0 / 255 ? deviation : 1.0 / 255;
    }
}

/* ---- labels ---- */

const SampleLabels *training_data_labels(const TrainingData *data, bool training)
{
    return training_labels_of(&data->labels, training);
}

void training_data_count(const TrainingData *data, bool training, uint64_t *counts)
{
    const SampleLabels *labels = training_data_labels(data, training);
    const FshSplit *split = training ? data->train : data->evaluation;
    if (labels)
        sample_labels_count(labels, counts);
    for (uint64_t i = 0; split && i < split->sample_count && !labels; i++) {
        const int64_t label = fsh_sample_label(split, i);
        if (label >= 0 && (uint64_t)label < data->own_class_count)
            counts[label]++;
    }
}

size_t training_data_row_width(const TrainingData *data)
{
    return data->kind == FSH_KIND_CLASSES && data->label_kind != LABELS_ONE ? (size_t)data->class_count : 0;
}

/* Takes the labels that stand beside the dataset, and their classes in place of its own. */
static FshStatus take_labels(TrainingData *data, const LabelSources *sources, FshError *error)
{
    FshStatus status =
        training_labels_read(&data->labels, sources, data->train, data->evaluation, data->sets.names, error);
    if (status)
        return status;
    const LabelNames *names = &data->labels.names;
    data->label_kind = data->labels.kind;
    data->class_names = data->own_class_names = names->names;
    data->own_class_count = names->count;
    data->class_count = (int64_t)names->count;
    if (data->label_kind == LABELS_ONE && data->train && names->count < 2)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: its labels are all '%.200s'; a classifier needs two", sources->path,
                             names->names[0]);
    return FSH_OK;
}

/* Checks the labels of the records. */
static FshStatus check_labels(const TrainingData *data, FshError *error)
{
    FshStatus status = data->train ? check_records(data->train, error) : FSH_OK;
    if (!status && data->evaluation)
        status = check_records(data->evaluation, error);
    return !status && data->train && data->evaluation ? check_same_classes(data, error) : status;
}

/* ---- life ---- */

/* Finds the splits, and what is chosen of them. */
static FshStatus open_splits(TrainingData *data, const TrainingDataSource *source, FshError *error)
{
    FshStatus status = FSH_OK;
    if (source->train_split)
        status = find_split(data->dataset, source->train_split, &data->train, error);
    if (!status)
        status = choose_evaluation(data, source->evaluation_split, error);
    if (!status && !source->train_split && !data->evaluation)
        status = fsh_error_set(
            error, FSH_ERR_NOT_FOUND,
            "%s: has neither a split 'val' nor 'test' to evaluate; name one with --val-split", source->path);
    if (!status && source->choice)
        status = sample_choice_make(&data->choice, source->choice, source->seed, data->dataset, &data->train,
                                    &data->evaluation, error);
    return status;
}

/* Opens set i of the source, and gives it its name. */
static FshStatus open_set(FshDataset **dataset, const TrainingDataSource *source, size_t i, FshError *error)
{
    const char *path = i ? source->more_paths[i - 1] : source->path;
    const FshStatus status = fsh_open(dataset, path, error);
    if (!source->names || strcmp(source->names[i], path) == 0)
        return status;
    return status ? fsh_error_prepend(error, "%s", source->names[i])
                  : fsh_set_path(*dataset, source->names[i], error);
}

/* Opens the datasets of the source as members of one, each checked by itself. */
static FshStatus open_members(FshDataset **members, const TrainingDataSource *source, bool labelled,
                              FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i <= source->more_count && !status; i++) {
        status = open_set(&members[i], source, i, error);
        if (!status)
            status = check_kind(members[i], source->kind, false, labelled, error);
    }
    return status ? status
                  : training_sets_check_splits(members, source->more_count + 1, source->train_split,
                                               source->evaluation_split, error);
}

/* Opens the dataset, or several as one. */
static FshStatus open_dataset(TrainingData *data, const TrainingDataSource *source, bool labelled,
                              FshError *error)
{
    const size_t count = source->more_count + 1;
    if (count == 1)
        return open_set(&data->dataset, source, 0, error);
    FshDataset **members = calloc(count, sizeof(FshDataset *));
    FshStatus status = members ? open_members(members, source, labelled, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu sets", count);
    if (!status)
        status = fsh_join(&data->dataset, members, count, error);
    for (size_t i = 0; i < count && members; i++)
        fsh_close(&members[i]);
    free(members);
    return status;
}

FshStatus training_data_open(TrainingData *data, const TrainingDataSource *source, FshError *error)
{
    const bool labelled = source->labels && source->labels->path;
    *data = (TrainingData){0};
    FshStatus status = open_dataset(data, source, labelled, error);
    if (!status)
        status = training_sets_name(&data->sets, data->dataset, error);
    if (!status)
        status = check_kind(data->dataset, source->kind, source->train_split != NULL, labelled, error);
    if (!status)
        status = open_splits(data, source, error);
    if (!status)
        take_fields(data);
    if (!status && data->kind == FSH_KIND_MASKS)
        status = name_mask_classes(data, error);
    const bool classes = data->kind == FSH_KIND_CLASSES;
    if (!status && classes)
        status = labelled ? take_labels(data, source->labels, error) : check_labels(data, error);
    if (!status)
        status = measure_images(data, error);
    if (!status && classes && data->train && !labelled)
        status = paired_classes_look(data->train, &data->paired_names, &data->mask_class, error);
    if (!status)
        take_statistics(data);
    if (status)
        training_data_close(data);
    return status;
}

void training_data_take_images(TrainingData *data, FshDataset *images, FshKind kind, int64_t class_count,
                               uint32_t channels)
{
    const FshManifest *manifest = fsh_manifest(images);
    *data = (TrainingData){.dataset = images,
                           .kind = kind,
                           .evaluation = fsh_split(images, manifest->splits[0].name),
                           .class_count = class_count,
                           .input_name = manifest->field_names[0],
                           .target_name = manifest->field_names[0],
                           .channels = channels,
                           .inputs_alone = true,
                           .short_edge = USUAL_EDGE};
    take_statistics(data);
}

/* Returns the manifest's display name of a class, "" if it has none. place: where the class usually stands
 * there. */
static const char *display_name(const FshManifest *manifest, size_t place, const char *class_name)
{
    if (manifest->class_display_names && place < manifest->class_count &&
        strcmp(manifest->class_names[place], class_name) == 0)
        return manifest->class_display_names[place];
    for (size_t i = 0; manifest->class_display_names && i < manifest->class_count; i++) {
        if (strcmp(manifest->class_names[i], class_name) == 0)
            return manifest->class_display_names[i];
    }
    return "";
}

static char *join_names(const char *display, const char *name)
{
    const size_t bytes = strlen(display) + strlen(name) + sizeof " ()";
    char *joined = malloc(bytes);
    if (joined && *display && strcmp(display, name) != 0)
        (void)snprintf(joined, bytes, "%s (%s)", display, name);
    else if (joined)
        (void)snprintf(joined, bytes, "%s", name);
    return joined;
}

FshStatus training_data_name_classes(TrainingData *data, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(data->dataset);
    const char *usual = getenv(DISPLAY_NAMES_VARIABLE);
    const size_t count = (size_t)data->class_count;
    char **told = NULL;
    size_t named = 0;
    FshStatus status = FSH_OK;
    if (!count || !data->class_names)
        return FSH_OK;
    if (!manifest->class_display_names && usual && *usual)
        status = display_names_read(usual, data->class_names, count, false, &told, &named, error);
    if (status)
        return fsh_error_prepend(error, "$" DISPLAY_NAMES_VARIABLE);
    data->display_names = calloc(count + 1, sizeof *data->display_names);
    for (size_t i = 0; i < count && data->display_names && !status; i++) {
        const char *name = data->class_names[i];
        data->display_names[i] = join_names(told ? told[i] : display_name(manifest, i, name), name);
        if (!data->display_names[i])
            status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of classes");
    }
    if (!data->display_names)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the names of classes");
    display_names_free(told, count);
    return status;
}

void training_data_close(TrainingData *data)
{
    display_names_free(data->display_names, (size_t)data->class_count);
    display_names_free(data->mask_names, data->own_class_count);
    free(data->class_weights);
    free(data->positive_weights);
    training_labels_free(&data->labels);
    training_sets_free(&data->sets);
    fsh_close(&data->dataset);
    *data = (TrainingData){0};
}

/* ---- crops ---- */

/* The images of a split that are smaller than a crop. */
typedef struct TooSmall {
    uint64_t count, first;
    uint32_t first_width, first_height;
    uint32_t least_edge; /* of all images */
} TooSmall;

static void find_too_small(const TrainingData *data, const FshSplit *split, uint32_t size, TooSmall *found)
{
    *found = (TooSmall){.least_edge = size};
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshSample sample;
        if (fsh_sample_get(split, i, &sample, NULL) != FSH_OK)
            continue; /* the loader's matter */
        const FshField *field = &sample.fields[data->input_field];
        uint32_t edge = field->width < field->height ? field->width : field->height;
        if (edge == 0 || edge >= size)
            continue;
        if (found->count++ == 0) {
            found->first = i;
            found->first_width = field->width;
            found->first_height = field->height;
        }
        if (edge < found->least_edge)
            found->least_edge = edge;
    }
}

FshStatus training_data_check_crop(const TrainingData *data, const FshSplit *split, uint32_t size,
                                   FshError *error)
{
    TooSmall found;
    FshSample sample;
    char where[256];
    if (data->kind != FSH_KIND_PAIRS || (data->width_min >= size && data->height_min >= size))
        return FSH_OK;
    find_too_small(data, split, size, &found);
    if (found.count == 0)
        return FSH_OK;
    FshStatus status = fsh_sample_get(split, found.first, &sample, error);
    if (status)
        return status;
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "%s: %s (key %.*s) is %u x %u pixels, too small for a crop of %u x %u, as are %llu of "
        "the split's %llu; use --train-crop-size %u or less",
        fsh_path(data->dataset), fsh_sample_where(split, found.first, where, sizeof where),
        (int)sample.key_bytes, sample.key, found.first_width, found.first_height, size, size,
        (unsigned long long)found.count, (unsigned long long)split->sample_count, found.least_edge);
}
