/* pack_update_options.c - an update packs as the dataset was packed: what its provenance says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pack/pack_blueprint.h"
#include "tools/pack/pack_update_parts.h"

/* Options that may differ: they say where shards end, in which order samples are stored, or what came of
 * another option. */
static const char *const free_options[] = {"chosen", "shard_size", "shuffle", NULL};
/* Those that say which samples a folder gives: another folder's may differ. */
static const char *const folder_options[] = {"files_from", "labels",       "classes",     "class_names",
                                             "dedupe",     "side_folders", "pair_suffix", "split",
                                             "seed",       "limit",        NULL};

static bool is_listed(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* Returns a value as it is given to its option: "0.2", "raw"; "" for a flag. NULL: out of memory. */
static char *spell(const json_t *value)
{
    char *text = json_is_true(value)     ? strdup("")
                 : json_is_string(value) ? strdup(json_string_value(value))
                                         : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    double number = 0;
    if (text && json_is_real(value) && sscanf(text, "%lf", &number) == 1) { /* 0.20000000000000001 */
        free(text);
        if (asprintf(&text, "%g", number) < 0)
            text = NULL;
    }
    return text;
}

/* Refuses an option that was given then and is not now, or the other way round, or with another value. */
static FshStatus refuse_option(const Update *update, const char *name, const json_t *then, const json_t *now,
                               FshError *error)
{
    char option[64];
    const char *folder = update->options->destination;
    char *old = then ? spell(then) : NULL, *new = now ? spell(now) : NULL;
    FshStatus status;
    (void)snprintf(option, sizeof option, "%s", name);
    for (char *at = option; *at; at++)
        *at = *at == '_' ? '-' : *at;
    if ((then && !old) || (now && !new))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    else if (!then)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "--%s: %s was packed without it; leave it out, or pack it anew, with --force",
                               option, folder);
    else if (!now)
        status = fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--%s: %s was packed with --%s%s%s, which is missing here; give it too (its " FSH_MANIFEST_NAME
            " has all options, under provenance), or pack it anew, with "
            "--force",
            option, folder, option, old[0] ? " " : "", old);
    else
        status = fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--%s: %s was packed with %s, and this run says %s; give the same (its " FSH_MANIFEST_NAME
            " has all options, under provenance), or pack it anew, with "
            "--force",
            option, folder, old[0] ? old : "true", new[0] ? new : "true");
    free(old);
    free(new);
    return status;
}

/* Returns whether the option of this name may differ. */
static bool is_free(const Update *update, const char *name)
{
    return is_listed(free_options, name) || (update->several && is_listed(folder_options, name));
}

/* Compares two objects of options. Each of their members must be equal. */
static FshStatus compare_options(const Update *update, json_t *then, json_t *now, FshError *error)
{
    json_t *const objects[] = {then, now};
    const char *name = NULL, *differs = NULL;
    json_t *value = NULL;
    for (size_t i = 0; i < 2; i++) {
        json_object_foreach(objects[i], name, value)
        {
            const json_t *old = json_object_get(then, name), *new = json_object_get(now, name);
            const bool same = old && new &&json_equal(old, new);
            /* A seed is there only with what it is of, which then is what to tell of. */
            if (!same && !is_free(update, name) && (!differs || strcmp(differs, "seed") == 0))
                differs = name;
        }
    }
    return differs ? refuse_option(update, differs, json_object_get(then, differs),
                                   json_object_get(now, differs), error)
                   : FSH_OK;
}

/* Compares how images are made smaller on the way in; what fresize did before is the folder's own. */
static FshStatus compare_recipe(const Update *update, const json_t *provenance, FshError *error)
{
    const PackOptions *options = update->options;
    const json_t *recipe = json_object_get(provenance, "recipe");
    const char *tool = json_string_value(json_object_get(recipe, "tool"));
    json_t *then = tool && strcmp(tool, "fpack") == 0 ? json_copy((json_t *)recipe) : json_object();
    json_t *now = options->resize.max_size ? shrink_recipe_json(&options->resize, "fpack") : json_object();
    FshStatus status = then && now ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    json_t *const objects[] = {then, now};
    for (size_t i = 0; i < 2 && !status; i++) {
        (void)json_object_del(objects[i], "before");
        (void)json_object_del(objects[i], "version");
        (void)json_object_del(objects[i], "tool");
    }
    /* The size first: without it the others are not there either. */
    const json_t *old = json_object_get(then, "max_size"), *new = json_object_get(now, "max_size");
    if (!status && (old || new) && !(old && new &&json_equal(old, new)))
        status = refuse_option(update, "max_size", old, new, error);
    if (!status)
        status = compare_options(update, then, now, error);
    json_decref(then);
    json_decref(now);
    return status;
}

/* Compares what the dataset holds with what this run would pack. */
static FshStatus compare_shape(const Update *update, const PackPlan *plan, FshError *error)
{
    const FshManifest *manifest = update->manifest;
    const PackFound *found = &plan->found;
    const char *folder = update->options->destination;
    const uint32_t scale = manifest->pair_scale ? manifest->pair_scale : 1;
    bool same = manifest->kind == found->kind && manifest->field_count == found->field_count;
    for (size_t i = 0; i < found->field_count && same; i++)
        same = strcmp(manifest->field_names[i], found->field_names[i]) == 0;
    if (manifest->container != update->options->container)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "--format: %s holds %s", folder,
                             fsh_container_noun(manifest->container, 2));
    if (!same)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: holds %s, and this run would pack %s: give the same --pairs, --masks or "
                             "--fields as when it was packed, or none if there were none",
                             folder,
                             manifest->kind == FSH_KIND_PAIRS   ? "pairs of fields of its own"
                             : manifest->kind == FSH_KIND_MASKS ? "images and masks"
                                                                : "classes",
                             found->kind == FSH_KIND_PAIRS   ? "other pairs"
                             : found->kind == FSH_KIND_MASKS ? "other images and masks"
                                                             : "classes");
    if (scale != (found->pair_scale ? found->pair_scale : 1))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "--pair-scale: %s was packed with %u", folder,
                             (unsigned)scale);
    if (update->options->store == PACK_STORE_AUTO && update->options->budget_bytes)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "--budget: chooses among all samples, so that none can be left as it is: pack "
                             "anew, with --force");
    return FSH_OK;
}

/* Warns where a folder, one of several, gives nothing to a val split that was made by --split: each folder
 * has its own share. */
static FshStatus warn_split(const Update *update, PackPlan *plan, const json_t *then, FshError *error)
{
    const json_t *split = json_object_get(then, "split");
    if (!update->several || !split || plan->split.ranges[PACK_VAL].sample_count || !plan->split.sample_count)
        return FSH_OK;
    return notes_addf(
        &plan->notes.warnings, FSH_OK, error, update->options->source,
        "none of its samples goes to val; %s was packed with --split %g: give it too, if a share "
        "of them shall",
        update->options->destination, json_number_value(split));
}

FshStatus update_check_options(const Update *update, PackPlan *plan, FshError *error)
{
    FshStatus status = compare_shape(update, plan, error);
    if (status)
        return status;
    json_t *provenance = json_loads(update->manifest->provenance_json, 0, NULL);
    json_t *then = json_object_get(provenance, "options"), *now = blueprint_options(plan);
    if (!now)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", update->options->source);
    else if (!json_is_object(then))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "%s: its " FSH_MANIFEST_NAME " does not say with which options it was packed: "
                               "pack it anew, with --force",
                               update->options->destination);
    else
        status = compare_options(update, then, now, error);
    if (!status)
        status = compare_recipe(update, provenance, error);
    if (!status)
        status = warn_split(update, plan, then, error);
    json_decref(provenance);
    json_decref(now);
    return status;
}

/* ---- provenance ---- */

static void add_count(json_t *object, const char *name, const json_t *to, uint64_t more, int *failed)
{
    const json_int_t before = json_integer_value(json_object_get(to, name));
    *failed |= json_object_set_new(object, name, json_integer(before + (json_int_t)more));
}

FshStatus update_provenance(const Update *update, const PackPlan *plan, uint64_t left_out_count,
                            const PixelStatistics *sums, char **text_ret, FshError *error)
{
    json_t *old = json_loads(update->manifest->provenance_json, 0, NULL);
    /* Of several folders it stays that of the first. */
    json_t *object = update->several ? json_incref(old) : blueprint_provenance(plan);
    int failed = !old || !object;
    *text_ret = NULL;
    if (!failed && update->wanted.append) {
        json_t *appended = json_object_get(old, "appended");
        json_t *list = json_is_array(appended) ? json_incref(appended) : json_array();
        failed |= json_array_append_new(list, blueprint_source(update->options->source));
        failed |= json_object_set_new(object, "appended", list);
    }
    uint64_t others = 0; /* samples of other folders */
    for (size_t i = 0; i < update->file_count; i++)
        others += update->files[i].ours ? 0 : update->files[i].record_count;
    if (!failed) {
        const json_t *base = update->wanted.append ? old : NULL;
        add_count(object, "planned", base, update->planned_count + (base ? 0 : others), &failed);
        add_count(object, "left_out", base, left_out_count, &failed);
        failed |= json_object_set_new(object, "pixel_sums", stats_to_json(sums));
    }
    *text_ret = failed ? NULL : json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    json_decref(old);
    return *text_ret
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", update->options->destination);
}
