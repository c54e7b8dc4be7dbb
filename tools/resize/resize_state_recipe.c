#include "tools/resize/resize_state_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/path.h"
#include "common/seal.h"
#include "imaging/shrink.h"

enum { JSON_BYTES_MAX = 1 << 20 }; /* of a file of ours */

FshStatus recipe_resolve(const char *path, char resolved[PATH_MAX], FshError *error)
{
    char existing[PATH_MAX], whole[PATH_MAX];
    if (strlen(path) >= sizeof existing)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the path is too long", path);
    size_t length = strlen(path);
    memcpy(existing, path, length + 1);
    while (!realpath(length ? existing : ".", whole)) {
        if (errno != ENOENT)
            return fsh_error_system(error, errno, "%s: cannot find out where this is", path);
        while (length > 0 && existing[length - 1] == '/')
            length--;
        while (length > 0 && existing[length - 1] != '/')
            length--;
        existing[length] = '\0';
    }
    if (length == strlen(path)) {
        memcpy(resolved, whole, sizeof whole);
        return FSH_OK;
    }
    if (path_goes_up(path + length))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: goes up from a folder that does not exist; name it without ..", path);
    return file_join(resolved, PATH_MAX, whole, path + length, error);
}

/* ---- the recipe as JSON ---- */

/* Returns a path without links, or null. */
static json_t *path_json(const char *path, FshError *error)
{
    char resolved[PATH_MAX];
    if (!path)
        return json_null();
    return recipe_resolve(path, resolved, error) ? NULL : json_text(resolved);
}

/* Returns the XXH3-128 of a file's bytes, or null: labels that have changed would put images into two
 * folders. */
static json_t *hash_json(const char *path, FshError *error)
{
    enum { LABELS_BYTES_MAX = 1 << 30 };
    Buffer file = {0};
    if (!path)
        return json_null();
    json_t *text = NULL;
    if (!file_read_most(path, LABELS_BYTES_MAX, &file, error)) {
        XXH128_hash_t hash = XXH3_128bits(file.bytes, file.length);
        text =
            json_sprintf("%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    }
    buffer_free(&file);
    return text;
}

static json_t *recipe_json(const ResizeState *state, const ResizeOptions *options, bool complete,
                           FshError *error)
{
    const char(*sides)[RESIZE_SIDE_BYTES] = options->source.sides;
    char pairs[2 * RESIZE_SIDE_BYTES + 2], part[32];
    (void)snprintf(pairs, sizeof pairs, "%s:%s", sides[0], sides[1]);
    (void)snprintf(part, sizeof part, "%u/%u", options->part.index, options->part.count);
    *error = (FshError){0};
    json_t *source = path_json(options->source.path, error), *labels = path_json(options->labels, error);
    json_t *labels_hash = hash_json(options->labels, error);
    json_t *object = shrink_recipe_json(&options->recipe, "fresize");
    json_t *run = json_pack("{s:o, s:o, s:o, s:o, s:o, s:b}", "source", source, "labels", labels,
                            "labels_hash", labels_hash, "pairs", sides[0][0] ? json_text(pairs) : json_null(),
                            /* a folder's parts come together in it; a tar is of one part or of all */
                            "part", state->is_tar && options->part.count ? json_text(part) : json_null(),
                            "complete", complete);
    /* only where it is so: folders that older versions wrote keep their recipe, and its hash */
    if (run && options->source.masks) {
        (void)json_object_set_new(run, "pairs", json_null());
        if (json_object_set_new(run, "masks", json_text(pairs))) {
            json_decref(run);
            run = NULL;
        }
    }
    if (!object || !run || json_object_update(object, run)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(run);
    if (!object && !error->status)
        (void)fsh_error_set(error, FSH_ERR_MEMORY, "no memory for " RECIPE_NAME);
    return object;
}

/* What may differ between two runs over one destination. */
static const char *const free_keys[] = {"version", "complete", NULL};

/* Returns the first key in which two recipes differ; NULL: none. */
static const char *first_difference(const json_t *ours, const json_t *theirs)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)ours, key, value)
    {
        bool compared = true;
        for (const char *const *name = free_keys; *name; name++)
            compared = compared && strcmp(*name, key) != 0;
        if (compared && !json_equal(value, json_object_get(theirs, key)))
            return key;
    }
    /* the one key that is there only where it was given */
    return json_object_get(theirs, "masks") && !json_object_get(ours, "masks") ? "masks" : NULL;
}

FshStatus recipe_hash(ResizeState *state, const ResizeOptions *options, FshError *error)
{
    json_t *recipe = recipe_json(state, options, false, error);
    for (const char *const *name = free_keys; recipe && *name; name++)
        (void)json_object_del(recipe, *name);
    char *text = recipe ? json_dumps(recipe, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    FshStatus status = FSH_OK;
    if (text)
        ledger_hash(text, strlen(text), state->recipe);
    else
        status = recipe ? fsh_error_set(error, FSH_ERR_MEMORY, "no memory for " RECIPE_NAME) : error->status;
    free(text);
    json_decref(recipe);
    return status;
}

FshStatus recipe_write_json(const ResizeState *state, const char *name, json_t *object, FshError *error)
{
    char path[PATH_MAX];
    if (!object)
        return error->status;
    FshStatus status = file_join(path, sizeof path, state->folder, name, error);
    if (!status)
        status = seal_write(path, object, JSON_INDENT(2), error);
    json_decref(object);
    return status;
}

FshStatus recipe_read_json(const ResizeState *state, const char *name, json_t **object_ret, FshError *error)
{
    char path[PATH_MAX];
    *object_ret = NULL;
    FshStatus status = file_join(path, sizeof path, state->folder, name, error);
    if (status || !file_exists(path))
        return status;
    FshError damage = {0};
    status = seal_read(path, JSON_BYTES_MAX, false, object_ret, &damage);
    if (status)
        return fsh_error_set(error, status, "%s%s", damage.message,
                             status == FSH_ERR_CORRUPT ? "; --force makes all images anew" : "");
    (void)json_object_del(*object_ret, "checksum");
    return FSH_OK;
}

FshStatus recipe_write(const ResizeState *state, const ResizeOptions *options, bool complete, FshError *error)
{
    return recipe_write_json(state, RECIPE_NAME, recipe_json(state, options, complete, error), error);
}

/* Writes to key under which key an option stands in recipe.json: "max_size" for "max-size". Returns key. */
static const char *recipe_key(const char *option, char *key, size_t key_bytes)
{
    (void)snprintf(key, key_bytes, "%s", option);
    for (char *dash = strchr(key, '-'); dash; dash = strchr(dash, '-'))
        *dash = '_';
    return key;
}

/* Returns a value as it would be given: 160, blur:sharp; "none" for what is not there. */
static const char *spell_value(const json_t *value, char *text, size_t text_bytes)
{
    if (json_is_integer(value))
        (void)snprintf(text, text_bytes, "%lld", (long long)json_integer_value(value));
    else
        (void)snprintf(text, text_bytes, "%.400s", json_is_string(value) ? json_string_value(value) : "none");
    return text;
}

/* Writes "was made with --max-size 160, now 256" or "was made without --exact, now with"; separator is ", now
 * " or ", not ". */
static void spell_difference(const char *key, const json_t *before, const json_t *now, const char *separator,
                             char *text, size_t text_bytes)
{
    char option[64], values[2][512];
    (void)snprintf(option, sizeof option, "%s", key);
    for (char *dash = strchr(option, '_'); dash; dash = strchr(dash, '_'))
        *dash = '-';
    spell_value(before, values[0], sizeof values[0]);
    spell_value(now, values[1], sizeof values[1]);
    if (strcmp(key, "source") == 0)
        (void)snprintf(text, text_bytes, "was made of another source: %s%s%s", values[0], separator,
                       values[1]);
    else if (strcmp(key, "labels_hash") == 0)
        (void)snprintf(text, text_bytes, "was made with other --labels: the file has changed since");
    else if (json_is_boolean(now))
        (void)snprintf(text, text_bytes, "was made %s --%s%s%s", json_is_true(before) ? "with" : "without",
                       option, separator, json_is_true(now) ? "with" : "without");
    else if (json_is_integer(before) || json_is_string(before))
        (void)snprintf(text, text_bytes, "was made with --%s %s%s%s", option, values[0], separator,
                       values[1]);
    else
        (void)snprintf(text, text_bytes, "was made without --%s%s%s", option, separator, values[1]);
}

FshStatus recipe_compare(const ResizeState *state, const json_t *theirs, const ResizeOptions *options,
                         bool writes, FshError *error)
{
    json_t *ours = recipe_json(state, options, false, error);
    if (!ours)
        return error->status;
    const char *key = first_difference(ours, theirs);
    FshStatus status = FSH_OK;
    if (key) {
        char difference[1200];
        spell_difference(key, json_object_get(theirs, key), json_object_get(ours, key),
                         writes ? ", now " : ", not ", difference, sizeof difference);
        status = fsh_error_set(error, FSH_ERR_EXISTS, "%s: %s%s", options->destination, difference,
                               writes ? "; take another destination, or --force to write it anew" : "");
    }
    json_decref(ours);
    return status;
}

/* ---- options from it ---- */

static void take_integer(const Option *option, const json_t *value)
{
    const double number = json_number_value(value);
    if (json_is_integer(value) && number >= option->minimum &&
        (number <= option->maximum || option->maximum <= option->minimum))
        *(int64_t *)option->value = json_integer_value(value);
}

static void take_choice(const Option *option, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text)
        (void)options_find_choice(option, text, option->value);
}

/* Takes a text, unless it holds a "?", which may stand for a byte that JSON cannot hold. */
static void take_text(const Option *option, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text && *text && !strchr(text, '?'))
        *(const char **)option->value = text;
}

static void take_flag(const Option *option, const json_t *value)
{
    *(bool *)option->value = json_is_true(value);
}

static void (*const take_value[])(const Option *option, const json_t *value) = {
    [OPTION_FLAG] = take_flag,
    [OPTION_INTEGER] = take_integer,
    [OPTION_TEXT] = take_text,
    [OPTION_CHOICE] = take_choice,
};

FshStatus recipe_fill_options(const Option *options, const char *destination, json_t **recipe_ret,
                              FshError *error)
{
    ResizeState state = {.locks = {-1, -1}};
    FshStatus status = resize_state_place(&state, destination, error);
    *recipe_ret = NULL;
    if (!status)
        status = recipe_read_json(&state, RECIPE_NAME, recipe_ret, error);
    for (const Option *option = options; !status && *recipe_ret && option->name; option++) {
        char key[64];
        if (!option->given || *option->given)
            continue;
        (void)recipe_key(option->name, key, sizeof key);
        const json_t *value = json_object_get(*recipe_ret, key);
        if (value)
            take_value[option->kind](option, value);
    }
    return status;
}
