/* pack_dataset.c - a dataset as the source: its samples with the keys, labels, classes and splits that they
 * have, to be put into other shards, another container, another order or other splits.
 *
 * Bytes and keys stay where they are, in the dataset's mapping. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "common/file.h"
#include "common/path.h"
#include "common/text.h"
#include "tar/tar_source.h"
#include "tools/job/labels.h"
#include "tools/pack/pack_names.h"
#include "tools/pack/pack_keyed.h"

/* ---- is it one? ---- */

static bool ends_in(const char *name, const char *end)
{
    const size_t length = strlen(name), end_length = strlen(end);
    return length > end_length && strcmp(name + length - end_length, end) == 0;
}

/* Returns whether a folder holds a dataset: a manifest or an LMDB, or tars, LMDBs and shards without any
 * other folder. Tars beside class folders are downloads that were forgotten there. */
static bool folder_is_dataset(const char *folder)
{
    bool dataset = false, containers = false, others = false;
    DIR *stream = opendir(folder);
    for (const struct dirent *entry; stream && !dataset && (entry = readdir(stream));) {
        const char *name = entry->d_name;
        char path[PATH_MAX];
        if (name[0] == '.' || file_join(path, sizeof path, folder, name, NULL))
            continue;
        const bool is_folder = entry->d_type == DT_DIR || (entry->d_type != DT_REG && file_is_folder(path));
        dataset = !is_folder && (strcmp(name, FSH_MANIFEST_NAME) == 0 || strcmp(name, "data.mdb") == 0);
        if (ends_in(name, ".lmdb") || (!is_folder && (ends_in(name, ".tar") || ends_in(name, ".fshard"))))
            containers = true;
        else
            others = others || is_folder;
    }
    if (stream)
        (void)closedir(stream);
    return dataset || (containers && !others);
}

bool find_is_dataset(const char *source)
{
    if (file_is_folder(source))
        return folder_is_dataset(source);
    return file_exists(source) || path_names_several(source);
}

/* ---- which of its parts ---- */

FshStatus found_dataset_sample(const PackFound *found, uint64_t item, FshSample *sample, size_t *field_ret,
                               const FshSplit **split_ret, FshError *error)
{
    const FoundDataset *from = &found->from;
    const uint64_t number = item / from->field_count;
    uint32_t at = PACK_SPLITS;
    while (at-- > 0 && (!from->splits[at] || from->first_samples[at] > number))
        ;
    if (at >= PACK_SPLITS)
        return fsh_error_set(error, FSH_ERR_NOT_FOUND, "no such sample");
    *field_ret = item % from->field_count;
    if (split_ret)
        *split_ret = from->splits[at];
    FshStatus status = fsh_sample_get(from->splits[at], number - from->first_samples[at], sample, error);
    if (!status && *field_ret >= sample->field_count)
        status = fsh_error_set(error, FSH_ERR_MISMATCH, "has %u fields of %zu", sample->field_count,
                               from->field_count);
    return status;
}

/* Finds which of the dataset's splits are train, val and test. A single one of any other name is train. */
static FshStatus take_splits(PackFound *found, const FshManifest *manifest, FshError *error)
{
    FoundDataset *from = &found->from;
    for (size_t i = 0; i < manifest->split_count; i++) {
        const char *name = manifest->splits[i].name;
        PackSplitIndex split = pack_split_by_name(name, strlen(name));
        if (split == PACK_SPLITS && manifest->split_count == 1)
            split = PACK_TRAIN;
        if (split == PACK_SPLITS || from->splits[split])
            return fsh_error_set(error, FSH_ERR_MISMATCH,
                                 "%s: its split '%s' is not one of train, val and test, once each",
                                 found->root, name);
        from->splits[split] = fsh_split(from->dataset, name);
    }
    uint64_t sample_count = 0;
    for (uint32_t split = 0; split < PACK_SPLITS; split++) {
        from->first_samples[split] = sample_count;
        sample_count += from->splits[split] ? from->splits[split]->sample_count : 0;
    }
    found->item_count = sample_count * from->field_count;
    return FSH_OK;
}

static FshStatus refuse_field(const PackFound *found, const FshManifest *manifest, const char *name,
                              FshError *error)
{
    char names[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < manifest->field_count && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ":" : "",
                                 manifest->field_names[i]);
    return fsh_error_set(error, FSH_ERR_USAGE, "--pairs: %s has no field '%s'; it has %s", found->root, name,
                         names);
}

/* Chooses the fields: all of them, or those that --pairs names. */
static FshStatus take_fields(PackFound *found, const FshManifest *manifest, FshError *error)
{
    const PackOptions *options = found->options;
    const bool has_masks = manifest->kind == FSH_KIND_MASKS;
    found->kind = options->masks ? FSH_KIND_MASKS : manifest->kind;
    found->from.field_count = manifest->field_count;
    if (options->field_count && manifest->kind == FSH_KIND_CLASSES)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: %s is a dataset of classes, which holds no pairs",
                             options->masks ? "masks" : "pairs", found->root);
    if (options->masks && manifest->pair_scale > 1)
        return fsh_error_set(error, FSH_ERR_USAGE, "--masks: the sides of %s differ by a factor of %u",
                             found->root, (unsigned)manifest->pair_scale);
    if (has_masks && options->field_count &&
        (!options->masks || strcmp(options->field_names[0], manifest->field_names[0]) != 0))
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: %s holds images and masks; give --masks %s:%s",
                             options->masks ? "masks" : "pairs", found->root, manifest->field_names[0],
                             manifest->field_names[1]);
    if (has_masks && options->resize.max_size)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--max-size: %s holds masks, which are stored as they are; leave it out",
                             found->root);
    if (has_masks && !fsh_container_has(options->container, FSH_HAS_METADATA))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: holds masks; only --format shards and lmdb note that a field is one",
                             found->root);
    found->field_count = options->field_count ? options->field_count : manifest->field_count;
    for (size_t i = 0; i < found->field_count; i++) {
        size_t field = options->field_count ? 0 : i;
        while (options->field_count && field < manifest->field_count &&
               strcmp(manifest->field_names[field], options->field_names[i]) != 0)
            field++;
        if (field == manifest->field_count)
            return refuse_field(found, manifest, options->field_names[i], error);
        found->from.fields[i] = field;
        found->field_names[i] = manifest->field_names[field];
    }
    /* Kept where the small side still comes first; without it the others are of one size. */
    if (options->pair_scale <= 1 && found->from.fields[0] == 0 && found->field_count > 1)
        found->pair_scale = manifest->pair_scale;
    if (found->pair_scale > 1 && options->resize.max_size)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--max-size: the sides of %s differ by a factor of %u, and each image is made smaller "
            "by its own; leave it out",
            found->root, (unsigned)found->pair_scale);
    return FSH_OK;
}

/* Takes what the dataset's own packing noted: where it comes from and how its images were made smaller. */
static void take_provenance(PackFound *found, const FshManifest *manifest)
{
    found->provenance = manifest->provenance_json ? json_loads(manifest->provenance_json, 0, NULL) : NULL;
    found->recipe = json_incref(json_object_get(found->provenance, "recipe"));
    if (json_object_size(found->provenance) == 0) { /* another tool's, or a single file */
        json_decref(found->provenance);
        found->provenance = NULL;
    }
}

static uint64_t mix_times(uint64_t hash, uint64_t bytes, int64_t modified_ns)
{
    const uint64_t numbers[] = {hash, bytes, (uint64_t)modified_ns};
    return XXH3_64bits(numbers, sizeof numbers);
}

/* Notes times and sizes of all files of the dataset, in one number: a tar may be written again in its place,
 * and the folder does not change. */
static FshStatus note_times(PackFound *found, const FshManifest *manifest, int jobs, FshError *error)
{
    uint64_t hash = 0;
    FshStatus status = FSH_OK;
    if (file_is_folder(found->root)) {
        FileList list = {0};
        status = walk_files(found->root, jobs, &list, error);
        for (uint64_t i = 0; i < list.count; i++)
            hash = mix_times(hash, list.files[i].bytes, list.files[i].modified_ns);
        file_list_free(&list);
        found->from.modified = (int64_t)hash;
        return status;
    }
    /* One file, or several in one word, which are named by whole paths then. */
    const bool single = file_exists(found->root);
    for (size_t i = 0; i < manifest->split_count; i++) {
        for (size_t f = 0; f < manifest->splits[i].file_count; f++) {
            struct stat facts;
            if (stat(single ? found->root : manifest->splits[i].files[f].name, &facts) == 0)
                hash = mix_times(hash, (uint64_t)facts.st_size, file_time_ns(facts.st_mtim));
        }
    }
    found->from.modified = (int64_t)hash;
    return FSH_OK;
}

FshStatus find_dataset(PackFound *found, FshError *error)
{
    FshStatus status = fsh_open(&found->from.dataset, found->root, error);
    if (status)
        return status;
    const FshManifest *manifest = fsh_manifest(found->from.dataset);
    status = note_times(found, manifest, found->options->jobs, error);
    if (status)
        return status;
    take_provenance(found, manifest);
    status = take_fields(found, manifest, error);
    return status ? status : take_splits(found, manifest, error);
}

/* ---- its samples ---- */

static FshStatus take_sample(PackKeyed *keyed, PackSplitIndex split, PackSplitIndex become, uint64_t index,
                             FshError *error)
{
    const FoundDataset *from = &keyed->found->from;
    uint64_t items[FSH_FIELDS_MAX];
    FshSample sample;
    FshError failure = {0};
    size_t field = 0;
    const uint64_t first_item = (from->first_samples[split] + index) * from->field_count;
    FshStatus status = found_dataset_sample(keyed->found, first_item + from->field_count - 1, &sample, &field,
                                            NULL, &failure); /* its last field: all are there */
    if (!status && sample.label > INT32_MAX)
        status = fsh_error_set(&failure, FSH_ERR_MISMATCH, "its label is out of range");
    if (status == FSH_ERR_MEMORY)
        return fsh_error_set(error, status, "%s", failure.message);
    if (status) {
        char where[PATH_MAX];
        return notes_add(&keyed->found->notes->left_out, status,
                         fsh_sample_where(from->splits[split], index, where, sizeof where), failure.message,
                         error);
    }
    for (size_t i = 0; i < keyed->found->field_count; i++)
        items[i] = first_item + from->fields[i];
    keyed_add_sample(keyed, sample.key, sample.key_bytes, (int32_t)sample.label, become, items);
    return FSH_OK;
}

static FshStatus take_samples(PackKeyed *keyed, FshError *error)
{
    FshStatus status = keyed_reserve(keyed, keyed->found->item_count / keyed->found->from.field_count, error);
    for (uint32_t split = 0; split < PACK_SPLITS; split++) {
        const FshSplit *samples = keyed->found->from.splits[split];
        const bool joins =
            split == PACK_VAL && keyed->found->options->val_fraction > 0; /* to be drawn anew */
        for (uint64_t i = 0; samples && i < samples->sample_count && !status; i++)
            status = take_sample(keyed, (PackSplitIndex)split, joins ? PACK_TRAIN : (PackSplitIndex)split, i,
                                 error);
        if (joins && samples && !status)
            status =
                notes_addf(&keyed->found->notes->warnings, FSH_OK, error, "--split",
                           "puts back the val split that is there: %llu sample%s for train",
                           (unsigned long long)samples->sample_count, text_plural(samples->sample_count));
    }
    return status;
}

/* Takes the names of the classes; where the container knows numbers only, the numbers. */
static FshStatus take_classes(PackKeyed *keyed, const FshManifest *manifest, FshError *error)
{
    NameList names = {0};
    FshStatus status = FSH_OK;
    int64_t most = -1;
    if (keyed->found->kind != FSH_KIND_CLASSES)
        return FSH_OK;
    for (size_t i = 0; i < manifest->class_count && !status; i++)
        status = names_add(&names, manifest->class_names[i], error);
    for (uint64_t i = 0; i < keyed->sample_count && !manifest->class_count; i++)
        most = keyed->samples[i].label > most ? keyed->samples[i].label : most;
    if (!manifest->class_count)
        status = names_add_numbers(&names, (uint64_t)(most + 1), keyed->found->root, error);
    keyed->class_names = names.names;
    keyed->class_count = names.count;
    return status;
}

/* Returns the label of a sample; NULL: none. It is looked for by the key, which has no extension; labels are
 * of files, which have one. */
static const char *find_text(const Labels *labels, const PackSample *sample)
{
    static const char *const extensions[] = {"",      ".jpg", ".JPEG", ".jpeg", ".JPG", ".png",
                                             ".webp", ".tif", ".bmp",  ".gif",  ".ppm", ".PNG"};
    const char *text = NULL;
    for (size_t i = 0; i < sizeof extensions / sizeof extensions[0] && !text; i++) {
        char name[PATH_MAX];
        const int length =
            snprintf(name, sizeof name, "%.*s%s", (int)sample->key_bytes, sample->key, extensions[i]);
        if (length > 0 && (size_t)length < sizeof name)
            text = labels_find(labels, name);
    }
    return text;
}

/* Fills texts with a label for each sample, and removes samples that have none. Samples without a label in
 * the dataset are looked for by key; those that have one keep it, by the name of its class. */
static FshStatus find_texts(PackKeyed *keyed, const Labels *labels, const char **texts, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    const FshManifest *manifest = fsh_manifest(keyed->found->from.dataset);
    FshStatus status = FSH_OK;
    uint64_t kept = 0, unlabelled = 0;
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        const PackSample *sample = &keyed->samples[i];
        const char *text =
            sample->label >= 0 ? manifest->class_names[sample->label] : find_text(labels, sample);
        unlabelled += sample->label < 0;
        if (text) {
            texts[kept] = text;
            keyed->samples[kept++] = *sample;
        } else {
            char key[PATH_MAX];
            (void)snprintf(key, sizeof key, "%.*s", (int)sample->key_bytes, sample->key);
            status = notes_addf(&keyed->found->notes->left_out, FSH_ERR_NOT_FOUND, error, key,
                                "has no label in %s", options->labels);
        }
    }
    keyed->sample_count = kept;
    if (!status && kept == 0)
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND, "--labels: %s names none of the %llu samples of %s",
                               options->labels, (unsigned long long)unlabelled, keyed->found->root);
    if (!status && !unlabelled)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "--labels: %s is a dataset in which every sample has a label; leave it out",
                               keyed->found->root);
    return status;
}

static FshStatus take_labels(PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    Labels *labels = NULL;
    if (keyed->found->kind != FSH_KIND_CLASSES)
        return fsh_error_set(error, FSH_ERR_USAGE, "--labels: %s is a dataset of pairs, which have no labels",
                             keyed->found->root);
    FshStatus status = labels_load(&labels, options->labels, error);
    const char **texts = status ? NULL : calloc(keyed->sample_count + 1, sizeof *texts);
    if (!status && !texts)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    if (!status)
        status = find_texts(keyed, labels, texts, error);
    if (!status)
        status = key_label_by_texts(keyed, texts, options->labels, error);
    free(texts);
    labels_free(&labels);
    return status;
}

/* Returns whether the samples are of tars without a manifest and none has a label: their folders may tell. */
static bool may_have_class_folders(const PackKeyed *keyed)
{
    const FshManifest *manifest = fsh_manifest(keyed->found->from.dataset);
    if (keyed->found->kind != FSH_KIND_CLASSES || manifest->version ||
        !fsh_container_has(manifest->container, FSH_HAS_MEMBERS))
        return false;
    for (uint64_t i = 0; i < keyed->sample_count; i++)
        if (keyed->samples[i].label >= 0)
            return false;
    return true;
}

/* Refuses a dataset of classes in which no sample has a label, as in a tar of images alone, and warns of
 * some. */
static FshStatus check_labels(PackKeyed *keyed, FshError *error)
{
    uint64_t count = 0;
    const PackSample *example = NULL;
    for (uint64_t i = keyed->found->kind == FSH_KIND_CLASSES ? keyed->sample_count : 0; i-- > 0;) {
        count += keyed->samples[i].label < 0;
        example = keyed->samples[i].label < 0 ? &keyed->samples[i] : example;
    }
    if (!count)
        return FSH_OK;
    if (count == keyed->sample_count)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: none of its samples (%llu) has a label, and they are no pairs: %ssay with "
                             "--labels what they are",
                             keyed->found->root, (unsigned long long)count,
                             memchr(example->key, '/', example->key_bytes)
                                 ? "their folders are no CLASS/ or SPLIT/CLASS/ throughout; "
                                 : "");
    return notes_addf(&keyed->found->notes->warnings, FSH_OK, error, keyed->found->root,
                      "kept %llu sample%s without a label, such as %.*s", (unsigned long long)count,
                      text_plural(count), (int)example->key_bytes, example->key);
}

/* Warns of tars that may be cut short where nothing else shows it. */
static FshStatus warn_unmarked(PackKeyed *keyed, FshError *error)
{
    const char *first = NULL;
    const uint64_t count = fsh_unmarked_files(keyed->found->from.dataset, &first);
    return count ? notes_addf(&keyed->found->notes->warnings, FSH_OK, error, first, "%llu " TAR_UNMARKED,
                              (unsigned long long)count, text_plural(count))
                 : FSH_OK;
}

FshStatus key_dataset(PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    bool by_folders = false;
    FshStatus status = take_samples(keyed, error);
    if (!status)
        status = warn_unmarked(keyed, error);
    if (!status && options->labels)
        status = take_labels(keyed, error);
    else if (!status && may_have_class_folders(keyed))
        status = key_label_by_folders(keyed, &by_folders, error);
    if (!status)
        status = check_labels(keyed, error);
    if (!status && !options->labels && !by_folders)
        status = take_classes(keyed, fsh_manifest(keyed->found->from.dataset), error);
    return status ? status : key_mend(keyed, error);
}
