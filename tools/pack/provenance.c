#include "tools/pack/provenance.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static char **copy_names(const char *const *names, size_t count)
{
    char **copies = calloc(count + 1, sizeof *copies);
    for (size_t i = 0; copies && i < count; i++) {
        copies[i] = strdup(names[i]);
        if (copies[i])
            continue;
        while (i-- > 0)
            free(copies[i]);
        free(copies);
        return NULL;
    }
    return copies;
}

/* The options that decide what the dataset is; those left at "do nothing" are left out of the text too. */
static json_t *options_to_json(const Plan *plan, const PackOptions *options)
{
    json_t *object = json_pack("{s:s, s:b}", "store", options->store == PACK_STORE_RAW ? "raw" : "copy",
                               "check", options->check);
    int failed = !object;
    if (options->container == FSH_CONTAINER_SHARDS)
        failed |= json_object_set_new(object, "shard_size", json_integer((json_int_t)options->shard_bytes));
    if (options->shuffle)
        failed |= json_object_set_new(object, "shuffle", json_integer((json_int_t)options->shuffle_seed));
    if (options->limit)
        failed |= json_object_set_new(object, "limit", json_integer((json_int_t)options->limit));
    if (options->val_fraction > 0)
        failed |= json_object_set_new(object, "split", json_real(options->val_fraction));
    if (options->limit || options->val_fraction > 0)
        failed |= json_object_set_new(object, "seed", json_integer((json_int_t)options->seed));
    if (options->field_count) {
        json_t *fields = json_array();
        for (size_t i = 0; i < plan->field_count; i++)
            failed |= json_array_append_new(fields, json_string(plan->field_names[i]));
        failed |= json_object_set_new(object, "fields", fields);
    }
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

static char *provenance_json(const Plan *plan, const PackOptions *options, const PackTotals *totals)
{
    char *text = NULL;
    const uint64_t left_out_count = totals->left_out_count + plan->left_out.count;
    json_t *object = json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:O*}", "tool", "fpack", "version",
                               FSHARD_VERSION, "source", source_to_json(options->source), "options",
                               options_to_json(plan, options), "left_out", (json_int_t)left_out_count,
                               "planned", (json_int_t)plan->sample_count, "recipe", plan->recipe);
    if (object)
        text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    return text;
}

/* One split of the manifest. False: out of memory. */
static bool fill_split(const Plan *plan, const PackTotals *totals, uint32_t split, FshSplitInfo *info)
{
    info->name = strdup(plan_split_names[split]);
    info->sample_count = totals->sample_counts[split];
    info->files = calloc(plan->output_count + 1, sizeof *info->files);
    if (!info->name || !info->files)
        return false;
    if (plan->class_count) {
        info->class_counts = calloc(plan->class_count, sizeof *info->class_counts);
        if (!info->class_counts)
            return false;
        memcpy(info->class_counts, totals->class_counts[split],
               plan->class_count * sizeof *info->class_counts);
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        if (plan->outputs[i].split != split)
            continue;
        FshFileInfo *file = &info->files[info->file_count++];
        *file = totals->infos[i];
        file->name = strdup(totals->infos[i].name);
        if (!file->name)
            return false;
    }
    return true;
}

FshStatus provenance_manifest(const Plan *plan, const PackOptions *options, const PackTotals *totals,
                              FshManifest *manifest, FshError *error)
{
    *manifest = (FshManifest){.container = options->container, .kind = plan->kind};
    memcpy(manifest->id, plan->id, sizeof manifest->id);
    manifest->statistics = stats_finish(&totals->statistics);
    manifest->provenance_json = provenance_json(plan, options, totals);
    manifest->field_names = copy_names(plan->field_names, plan->field_count);
    manifest->field_count = manifest->field_names ? plan->field_count : 0;
    manifest->splits = calloc(PLAN_SPLITS, sizeof *manifest->splits);
    bool complete = manifest->provenance_json && manifest->field_names && manifest->splits;
    if (plan->class_count) {
        manifest->class_names = copy_names((const char *const *)plan->class_names, plan->class_count);
        manifest->class_count = manifest->class_names ? plan->class_count : 0;
        complete = complete && manifest->class_names;
    }
    for (uint32_t split = 0; split < PLAN_SPLITS && complete; split++) {
        if (plan->splits[split].present)
            complete = fill_split(plan, totals, split, &manifest->splits[manifest->split_count++]);
    }
    if (complete)
        return FSH_OK;
    fsh_manifest_free(manifest);
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", FSH_MANIFEST_NAME);
}
