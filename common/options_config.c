#include "common/options_config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/text.h"
#include "common/toml.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

/* The one table of a file, and the array in it of the options that came from a set of values. */
static const char facts_name[] = "recipe", gives_name[] = "gives";

/* ---- reading ---- */

/* Returns a new object with those members whose names the array has; NULL: no memory. The others were left
 * open, and must stay so: writing an option down does not make it given. */
static json_t *only_given(json_t *options, const json_t *given)
{
    json_t *object = json_object(), *name;
    size_t i;
    json_array_foreach((json_t *)given, i, name)
    {
        json_t *value = json_is_string(name) ? json_object_get(options, json_string_value(name)) : NULL;
        if (object && value && json_object_set(object, json_string_value(name), value)) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static FshStatus read_json(const char *path, const char *text, size_t length, json_t **object_ret,
                           FshError *error)
{
    json_error_t where;
    json_t *whole = json_text_load(text, length, JSON_REJECT_DUPLICATES, &where);
    if (!whole)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s:%d: %s", path, where.line, where.text);
    json_t *options = json_object_get(whole, "options");
    const json_t *given = json_object_get(whole, "given");
    json_t *facts = json_object_get(whole, facts_name);
    *object_ret = json_is_object(options) && json_is_array(given)
                      ? only_given(options, given)
                      : json_incref(json_is_object(options) ? options : whole);
    if (*object_ret && json_is_object(facts) && *object_ret != whole &&
        json_object_set(*object_ret, facts_name, facts)) {
        json_decref(*object_ret);
        *object_ret = NULL;
    }
    json_decref(whole);
    return *object_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

FshStatus options_config_parse(const char *path, const char *text, size_t length, json_t **object_ret,
                               FshError *error)
{
    /* Windows editors put a byte order mark before UTF-8. */
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    size_t blanks = 0;
    *object_ret = NULL;
    if (length >= 3 && memcmp(text, byte_order_mark, 3) == 0) {
        text += 3;
        length -= 3;
    }
    while (blanks < length && isspace((unsigned char)text[blanks]))
        blanks++;
    if (blanks < length && text[blanks] == '{')
        return read_json(path, text, length, object_ret, error);
    *object_ret = json_object();
    FshStatus status = *object_ret ? toml_read(path, text, length, facts_name, *object_ret, error)
                                   : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (status) {
        json_decref(*object_ret);
        *object_ret = NULL;
    }
    return status;
}

FshStatus options_config_read(const char *path, json_t **object_ret, FshError *error)
{
    Buffer buffer = {0};
    *object_ret = NULL;
    FshStatus status = file_read_most(path, CONFIG_MAX_BYTES, &buffer, error);
    if (!status)
        status = options_config_parse(path, (const char *)buffer.bytes, buffer.length, object_ret, error);
    buffer_free(&buffer);
    return status;
}

/* ---- storing ---- */

static bool same_name(const char *name, const char *given)
{
    for (; *name && *given; name++, given++)
        if (*name != (*given == '_' ? '-' : *given))
            return false;
    return *name == *given;
}

/* Returns the option by name or alias; NULL: none. */
static const Option *option_of(const OptionTable *table, const char *key)
{
    for (const Option *option = table->options; option->name; option++)
        if (same_name(option->name, key) || (option->alias && same_name(option->alias, key)))
            return option;
    return NULL;
}

/* Returns an earlier member that is the same option in another spelling; NULL: none. */
static const char *other_spelling(const OptionTable *table, const json_t *object, const char *key)
{
    const char *other;
    json_t *value;
    json_object_foreach((json_t *)object, other, value)
    {
        if (strcmp(other, key) == 0)
            return NULL;
        if (!json_is_null(value) && option_of(table, other) == option_of(table, key))
            return other;
    }
    return NULL;
}

/* Returns whether the member is the table of facts, and no option. */
static bool is_facts(const char *key, const json_t *value)
{
    return strcmp(key, facts_name) == 0 && json_is_object(value);
}

static FshStatus store(const OptionTable *table, const char *key, const json_t *value, FshError *error)
{
    char number[40];
    const Option *option = option_of(table, key);
    const json_t *item;
    size_t at;
    FshStatus status = FSH_OK;
    if (option && option->kind == OPTION_LIST && json_is_array(value)) {
        json_array_foreach((json_t *)value, at, item)
        {
            if (!status)
                status = json_is_array(item)
                             ? fsh_error_set(error, FSH_ERR_USAGE, "%s: a list in a list", key)
                             : store(table, key, item, error);
        }
        return status;
    }
    if (json_is_string(value))
        return options_store(table, key, json_string_value(value), error);
    if (json_is_boolean(value))
        return options_store(table, key, json_is_true(value) ? "true" : "false", error);
    /* a text would point to the digits, which are gone then */
    if (option && (option->kind == OPTION_TEXT || option->kind == OPTION_LIST))
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: is a text; write it in quotes: %s = \"%s\"",
                             option->name, key, option->argument);
    if (json_is_integer(value))
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(number, sizeof number, "%.17g", json_real_value(value));
    else
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: a list or an object is no value of an option", key);
    return options_store(table, key, number, error);
}

FshStatus options_config_apply(const OptionTable *table, const char *path, const json_t *object,
                               FshError *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (json_is_null(value) || is_facts(key, value))
            continue;
        const Option *option = option_of(table, key);
        const char *other = option ? other_spelling(table, object, key) : NULL;
        if (option && (option->marks & OPTION_NOT_IN_FILE))
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: --%s is for the command line alone", path, key);
        if (other)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s and %s are the same option", path, other, key);
        FshStatus status = store(table, key, value, error);
        if (status)
            return fsh_error_prepend(error, "%s", path);
    }
    return FSH_OK;
}

/* ---- sets of values ---- */

/* Returns whether the option came from the set; without a list of those all of the file's did. */
static bool came_from_set(const json_t *facts, const char *key)
{
    const json_t *gives = json_object_get(facts, gives_name), *name;
    size_t i;
    json_array_foreach((json_t *)gives, i, name)
    {
        if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
            return true;
    }
    return !gives;
}

FshStatus options_config_take_preset(json_t *object, json_t **preset_ret, FshError *error)
{
    const json_t *facts = json_object_get(object, facts_name);
    json_t *preset, *options, *value;
    const char *key;
    void *next;
    *preset_ret = NULL;
    if (!json_is_object(facts))
        return FSH_OK;
    preset = json_copy((json_t *)facts);
    options = json_object();
    int failed = json_object_set(preset, "options", options);
    (void)json_object_del(preset, gives_name);
    json_object_foreach_safe(object, next, key, value)
    {
        if (is_facts(key, value) || !came_from_set(facts, key))
            continue;
        failed |= json_object_set(options, key, value);
        (void)json_object_del(object, key);
    }
    json_decref(options);
    if (failed) {
        json_decref(preset);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a recipe");
    }
    *preset_ret = preset;
    return FSH_OK;
}

FshStatus options_config_rename(const OptionTable *table, json_t *preset, FshError *error)
{
    json_t *options = json_object(), *value;
    const char *key;
    bool failed = !options;
    json_object_foreach(json_object_get(preset, "options"), key, value)
    {
        const Option *option = option_of(table, key);
        if (!failed && option && !json_is_null(value))
            failed = json_object_set(options, option->name, value);
    }
    failed = failed || json_object_set(preset, "options", options);
    json_decref(options);
    return failed ? fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a recipe") : FSH_OK;
}

void options_config_replace(const OptionTable *table, const json_t *object, json_t *preset)
{
    const char *key;
    json_t *value, *options = json_object_get(preset, "options");
    json_object_foreach((json_t *)object, key, value)
    {
        const Option *option = json_is_null(value) ? NULL : option_of(table, key);
        if (option && options)
            (void)json_object_del(options, option->name);
    }
}

/* ---- writing ---- */

/* Returns the texts of a list as an array; null: it is empty. */
static json_t *list_of(const OptionList *list)
{
    json_t *array = list->count ? json_array() : json_null();
    for (size_t i = 0; i < list->count && array; i++)
        if (json_array_append_new(array, json_text(list->items[i]))) {
            json_decref(array);
            array = NULL;
        }
    return array;
}

static json_t *value_of(const Option *option)
{
    switch (option->kind) {
    case OPTION_FLAG:
        return json_boolean(*(const bool *)option->value);
    case OPTION_INTEGER:
        return json_integer(*(const int64_t *)option->value);
    case OPTION_SIZE:
        return json_integer((json_int_t) * (const uint64_t *)option->value);
    case OPTION_REAL:
        return json_real(*(const double *)option->value);
    case OPTION_CHOICE:
        return json_text(options_choice_text(option, *(const int *)option->value));
    case OPTION_TEXT:
        return json_text(*(const char *const *)option->value);
    case OPTION_LIST:
        return list_of(option->value);
    }
    return json_null();
}

const char *options_python_name(const char *option, char *name, size_t name_bytes)
{
    (void)snprintf(name, name_bytes, "%s", option);
    for (char *at = name; *at; at++)
        if (*at == '-')
            *at = '_';
    return name;
}

json_t *options_config_given(const OptionTable *table, unsigned without)
{
    char name[64];
    json_t *array = json_array();
    for (const Option *option = table->options; array && option->name; option++)
        if (!(option->marks & without) && option->given && *option->given &&
            json_array_append_new(array, json_string(options_python_name(option->name, name, sizeof name)))) {
            json_decref(array);
            return NULL;
        }
    return array;
}

json_t *options_config_object(const OptionTable *table, unsigned without)
{
    char name[64];
    json_t *object = json_object();
    for (const Option *option = table->options; object && option->name; option++) {
        if ((option->marks & without))
            continue;
        if (json_object_set_new(object, options_python_name(option->name, name, sizeof name),
                                value_of(option))) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* Prints a line "name = value" of TOML. */
static void print_value(const char *name, const json_t *value, FILE *stream)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15)) : NULL;
    (void)fprintf(stream, "%s = %s\n", name, text ? text : "");
    free(text);
}

/* Prints the facts about a set of values as the table that is read back. */
static void print_facts(const json_t *preset, FILE *stream)
{
    const char *name;
    json_t *value;
    (void)fprintf(stream, "\n[%s]\n", facts_name);
    json_object_foreach((json_t *)preset, name, value)
    {
        if (!json_is_object(value))
            print_value(name, value, stream);
    }
}

void options_config_print(const OptionTable *table, unsigned without, const json_t *preset, FILE *stream)
{
    const char *group = NULL, *printed = NULL;
    (void)fprintf(stream, "# %s --config FILE; what the command line says wins\n", table->program);
    for (const Option *option = table->options; option->name; option++) {
        group = option->group ? option->group : group;
        if (option->marks & without)
            continue;
        json_t *value = value_of(option);
        if (group && (!printed || strcmp(printed, group) != 0)) /* its first row may have been left out */
            (void)fprintf(stream, "\n# %s\n", group);
        printed = group;
        (void)fprintf(stream, "# %s\n", option->help);
        const bool open = option->given && !*option->given;
        if (json_is_null(value) || (open && (option->marks & OPTION_VARIES))) {
            (void)fprintf(stream, "# %s =\n", option->name);
        } else {
            (void)fputs(open ? "# " : "", stream);
            print_value(option->name, value, stream);
        }
        json_decref(value);
    }
    if (preset)
        print_facts(preset, stream);
}
