#include "tools/pack/pack_blueprint.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/seal.h"
#include "tools/job/contents.h"

void blueprint_free(Blueprint *blueprint)
{
    fsh_manifest_free(&blueprint->manifest);
    free(blueprint->record_bytes);
    *blueprint = (Blueprint){0};
}

static FshStatus out_of_memory(FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", FSH_MANIFEST_NAME);
}

/* ---- provenance ---- */

static int add_integer(json_t *object, const char *key, uint64_t value)
{
    return json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* Adds the options that go with --store, and what auto chose. Returns 0, or else that it failed. */
static int add_store(json_t *object, const PackPlan *plan)
{
    const PackOptions *options = plan->found.options;
    int failed = 0;
    if (options->store == PACK_STORE_JPEG)
        failed |= add_integer(object, "quality", (uint64_t)options->resize.quality);
    if (options->store == PACK_STORE_ZSTD || options->dictionary_bytes)
        failed |= add_integer(object, "level", (uint64_t)options->level);
    if (options->dictionary_bytes)
        failed |= add_integer(object, "dictionary_size", options->dictionary_bytes);
    if (options->store != PACK_STORE_AUTO)
        return failed;
    if (options->raw_under)
        failed |= add_integer(object, "raw_under", options->raw_under);
    if (options->budget_bytes)
        failed |= add_integer(object, "budget", options->budget_bytes);
    return failed |
           json_object_set_new(object, "chosen",
                               json_pack("{s:I, s:I}", "raw", (json_int_t)plan->stored.chosen.raw_count,
                                         "copy", (json_int_t)plan->stored.chosen.copy_count));
}

json_t *blueprint_options(const PackPlan *plan)
{
    const PackOptions *options = plan->found.options;
    json_t *object =
        json_pack("{s:s, s:b}", "store", pack_store_names[options->store], "check", options->check);
    int failed = !object || add_store(object, plan);
    if (pack_is_cut(options))
        failed |= json_object_set_new(object, "shard_size", json_integer((json_int_t)options->shard_bytes));
    if (options->shuffle)
        failed |= json_object_set_new(object, "shuffle", json_integer((json_int_t)options->shuffle_seed));
    if (options->limit)
        failed |= json_object_set_new(object, "limit", json_integer((json_int_t)options->limit));
    if (options->val_fraction > 0)
        failed |= json_object_set_new(object, "split", json_real(options->val_fraction));
    if (options->limit || options->val_fraction > 0)
        failed |= json_object_set_new(object, "seed", json_integer((json_int_t)options->seed));
    const struct {
        const char *key, *path;
    } files[] = {{"files_from", options->files_from},
                 {"labels", options->labels},
                 {"classes", options->classes},
                 {"class_names", options->class_names}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i].path)
            failed |= json_object_set_new(object, files[i].key, json_text(files[i].path));
    }
    if (options->dedupe)
        failed |= json_object_set_new(object, "dedupe", json_true());
    if (options->field_count) {
        json_t *fields = json_array();
        for (size_t i = 0; i < plan->found.field_count; i++)
            failed |= json_array_append_new(fields, json_string(plan->found.field_names[i]));
        failed |= json_object_set_new(object, "fields", fields);
    }
    json_t *sides = options->root[0] ? json_array() : NULL, *suffixes = NULL;
    for (size_t i = 0; i < options->field_count; i++) {
        if (sides)
            failed |= json_array_append_new(sides, json_text(options->side_folders[i]));
        if (options->side_suffixes[i][0]) {
            suffixes = suffixes ? suffixes : json_object();
            failed |=
                json_object_set_new(suffixes, options->field_names[i], json_text(options->side_suffixes[i]));
        }
    }
    if (sides)
        failed |= json_object_set_new(object, "side_folders", sides);
    if (suffixes)
        failed |= json_object_set_new(object, "pair_suffix", suffixes);
    if (options->pair_scale > 1)
        failed |= add_integer(object, "pair_scale", options->pair_scale);
    failed |= json_object_set_new(object, "max_pixels", json_integer((json_int_t)options->max_pixels));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

json_t *blueprint_source(const char *source)
{
    size_t length = strlen(source);
    while (length > 1 && source[length - 1] == '/')
        length--;
    json_t *text = json_stringn(source, length);
    return text ? text : json_string("");
}

json_t *blueprint_provenance(const PackPlan *plan)
{
    const PackOptions *options = plan->found.options;
    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:O*, s:O*}", "tool", "fpack", "version", FSHARD_VERSION,
                     "source", blueprint_source(options->address ? options->address : options->source),
                     "options", blueprint_options(plan), "planned", (json_int_t)plan->split.sample_count,
                     "recipe", plan->stored.recipe, "from", plan->found.provenance);
}

/* Returns the same as text, owned by the caller; NULL: out of memory. */
static char *provenance_text(const PackPlan *plan)
{
    json_t *object = blueprint_provenance(plan);
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(object);
    return text;
}

/* ---- parts of a manifest ---- */

static bool copy_names(char ***copies_ret, size_t *count_ret, const char *const *names, size_t count)
{
    char **copies = calloc(count + 1, sizeof *copies);
    *copies_ret = copies;
    for (size_t i = 0; copies && i < count; i++) {
        copies[i] = strdup(names[i]);
        if (!copies[i])
            return false;
        *count_ret = i + 1;
    }
    return copies != NULL;
}

/* Appends a split of file_count files to the manifest, which has room for it. False: out of memory. */
static bool add_split(Blueprint *blueprint, const char *name, size_t file_count)
{
    FshManifest *manifest = &blueprint->manifest;
    FshSplitInfo *split = &manifest->splits[manifest->split_count++];
    split->name = strdup(name);
    split->files = calloc(file_count + 1, sizeof *split->files);
    if (manifest->kind == FSH_KIND_CLASSES)
        split->class_counts = calloc(manifest->class_count + 1, sizeof *split->class_counts);
    if (!split->name || !split->files || (manifest->kind == FSH_KIND_CLASSES && !split->class_counts))
        return false;
    for (size_t i = 0; i < file_count; i++) {
        char file_name[NAME_MAX + 1];
        (void)fsh_file_name(file_name, sizeof file_name, manifest->container, name, (uint32_t)i,
                            (uint32_t)file_count);
        split->files[i].name = strdup(file_name);
        if (!split->files[i].name)
            return false;
        split->file_count++;
        blueprint->output_count++;
    }
    return true;
}

FshStatus blueprint_make(Blueprint *blueprint, const PackPlan *plan, FshError *error)
{
    *blueprint = (Blueprint){.left_out_count = plan->notes.left_out.count};
    FshManifest *manifest = &blueprint->manifest;
    manifest->container = plan->found.options->container;
    manifest->kind = plan->found.kind;
    manifest->pair_scale = plan->found.pair_scale;
    memcpy(manifest->id, plan->id, sizeof manifest->id);
    manifest->provenance_json = provenance_text(plan);
    manifest->splits = calloc(PACK_SPLITS, sizeof *manifest->splits);
    bool complete = manifest->provenance_json && manifest->splits &&
                    copy_names(&manifest->field_names, &manifest->field_count, plan->found.field_names,
                               plan->found.field_count);
    if (complete && plan->keyed.class_count)
        complete = copy_names(&manifest->class_names, &manifest->class_count,
                              (const char *const *)plan->keyed.class_names, plan->keyed.class_count);
    size_t display_count = 0;
    if (complete && plan->keyed.display_names)
        complete = copy_names(&manifest->class_display_names, &display_count,
                              (const char *const *)plan->keyed.display_names, plan->keyed.class_count);
    if (complete && plan->keyed.mask_names)
        complete = copy_names(&manifest->mask_names, &manifest->mask_name_count,
                              (const char *const *)plan->keyed.mask_names, plan->keyed.mask_name_count);
    for (uint32_t split = 0; split < PACK_SPLITS && complete; split++) {
        size_t file_count = 0;
        for (size_t i = 0; i < plan->output_count; i++)
            file_count += plan->outputs[i].split == split;
        if (file_count)
            complete = add_split(blueprint, fsh_split_name(split), file_count);
    }
    blueprint->part_count = plan->found.options->part.count;
    blueprint->record_bytes = calloc(plan->output_count + 1, sizeof *blueprint->record_bytes);
    for (size_t i = 0; i < plan->output_count && blueprint->record_bytes; i++)
        blueprint->record_bytes[i] = plan->outputs[i].record_bytes;
    FshStatus status = complete && blueprint->record_bytes ? FSH_OK : out_of_memory(error);
    if (!status && plan->stored.dictionary)
        status = fsh_dictionary_describe(plan->stored.dictionary, plan->stored.dictionary_bytes,
                                         &manifest->dictionary, error);
    if (status)
        blueprint_free(blueprint);
    return status;
}

FshStatus blueprint_scan(const Blueprint *blueprint, PartScan **scan_ret, FshError *error)
{
    PartScan *scan = malloc(sizeof *scan);
    *scan_ret = scan;
    if (!scan)
        return out_of_memory(error);
    part_scan_init(scan);
    for (size_t i = 0; i < blueprint->output_count; i++)
        part_scan_add(scan, blueprint->record_bytes[i]);
    return FSH_OK;
}

FshStatus blueprint_part(const Blueprint *blueprint, Part part, size_t *begin_ret, size_t *end_ret,
                         FshError *error)
{
    PartScan *scan = NULL;
    uint64_t begin = 0, end = 0;
    FshStatus status = blueprint_scan(blueprint, &scan, error);
    if (status)
        return status;
    part_scan_range(scan, part, &begin, &end);
    free(scan);
    *begin_ret = (size_t)begin;
    *end_ret = (size_t)end;
    return FSH_OK;
}

/* ---- adding up ---- */

FshFileInfo *blueprint_output(const Blueprint *blueprint, size_t index, FshSplitInfo **split_ret)
{
    FshSplitInfo *split = blueprint->manifest.splits;
    while (index >= split->file_count) {
        index -= split->file_count;
        split++;
    }
    *split_ret = split;
    return &split->files[index];
}

void blueprint_add(Blueprint *blueprint, size_t index, OutputResult *output)
{
    FshSplitInfo *split = NULL;
    FshFileInfo *file = blueprint_output(blueprint, index, &split);
    free(file->name);
    *file = output->info;
    output->info.name = NULL;
    split->sample_count += file->sample_count;
    for (size_t i = 0; split->class_counts && i < blueprint->manifest.class_count; i++)
        split->class_counts[i] += output->class_counts[i];
    stats_merge(&blueprint->statistics, &output->statistics);
    blueprint->left_out_count += output->left_out.count;
}

FshStatus blueprint_finish(Blueprint *blueprint, FshError *error)
{
    FshManifest *manifest = &blueprint->manifest;
    manifest->statistics = stats_finish(&blueprint->statistics);
    json_t *provenance = json_loads(manifest->provenance_json, 0, NULL);
    char *text = NULL;
    if (provenance &&
        json_object_set_new(provenance, "left_out", json_integer((json_int_t)blueprint->left_out_count)) == 0)
        text = json_dumps(provenance, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(provenance);
    if (!text)
        return out_of_memory(error);
    free(manifest->provenance_json);
    manifest->provenance_json = text;
    return FSH_OK;
}

/* ---- the file ---- */

enum { BLUEPRINT_VERSION = 3, BLUEPRINT_BYTES_MAX = 256 << 20 };

static json_t *names_to_json(char *const *names, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) {
        if (json_array_append_new(array, json_string(names[i]))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *record_bytes_to_json(const Blueprint *blueprint)
{
    json_t *array = json_array();
    for (size_t i = 0; i < blueprint->output_count; i++) {
        if (json_array_append_new(array, json_integer((json_int_t)blueprint->record_bytes[i]))) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* Reads the bytes of the outputs, of which there are as many as the splits have files. */
static bool record_bytes_from_json(const json_t *array, Blueprint *blueprint)
{
    blueprint->record_bytes = calloc(blueprint->output_count + 1, sizeof *blueprint->record_bytes);
    bool good = blueprint->record_bytes && json_array_size(array) == blueprint->output_count;
    for (size_t i = 0; i < blueprint->output_count && good; i++) {
        const json_int_t bytes = json_integer_value(json_array_get(array, i));
        blueprint->record_bytes[i] = (uint64_t)bytes;
        good = bytes >= 0;
    }
    return good;
}

static json_t *dictionary_to_json(const FshDictionaryInfo *dictionary)
{
    char hash[33];
    resume_hash_to_text(&dictionary->hash, hash);
    return json_pack("[I, I, s]", (json_int_t)dictionary->bytes, (json_int_t)dictionary->id, hash);
}

static bool dictionary_from_json(const json_t *array, FshDictionaryInfo *dictionary)
{
    const json_int_t bytes = json_integer_value(json_array_get(array, 0));
    const json_int_t id = json_integer_value(json_array_get(array, 1));
    *dictionary = (FshDictionaryInfo){.bytes = (uint32_t)bytes, .id = (uint32_t)id};
    return bytes >= 0 && bytes <= FSH_DICTIONARY_BYTES_MAX && id >= 0 && id <= UINT32_MAX &&
           resume_hash_from_text(json_string_value(json_array_get(array, 2)), &dictionary->hash);
}

FshStatus blueprint_save(const Blueprint *blueprint, const char *folder, FshError *error)
{
    char path[PATH_MAX];
    const FshManifest *manifest = &blueprint->manifest;
    json_t *splits = json_array();
    int failed = !splits;
    for (size_t i = 0; i < manifest->split_count; i++)
        failed |= json_array_append_new(splits, json_pack("[s, I]", manifest->splits[i].name,
                                                          (json_int_t)manifest->splits[i].file_count));
    json_t *object = json_pack(
        "{s:i, s:s, s:i, s:i, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:I, s:o}", "version", BLUEPRINT_VERSION,
        "id", manifest->id, "container", (int)manifest->container, "kind", (int)manifest->kind, "pair_scale",
        (json_int_t)manifest->pair_scale, "fields",
        names_to_json(manifest->field_names, manifest->field_count), "classes",
        names_to_json(manifest->class_names, manifest->class_count), "splits", splits, "left_out",
        (json_int_t)blueprint->left_out_count, "provenance", json_loads(manifest->provenance_json, 0, NULL),
        "dictionary", dictionary_to_json(&manifest->dictionary), "parts", (json_int_t)blueprint->part_count,
        "record_bytes", record_bytes_to_json(blueprint));
    if (object && manifest->class_display_names)
        failed |= json_object_set_new(object, "display_names",
                                      names_to_json(manifest->class_display_names, manifest->class_count));
    if (object && manifest->mask_names)
        failed |= json_object_set_new(object, "mask_names",
                                      names_to_json(manifest->mask_names, manifest->mask_name_count));
    FshStatus status =
        object && !failed
            ? file_join(path, sizeof path, folder, CONTENTS_BLUEPRINT_NAME, error)
            : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory, or names that are not UTF-8",
                            CONTENTS_BLUEPRINT_NAME);
    if (!status)
        status = seal_write(path, object, JSON_COMPACT, error);
    json_decref(object);
    return status;
}

static bool names_from_json(const json_t *array, char ***names_ret, size_t *count_ret)
{
    const size_t count = json_array_size(array);
    const char **names = calloc(count + 1, sizeof *names);
    bool good = names && json_is_array(array);
    for (size_t i = 0; good && i < count; i++) {
        names[i] = json_string_value(json_array_get(array, i));
        good = names[i] != NULL;
    }
    good = good && copy_names(names_ret, count_ret, names, count);
    free((void *)names);
    return good;
}

/* Returns whether name is a split's. Names of files are made of it: one with a slash in it would lead out of
 * the dataset. */
static bool is_split_name(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < PACK_SPLITS; i++)
        found |= strcmp(name, fsh_split_name(i)) == 0;
    return found;
}

static bool splits_from_json(const json_t *array, Blueprint *blueprint)
{
    const size_t count = json_array_size(array);
    if (count < 1 || count > PACK_SPLITS)
        return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *split = json_array_get(array, i);
        const char *name = json_string_value(json_array_get(split, 0));
        const json_int_t file_count = json_integer_value(json_array_get(split, 1));
        if (!name || !is_split_name(name) || file_count < 1 || file_count > PACK_SHARDS_MAX ||
            !add_split(blueprint, name, (size_t)file_count))
            return false;
    }
    return true;
}

static bool from_json(const json_t *object, Blueprint *blueprint)
{
    FshManifest *manifest = &blueprint->manifest;
    const char *id = json_string_value(json_object_get(object, "id"));
    const json_t *provenance = json_object_get(object, "provenance");
    if (json_integer_value(json_object_get(object, "version")) != BLUEPRINT_VERSION || !id ||
        strlen(id) != sizeof manifest->id - 1 || !json_is_object(provenance))
        return false;
    memcpy(manifest->id, id, sizeof manifest->id);
    manifest->container = (FshContainer)json_integer_value(json_object_get(object, "container"));
    manifest->kind = (FshKind)json_integer_value(json_object_get(object, "kind"));
    manifest->pair_scale = (uint32_t)json_integer_value(json_object_get(object, "pair_scale"));
    blueprint->left_out_count = (uint64_t)json_integer_value(json_object_get(object, "left_out"));
    const json_int_t part_count = json_integer_value(json_object_get(object, "parts"));
    if (part_count < 1 || part_count > PARTS_MAX)
        return false;
    blueprint->part_count = (uint32_t)part_count;
    manifest->provenance_json = json_dumps(provenance, JSON_COMPACT | JSON_SORT_KEYS);
    manifest->splits = calloc(PACK_SPLITS, sizeof *manifest->splits);
    const json_t *classes = json_object_get(object, "classes");
    bool good =
        manifest->provenance_json && manifest->splits &&
        names_from_json(json_object_get(object, "fields"), &manifest->field_names, &manifest->field_count);
    if (good && json_array_size(classes))
        good = names_from_json(classes, &manifest->class_names, &manifest->class_count);
    const json_t *display = json_object_get(object, "display_names");
    size_t display_count = 0;
    if (good && display)
        good = json_array_size(display) == manifest->class_count &&
               names_from_json(display, &manifest->class_display_names, &display_count);
    const json_t *masks = json_object_get(object, "mask_names");
    if (good && masks)
        good = names_from_json(masks, &manifest->mask_names, &manifest->mask_name_count);
    return good && dictionary_from_json(json_object_get(object, "dictionary"), &manifest->dictionary) &&
           splits_from_json(json_object_get(object, "splits"), blueprint) &&
           record_bytes_from_json(json_object_get(object, "record_bytes"), blueprint);
}

/* Refuses a folder without a blueprint, and says why it has none. */
static FshStatus refuse_folder(const char *folder, FshError *error)
{
    char manifest[PATH_MAX];
    if (!file_join(manifest, sizeof manifest, folder, FSH_MANIFEST_NAME, NULL) && file_exists(manifest))
        return fsh_error_set(error, FSH_ERR_NOT_FOUND,
                             "%s: holds a finished dataset, and no part of one is left", folder);
    return fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: holds no part of a dataset (no %s)", folder,
                         CONTENTS_BLUEPRINT_NAME);
}

FshStatus blueprint_load(Blueprint *blueprint, const char *folder, FshError *error)
{
    char path[PATH_MAX];
    json_t *object = NULL;
    FshError damage = {0};
    *blueprint = (Blueprint){0};
    FshStatus status = file_join(path, sizeof path, folder, CONTENTS_BLUEPRINT_NAME, error);
    if (!status && !file_exists(path))
        status = refuse_folder(folder, error);
    if (status)
        return status;
    status = seal_read(path, BLUEPRINT_BYTES_MAX, true, &object, &damage);
    if (status && status != FSH_ERR_CORRUPT)
        return fsh_error_set(error, status, "%s", damage.message);
    if (status || !from_json(object, blueprint)) {
        blueprint_free(blueprint);
        status = fsh_error_set(error, FSH_ERR_CORRUPT,
                               "%s: is damaged, or of another version of fpack; pack that part again", path);
    }
    json_decref(object);
    return status;
}
