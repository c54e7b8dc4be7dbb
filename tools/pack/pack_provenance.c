#include "tools/pack/pack_provenance.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"

static int add_integer(json_t *object, const char *key, uint64_t value)
{
    return json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* What goes with --store, and what auto chose. */
static int add_store(json_t *object, const PackPlan *plan, const PackOptions *options)
{
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

/* The options that decide what the dataset is; those left at "do nothing" are left out of the text too. */
static json_t *options_to_json(const PackPlan *plan, const PackOptions *options)
{
    json_t *object =
        json_pack("{s:s, s:b}", "store", pack_store_names[options->store], "check", options->check);
    int failed = !object || add_store(object, plan, options);
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

/* The source as the user wrote it, less slashes at its end. A path that is no UTF-8 is left out: JSON cannot
 * hold it. */
static json_t *source_to_json(const char *source)
{
    size_t length = strlen(source);
    while (length > 1 && source[length - 1] == '/')
        length--;
    json_t *text = json_stringn(source, length);
    return text ? text : json_string("");
}

char *provenance_json(const PackPlan *plan, const PackOptions *options)
{
    char *text = NULL;
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:o, s:I, s:O*, s:O*}", "tool", "fpack", "version", FSHARD_VERSION, "source",
        source_to_json(options->source), "options", options_to_json(plan, options), "planned",
        (json_int_t)plan->split.sample_count, "recipe", plan->stored.recipe, "from", plan->found.provenance);
    if (object)
        text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    return text;
}
