#include "common/options_config.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/text.h"

enum { CONFIG_MAX_BYTES = 1 << 20 };

/* The one table of a file, and the array in it of the options that came from a set of values. */
static const char facts_name[] = "recipe", gives_name[] = "gives";

/* ---- TOML ---- */

typedef struct TomlLine {
    const char *path;
    size_t number; /* from 1 */
    const char *at, *end;
} TomlLine;

static FshStatus refuse(const TomlLine *line, FshError *error, const char *reason)
{
    return fsh_error_set(error, FSH_ERR_USAGE, "%s:%zu: %s", line->path, line->number, reason);
}

static void skip_blanks(TomlLine *line)
{
    while (line->at < line->end && (*line->at == ' ' || *line->at == '\t' || *line->at == '\r'))
        line->at++;
}

static bool at_line_end(TomlLine *line)
{
    skip_blanks(line);
    return line->at == line->end || *line->at == '#';
}

/* Reads a basic ("…", with escapes) or literal ('…') string into a new text; the quote is at line->at. */
static FshStatus read_string(TomlLine *line, char **text_ret, FshError *error)
{
    static const char escapes[] = "\"\\bfnrt/", meanings[] = "\"\\\b\f\n\r\t/";
    const char quote = *line->at++;
    size_t length = 0;
    char *text = malloc((size_t)(line->end - line->at) + 1);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", line->path);
    while (line->at < line->end && *line->at != quote) {
        char letter = *line->at++;
        if (letter == '\\' && quote == '"') {
            const char *escape = line->at < line->end ? strchr(escapes, *line->at) : NULL;
            if (!escape || !*escape) {
                free(text);
                return refuse(line, error,
                              "after a backslash only one of \" \\ b f n r t is understood; 'single quotes' "
                              "take a text as it is");
            }
            letter = meanings[escape - escapes];
            line->at++;
        }
        text[length++] = letter;
    }
    text[length] = '\0';
    if (line->at == line->end) {
        free(text);
        return refuse(line, error, "a text has no closing quote");
    }
    line->at++;
    *text_ret = text;
    return FSH_OK;
}

static bool is_bare(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

static FshStatus read_key(TomlLine *line, char **key_ret, FshError *error)
{
    if (*line->at == '"' || *line->at == '\'')
        return read_string(line, key_ret, error);
    if (*line->at == '[')
        return refuse(
            line, error,
            "tables ([name]) are not understood here, but for one [recipe] after the options, which "
            "stand at the top, one a line");
    const char *begin = line->at;
    while (line->at < line->end && is_bare(*line->at))
        line->at++;
    if (line->at == begin)
        return refuse(line, error, "expected: name = value");
    *key_ret = text_copy(begin, (size_t)(line->at - begin));
    return *key_ret ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", line->path);
}

/* Reads a number or boolean: a word without blanks. */
static FshStatus read_word(TomlLine *line, json_t **value_ret, FshError *error)
{
    char word[64];
    size_t length = 0;
    while (line->at < line->end && *line->at != '#' && !isspace((unsigned char)*line->at)) {
        if (length + 1 == sizeof word)
            return refuse(line, error, "the value is neither \"text\" nor a number, true or false");
        /* TOML: an underscore only between digits. */
        const bool joint = *line->at == '_' && length && isdigit((unsigned char)word[length - 1]) &&
                           line->at + 1 < line->end && isdigit((unsigned char)line->at[1]);
        if (!joint)
            word[length++] = *line->at;
        line->at++;
    }
    word[length] = '\0';
    char *end = NULL;
    *value_ret = NULL;
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        *value_ret = json_boolean(word[0] == 't');
    else if (length && word[strspn(word, "+-0123456789")] == '\0') {
        errno = 0;
        const long long number = strtoll(word, &end, 10);
        if (*end == '\0' && errno == 0)
            *value_ret = json_integer(number);
    } else if (length && word[strspn(word, "+-.eE0123456789")] == '\0') {
        const double number = strtod(word, &end);
        if (*end == '\0' && isfinite(number))
            *value_ret = json_real(number);
    }
    return *value_ret ? FSH_OK
                      : refuse(line, error, "the value is neither \"text\" nor a number, true or false");
}

static FshStatus read_value(TomlLine *line, json_t **value_ret, FshError *error)
{
    if (at_line_end(line))
        return refuse(line, error, "the value is missing: name = value");
    if (*line->at != '"' && *line->at != '\'')
        return read_word(line, value_ret, error);
    char *text = NULL;
    FshStatus status = read_string(line, &text, error);
    if (status)
        return status;
    *value_ret = json_string(text);
    free(text);
    return *value_ret ? FSH_OK : refuse(line, error, "the text is not UTF-8");
}

static FshStatus read_line(TomlLine *line, json_t *object, FshError *error)
{
    char *key = NULL;
    json_t *value = NULL;
    if (at_line_end(line))
        return FSH_OK;
    FshStatus status = read_key(line, &key, error);
    if (status)
        return status;
    skip_blanks(line);
    if (line->at == line->end || *line->at != '=') {
        status = refuse(line, error, "expected \"=\" after the name: name = value");
        goto done;
    }
    line->at++;
    status = read_value(line, &value, error);
    if (!status && !at_line_end(line))
        status = refuse(line, error, "there is something behind the value");
    if (!status && json_object_get(object, key))
        status = refuse(line, error, "this name stands above already");
    if (!status && json_object_set(object, key, value))
        status = refuse(line, error, "the name is not UTF-8");
done:
    json_decref(value);
    free(key);
    return status;
}

/* Returns whether the line is the head of the table of facts, and nothing else. */
static bool is_facts_head(const TomlLine *line)
{
    TomlLine rest = *line;
    const size_t length = sizeof facts_name - 1;
    skip_blanks(&rest);
    if ((size_t)(rest.end - rest.at) < length + 2 || rest.at[0] != '[' || rest.at[length + 1] != ']' ||
        memcmp(rest.at + 1, facts_name, length) != 0)
        return false;
    rest.at += length + 2;
    return at_line_end(&rest);
}

static FshStatus read_toml(const char *path, const char *text, size_t length, json_t *object, FshError *error)
{
    const char *const end = text + length;
    json_t *facts = NULL; /* borrowed from the object */
    FshStatus status = FSH_OK;
    for (size_t number = 1; !status && text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        TomlLine line = {.path = path, .number = number, .at = text, .end = newline ? newline : end};
        if (!facts && is_facts_head(&line)) {
            facts = json_object();
            if (json_object_set_new(object, facts_name, facts))
                status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        } else {
            status = read_line(&line, facts ? facts : object, error);
        }
        text = newline ? newline + 1 : end;
    }
    return status;
}

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
    FshStatus status = *object_ret ? read_toml(path, text, length, *object_ret, error)
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
    if (json_is_string(value))
        return options_store(table, key, json_string_value(value), error);
    if (json_is_boolean(value))
        return options_store(table, key, json_is_true(value) ? "true" : "false", error);
    /* a text would point to the digits, which are gone then */
    const Option *option = option_of(table, key);
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
        break;
    }
    return json_null(); /* a list has no single value */
}

/* Writes the option's name as Python spells it: train_crop_size. Returns name. */
static const char *python_name(char *name, size_t name_bytes, const Option *option)
{
    (void)snprintf(name, name_bytes, "%s", option->name);
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
            json_array_append_new(array, json_string(python_name(name, sizeof name, option)))) {
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
        if (json_object_set_new(object, python_name(name, sizeof name, option), value_of(option))) {
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
    const char *group = NULL;
    (void)fprintf(stream, "# %s --config FILE; what the command line says wins\n", table->program);
    for (const Option *option = table->options; option->name; option++) {
        const char *heading =
            option->group && (!group || strcmp(group, option->group) != 0) ? option->group : NULL;
        group = option->group ? option->group : group;
        if ((option->marks & without) || option->kind == OPTION_LIST)
            continue;
        json_t *value = value_of(option);
        if (heading)
            (void)fprintf(stream, "\n# %s\n", heading);
        (void)fprintf(stream, "# %s\n", option->help);
        const bool open = option->given && !*option->given;
        if (json_is_null(value)) {
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
