#include "common/options.h"

#include <stdlib.h>
#include <string.h>

#include "common/options_config.h"
#include "common/options_value.h"

/* Options of every program besides its table; --help prints them last. */
static const Option standard_options[] = {
    {.name = "help",
     .letter = 'h',
     .kind = OPTION_FLAG,
     .help = "print this help and exit",
     .group = "General"},
    {.name = "version", .kind = OPTION_FLAG, .help = "print the versions of program and libraries and exit"},
    {0},
};
static const Option *const help_option = &standard_options[0];
static const Option *const version_option = &standard_options[1];

void options_each(const OptionTable *table, void (*visit)(const Option *option, void *context), void *context)
{
    for (const Option *option = table->options; option->name; option++)
        visit(option, context);
    for (const Option *option = standard_options; option->name; option++)
        visit(option, context);
}

/* ---- names ---- */

/* Returns whether the name was typed; `_` counts as `-`. */
static bool name_matches(const char *name, const char *typed, size_t typed_length)
{
    if (!name || strlen(name) != typed_length)
        return false;
    for (size_t i = 0; i < typed_length; i++)
        if (name[i] != (typed[i] == '_' ? '-' : typed[i]))
            return false;
    return true;
}

static const Option *find_in(const Option *options, const char *typed, size_t typed_length)
{
    for (const Option *option = options; option->name; option++)
        if (name_matches(option->name, typed, typed_length) ||
            name_matches(option->alias, typed, typed_length))
            return option;
    return NULL;
}

static const Option *find_long(const OptionTable *table, const char *typed, size_t typed_length)
{
    const Option *option = find_in(table->options, typed, typed_length);
    return option ? option : find_in(standard_options, typed, typed_length);
}

static const Option *find_letter(const OptionTable *table, char letter)
{
    const Option *const lists[] = {table->options, standard_options};
    for (size_t i = 0; i < 2; i++)
        for (const Option *option = lists[i]; option->name; option++)
            if (option->letter == letter)
                return option;
    return NULL;
}

typedef struct Nearest {
    char typed[OPTIONS_WORD_MAX + 1];
    size_t typed_length;
    const char *name;
    unsigned distance;  /* of name; or more than is accepted */
    const char *longer; /* the option that begins with the typed text */
    size_t longer_count;
} Nearest;

static void consider_name(const Option *option, void *context)
{
    Nearest *nearest = context;
    if (strlen(option->name) > OPTIONS_WORD_MAX)
        return;
    unsigned distance = options_distance(nearest->typed, option->name);
    if (strncmp(nearest->typed, "no-", 3) == 0 && strcmp(nearest->typed + 3, option->name) == 0)
        distance = 0;
    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->name = option->name;
    }
    if (strncmp(nearest->typed, option->name, nearest->typed_length) == 0) {
        nearest->longer = option->name;
        nearest->longer_count++;
    }
}

static const OptionForeign *find_foreign(const OptionForeign *list, const char *typed, size_t typed_length)
{
    for (const OptionForeign *foreign = list; foreign && foreign->name; foreign++)
        if (name_matches(foreign->name, typed, typed_length))
            return foreign;
    return NULL;
}

static void describe_unknown(const OptionTable *table, const char *typed, size_t typed_length,
                             FshError *error)
{
    enum { WRONG_LETTERS_MAX = 3, PREFIX_MIN = 4 };
    const unsigned wrong =
        typed_length / 3 < WRONG_LETTERS_MAX ? (unsigned)(typed_length / 3) : WRONG_LETTERS_MAX;
    Nearest nearest = {.distance = wrong + 1, .typed_length = typed_length};
    if (typed_length <= OPTIONS_WORD_MAX) {
        for (size_t i = 0; i < typed_length; i++)
            nearest.typed[i] = (char)(typed[i] == '_' ? '-' : typed[i]);
        options_each(table, consider_name, &nearest);
    }
    if (!nearest.name && typed_length >= PREFIX_MIN && nearest.longer_count == 1)
        nearest.name = nearest.longer;
    int shown = (int)(typed_length < 200 ? typed_length : 200);
    const OptionForeign *foreign = find_foreign(table->foreign, typed, typed_length);
    const OptionForeign *answer = find_foreign(table->answers, typed, typed_length);
    if (answer)
        (void)fsh_error_set(error, FSH_ERR_USAGE, "--%.*s: no such option; %s", shown, typed, answer->ours);
    else if (foreign)
        (void)fsh_error_set(error, FSH_ERR_USAGE, "--%.*s: no such option; %s calls it --%s", shown, typed,
                            table->program, foreign->ours);
    else if (nearest.name)
        (void)fsh_error_set(error, FSH_ERR_USAGE, "--%.*s: no such option; did you mean --%s?", shown, typed,
                            nearest.name);
    else
        (void)fsh_error_set(error, FSH_ERR_USAGE, "--%.*s: no such option", shown, typed);
}

/* ---- the command line ---- */

typedef struct Cursor {
    const OptionTable *table;
    char **next;         /* in argv, which ends in NULL */
    const char *letters; /* the rest of a word such as -nv, or NULL */
    bool options_ended;  /* "--" was read */
} Cursor;

typedef struct Token {
    const Option *option; /* NULL: an argument */
    const char *text;     /* the argument, or the option's value; NULL for a flag */
    bool negated;         /* --no-NAME */
} Token;

static bool at_end(const Cursor *cursor)
{
    return !cursor->letters && !*cursor->next;
}

/* Fails with "--amp: a value is missing: --amp TYPE; …". */
static FshStatus refuse_missing(const Option *option, FshError *error)
{
    const char *hint = options_hint(option, "");
    return fsh_error_set(error, FSH_ERR_USAGE, "--%s: a value is missing: --%s %s%s%s", option->name,
                         option->name, option->argument, hint ? "; " : "", hint ? hint : "");
}

static bool is_plain_number(const char *text)
{
    char *end = NULL;
    if (!text || !*text || strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    (void)strtod(text, &end);
    return !*end;
}

/* Refuses two words where timm and argparse's nargs=2 take a pair: "--scale 0.08 1.0" for 0.08:1.0. */
static FshStatus check_pair(const Option *option, const char *first, const char *second, FshError *error)
{
    const char *colon = option->argument ? strchr(option->argument, ':') : NULL;
    if (!colon || strchr(colon + 1, ':') || !is_plain_number(first) || !is_plain_number(second))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "--%s: %s %s is one value, %s: write --%s %s:%s", option->name,
                         first, second, option->argument, option->name, first, second);
}

static FshStatus take_value(Cursor *cursor, Token *token, FshError *error)
{
    const Option *option = token->option;
    const char *next = *cursor->next;
    if (!next)
        return refuse_missing(option, error);
    /* "--dst --force" is a forgotten value far more often than a folder called "--force". */
    if (strncmp(next, "--", 2) == 0 && options_hint(option, ""))
        return refuse_missing(option, error);
    if (strncmp(next, "--", 2) == 0)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--%s: a value is missing before '%s'; if that is the value: --%s=%s",
                             option->name, next, option->name, next);
    token->text = next;
    cursor->next++;
    return check_pair(option, next, *cursor->next, error);
}

static FshStatus read_long(Cursor *cursor, const char *typed, Token *token, FshError *error)
{
    const char *equals = strchr(typed, '=');
    size_t length = equals ? (size_t)(equals - typed) : strlen(typed);
    token->option = find_long(cursor->table, typed, length);
    if (!token->option && length > 3 && name_matches("no-", typed, 3)) {
        token->option = find_in(cursor->table->options, typed + 3, length - 3);
        token->negated = token->option && token->option->kind == OPTION_FLAG;
        if (!token->negated)
            token->option = NULL;
    }
    if (!token->option) {
        describe_unknown(cursor->table, typed, length, error);
        return FSH_ERR_USAGE;
    }
    if (token->option->kind == OPTION_FLAG) {
        if (equals)
            return fsh_error_set(error, FSH_ERR_USAGE, "--%s: takes no value, but got '%s'",
                                 token->option->name, equals + 1);
        return FSH_OK;
    }
    if (equals) {
        token->text = equals + 1;
        return FSH_OK;
    }
    return take_value(cursor, token, error);
}

static FshStatus read_letter(Cursor *cursor, Token *token, FshError *error)
{
    char letter = *cursor->letters++;
    token->option = find_letter(cursor->table, letter);
    const char *rest = *cursor->letters ? cursor->letters : NULL;
    cursor->letters = rest;
    if (!token->option)
        return fsh_error_set(error, FSH_ERR_USAGE, "-%c: no such option (in '%s')", letter, cursor->next[-1]);
    if (token->option->kind == OPTION_FLAG)
        return FSH_OK;
    if (rest) {
        token->text = rest;
        cursor->letters = NULL;
        return FSH_OK;
    }
    return take_value(cursor, token, error);
}

/* Refuses the name of a long option behind one dash, "-epochs", whose letters would be options of their
 * own. */
static FshStatus check_dashes(const Cursor *cursor, const char *typed, FshError *error)
{
    enum { SHORTEST = 2 };
    const size_t length = strcspn(typed, "=");
    const Option *option = length >= SHORTEST ? find_long(cursor->table, typed, length) : NULL;
    return option ? fsh_error_set(error, FSH_ERR_USAGE, "-%.*s: no such option; did you mean --%s?",
                                  (int)length, typed, option->name)
                  : FSH_OK;
}

/* Reads a token. Advances by at least a letter or a word, also on failure. */
static FshStatus read_token(Cursor *cursor, Token *token, FshError *error)
{
    *token = (Token){0};
    if (cursor->letters)
        return read_letter(cursor, token, error);
    const char *word = *cursor->next++;
    bool option = !cursor->options_ended && word[0] == '-' && word[1] != '\0';
    if (!option) {
        token->text = word;
        return FSH_OK;
    }
    if (word[1] != '-') {
        const FshStatus status = check_dashes(cursor, word + 1, error);
        if (status)
            return status;
        cursor->letters = word + 1;
        return read_letter(cursor, token, error);
    }
    return read_long(cursor, word + 2, token, error);
}

/* Skips "--", which is no token: it changes the meaning of later words. */
static void skip_separator(Cursor *cursor)
{
    if (!cursor->letters && !cursor->options_ended && *cursor->next && strcmp(*cursor->next, "--") == 0) {
        cursor->options_ended = true;
        cursor->next++;
    }
}

/* Looks for --help before anything is stored: it shows the defaults, and helps most on a line that is
 * wrong. */
static void look_for_help(const OptionTable *table, char **words, OptionArguments *arguments)
{
    Cursor cursor = {.table = table, .next = words};
    for (skip_separator(&cursor); !at_end(&cursor); skip_separator(&cursor)) {
        Token token;
        if (read_token(&cursor, &token, NULL) != FSH_OK) {
            cursor.letters = NULL; /* those behind a letter that is no option ask for nothing */
            continue;
        }
        arguments->help = arguments->help || token.option == help_option;
        arguments->version = arguments->version || token.option == version_option;
    }
}

static FshStatus store_option(const Token *token, bool *seen, FshError *error)
{
    const Option *option = token->option;
    if (*seen && option->kind != OPTION_LIST)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: given twice", option->name);
    if (!*seen && option->kind == OPTION_LIST) /* what a file has is replaced */
        ((OptionList *)option->value)->count = 0;
    *seen = true;
    if (option->given)
        *option->given = true;
    if (option->typed)
        *option->typed = true;
    if (option->kind != OPTION_FLAG)
        return options_store_value(option, token->text, error);
    if (token->negated && !*(bool *)option->value)
        return fsh_error_set(error, FSH_ERR_USAGE, "--no-%s: no such option; --%s is off unless it is given",
                             option->name, option->name);
    *(bool *)option->value = !token->negated;
    return FSH_OK;
}

FshStatus options_store(const OptionTable *table, const char *name, const char *text, FshError *error)
{
    const Option *option = find_in(table->options, name, strlen(name));
    if (!option) {
        describe_unknown(table, name, strlen(name), error);
        return FSH_ERR_USAGE;
    }
    if (option->given)
        *option->given = true;
    if (option->kind != OPTION_FLAG)
        return options_store_value(option, text, error);
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: '%s' is neither true nor false", option->name,
                             text);
    *(bool *)option->value = text[0] == 't';
    return FSH_OK;
}

/* Returns the value that the words give the row `name`; NULL: none, or there is no such row. */
static const char *find_value(const OptionTable *table, char **words, const char *name)
{
    const char *value = NULL;
    Cursor cursor = {.table = table, .next = words};
    for (skip_separator(&cursor); name && !at_end(&cursor); skip_separator(&cursor)) {
        Token token;
        if (read_token(&cursor, &token, NULL) == FSH_OK && token.option && token.text &&
            strcmp(token.option->name, name) == 0)
            value = token.text;
    }
    return value;
}

/* Stores the set of values that the words name. A file that has been read may hold one, if they name none. */
static FshStatus store_preset(const OptionTable *table, const char *name, OptionArguments *arguments,
                              FshError *error)
{
    FshStatus status = FSH_OK;
    if (name)
        status = table->find_preset(name, &arguments->preset, error);
    else if (arguments->config)
        status = options_config_take_preset(arguments->config, &arguments->preset, error);
    if (status || !arguments->preset)
        return status;
    if (!name)
        name = table->config;
    status = options_config_apply(table, name, json_object_get(arguments->preset, "options"), error);
    if (!status)
        status = options_config_rename(table, arguments->preset, error);
    return status;
}

/* Stores the set of values and the file that the words name before anything else. Wrong words are reported
 * later. */
static FshStatus store_files(const OptionTable *table, char **words, OptionArguments *arguments,
                             FshError *error)
{
    const char *path = find_value(table, words, table->config);
    const char *preset = find_value(table, words, table->preset);
    FshStatus status = path ? options_config_read(path, &arguments->config, error) : FSH_OK;
    if (!status)
        status = store_preset(table, preset, arguments, error);
    if (status || !path)
        return status;
    status = options_config_apply(table, path, arguments->config, error);
    if (!status)
        options_config_replace(table, arguments->config, arguments->preset);
    return status;
}

static FshStatus check_argument_count(const OptionTable *table, const OptionArguments *arguments,
                                      FshError *error)
{
    if (arguments->count < table->arguments_min)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s is missing: %s %s",
                             table->arguments_min - arguments->count == 1 ? "an argument"
                                                                          : "more than one argument",
                             table->program, table->usage);
    if (arguments->count > table->arguments_max)
        return fsh_error_set(error, FSH_ERR_USAGE, "'%s': one argument too many: %s %s",
                             arguments->items[table->arguments_max], table->program, table->usage);
    return FSH_OK;
}

FshStatus options_parse(const OptionTable *table, int argc, char **argv, OptionArguments *arguments,
                        FshError *error)
{
    FshStatus status = FSH_OK;
    size_t option_count = 0;
    while (table->options[option_count].name)
        option_count++;

    *arguments = (OptionArguments){0};
    char **words = argc > 0 ? argv + 1 : argv; /* argv ends in a NULL, by C11 5.1.2.2.1 */
    look_for_help(table, words, arguments);
    if (arguments->help || arguments->version)
        return FSH_OK;

    bool *seen = calloc(option_count + 1, sizeof *seen);
    arguments->items = calloc((size_t)argc + 1, sizeof *arguments->items);
    if (!seen || !arguments->items) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %d arguments", argc);
        goto done;
    }
    status = store_files(table, words, arguments, error);
    if (status)
        goto done;
    Cursor cursor = {.table = table, .next = words};
    for (skip_separator(&cursor); !at_end(&cursor); skip_separator(&cursor)) {
        Token token;
        status = read_token(&cursor, &token, error);
        if (status)
            goto done;
        if (token.option) {
            status = store_option(&token, &seen[token.option - table->options], error);
            (void)json_object_del(json_object_get(arguments->preset, "options"), token.option->name);
        } else if (!*token.text) {
            status = fsh_error_set(error, FSH_ERR_USAGE, "argument %zu is empty: %s %s", arguments->count + 1,
                                   table->program, table->usage);
        } else {
            arguments->items[arguments->count++] = token.text;
        }
        if (status)
            goto done;
    }
    status = check_argument_count(table, arguments, error);
done:
    free(seen);
    if (status)
        options_arguments_free(arguments);
    return status;
}

void options_arguments_free(OptionArguments *arguments)
{
    free(arguments->items);
    json_decref(arguments->config);
    json_decref(arguments->preset);
    *arguments = (OptionArguments){0};
}
