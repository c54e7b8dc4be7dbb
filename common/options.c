#include "common/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/options_config.h"

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

/* ---- similar names ---- */

enum { NAME_MAX_LENGTH = 63 };

/* Returns the optimal string alignment distance: insert, delete, replace, swap two neighbours, each of cost
 * 1. Both texts have at most NAME_MAX_LENGTH characters. */
static unsigned edit_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    unsigned rows[3][NAME_MAX_LENGTH + 1]; /* rows of the table: two before, one before, this one */
    unsigned *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        above[j] = before[j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        unsigned *recycled = before;
        before = above;
        above = row;
        row = recycled;
    }
    return above[b_length];
}

/* ---- values: one function for each kind ---- */

static const char size_suffixes[] = "KMGT";

bool options_parse_size(const char *text, uint64_t *bytes_ret)
{
    if (!isdigit((unsigned char)text[0]))
        return false; /* strtoull would accept "-1" and " 1" */
    char *end = NULL;
    errno = 0;
    uint64_t bytes = strtoull(text, &end, 10);
    if (errno)
        return false;
    if (*end) {
        const char *suffix = strchr(size_suffixes, toupper((unsigned char)*end));
        if (!suffix)
            return false;
        end++;
        if (strcmp(end, "") != 0 && strcmp(end, "B") != 0 && strcmp(end, "iB") != 0)
            return false;
        unsigned shift = 10 * (unsigned)(suffix - size_suffixes + 1);
        if (bytes > UINT64_MAX >> shift)
            return false;
        bytes <<= shift;
    }
    *bytes_ret = bytes;
    return true;
}

void options_format_size(char *buffer, size_t buffer_bytes, uint64_t bytes)
{
    size_t suffix = 0;
    while (suffix < sizeof size_suffixes - 1 && bytes && bytes % 1024 == 0) {
        bytes /= 1024;
        suffix++;
    }
    char letter[2] = {suffix ? size_suffixes[suffix - 1] : '\0'};
    (void)snprintf(buffer, buffer_bytes, "%llu%s", (unsigned long long)bytes, letter);
}

static bool bounded_below(const Option *option)
{
    return option->minimum != 0 || option->maximum != 0;
}

static bool bounded_above(const Option *option)
{
    return bounded_below(option) && option->maximum >= option->minimum && isfinite(option->maximum);
}

static bool in_range(const Option *option, double value)
{
    return !(bounded_below(option) && value < option->minimum) &&
           !(bounded_above(option) && value > option->maximum);
}

static void format_bound(const Option *option, double bound, char *buffer, size_t buffer_bytes)
{
    if (option->kind == OPTION_SIZE)
        options_format_size(buffer, buffer_bytes, (uint64_t)bound);
    else
        (void)snprintf(buffer, buffer_bytes, "%.15g", bound);
}

/* Fails with "--max-size: '0' is not a whole number from 1 to 65500". */
static FshStatus refuse_number(const Option *option, const char *text, const char *noun, FshError *error)
{
    char minimum[32], maximum[32], range[80] = "";
    format_bound(option, option->minimum, minimum, sizeof minimum);
    format_bound(option, option->maximum, maximum, sizeof maximum);
    if (bounded_above(option))
        (void)snprintf(range, sizeof range, " from %s to %s", minimum, maximum);
    else if (bounded_below(option))
        (void)snprintf(range, sizeof range, " of at least %s", minimum);
    return fsh_error_set(error, FSH_ERR_USAGE, "--%s: '%s' is not %s%s", option->name, text, noun, range);
}

static FshStatus store_integer(const Option *option, const char *text, FshError *error)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool number = isdigit((unsigned char)text[text[0] == '-']) && *end == '\0' && errno == 0;
    if (!number || !in_range(option, (double)value))
        return refuse_number(option, text, "a whole number", error);
    *(int64_t *)option->value = value;
    return FSH_OK;
}

static FshStatus store_size(const Option *option, const char *text, FshError *error)
{
    uint64_t bytes = 0;
    if (!options_parse_size(text, &bytes) || !in_range(option, (double)bytes))
        return refuse_number(option, text, "a size in bytes (suffixes K, M, G, T)", error);
    *(uint64_t *)option->value = bytes;
    return FSH_OK;
}

static FshStatus store_real(const Option *option, const char *text, FshError *error)
{
    /* The set excludes what strtod also reads: "inf", "nan", hexadecimal, leading blanks. */
    bool plain = text[0] != '\0' && text[strspn(text, "0123456789+-.eE")] == '\0';
    char *end = NULL;
    double value = strtod(text, &end);
    if (!plain || *end || !isfinite(value) || !in_range(option, value))
        return refuse_number(option, text, "a number", error);
    *(double *)option->value = value;
    return FSH_OK;
}

static FshStatus store_text(const Option *option, const char *text, FshError *error)
{
    if (!*text)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: the value is empty", option->name);
    *(const char **)option->value = text;
    return FSH_OK;
}

/* Keeps letters and digits only, in lower case: "4:2:0" becomes 420, "sRGB" srgb. */
static void fold(const char *text, char folded[NAME_MAX_LENGTH + 1])
{
    size_t length = 0;
    for (; *text && length < NAME_MAX_LENGTH; text++) {
        if (isalnum((unsigned char)*text))
            folded[length++] = (char)tolower((unsigned char)*text);
    }
    folded[length] = '\0';
}

const char *options_choice_text(const Option *option, int index)
{
    return index == OPTION_AUTO && option->has_auto ? "auto" : index < 0 ? NULL : option->choices[index];
}

int options_first_choice(const Option *option)
{
    return option->has_auto ? OPTION_AUTO : 0;
}

bool options_find_choice(const Option *option, const char *text, int *index_ret)
{
    const char *choice = NULL;
    int index = options_first_choice(option);
    while ((choice = options_choice_text(option, index)) && strcmp(choice, text) != 0)
        index++;
    if (choice)
        *index_ret = index;
    return choice != NULL;
}

/* Returns the choice that was probably meant: the same apart from case and signs, or a word with one wrong
 * letter that is not the first ("jpg", but not "422"; "gpu" does not give "cpu"). NULL: unknown. */
static const char *nearest_choice(const Option *option, const char *text)
{
    char typed[NAME_MAX_LENGTH + 1], known[NAME_MAX_LENGTH + 1];
    const char *nearest = NULL, *choice = NULL;
    fold(text, typed);
    for (int i = options_first_choice(option); *typed && (choice = options_choice_text(option, i)); i++) {
        fold(choice, known);
        if (strcmp(known, typed) == 0)
            return choice;
        if (!nearest && isalpha((unsigned char)typed[0]) && typed[0] == known[0] &&
            edit_distance(typed, known) == 1)
            nearest = choice;
    }
    return nearest;
}

/* Returns what the option's hints say about a value, "" for a missing or unknown one; NULL: nothing. */
static const char *find_hint(const Option *option, const char *text)
{
    char typed[NAME_MAX_LENGTH + 1], known[NAME_MAX_LENGTH + 1];
    fold(text, typed);
    for (const OptionForeign *hint = option->hints; hint && hint->name; hint++) {
        fold(hint->name, known);
        if (strcmp(known, typed) == 0)
            return hint->ours;
    }
    return NULL;
}

static FshStatus store_choice(const Option *option, const char *text, FshError *error)
{
    char known[512] = "";
    size_t length = 0;
    const char *choice = NULL;
    if (options_find_choice(option, text, option->value))
        return FSH_OK;
    for (int i = options_first_choice(option); (choice = options_choice_text(option, i)); i++) {
        if (length < sizeof known)
            length +=
                (size_t)snprintf(known + length, sizeof known - length, "%s%s", length ? ", " : "", choice);
    }
    const char *hint = find_hint(option, text);
    const char *nearest = hint ? NULL : nearest_choice(option, text);
    hint = hint || nearest ? hint : find_hint(option, "");
    return fsh_error_set(error, FSH_ERR_USAGE, "--%s: '%s' is not one of: %s%s%s%s%s%s", option->name, text,
                         known, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "",
                         hint ? "; " : "", hint ? hint : "");
}

static FshStatus store_list(const Option *option, const char *text, FshError *error)
{
    if (!*text)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: the value is empty", option->name);
    OptionList *list = option->value;
    const char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items)
        return fsh_error_set(error, FSH_ERR_MEMORY, "--%s: out of memory", option->name);
    items[list->count++] = text;
    list->items = items;
    return FSH_OK;
}

/* By OptionKind; a flag has no text. */
static FshStatus (*const store_value[])(const Option *option, const char *text, FshError *error) = {
    [OPTION_FLAG] = NULL,       [OPTION_INTEGER] = store_integer, [OPTION_SIZE] = store_size,
    [OPTION_REAL] = store_real, [OPTION_TEXT] = store_text,       [OPTION_CHOICE] = store_choice,
    [OPTION_LIST] = store_list,
};

void option_list_free(OptionList *list)
{
    free(list->items);
    *list = (OptionList){0};
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
    char typed[NAME_MAX_LENGTH + 1];
    size_t typed_length;
    const char *name;
    unsigned distance;  /* of name; or more than is accepted */
    const char *longer; /* the option that begins with the typed text */
    size_t longer_count;
} Nearest;

static void consider_name(const Option *option, void *context)
{
    Nearest *nearest = context;
    if (strlen(option->name) > NAME_MAX_LENGTH)
        return;
    unsigned distance = edit_distance(nearest->typed, option->name);
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
    if (typed_length <= NAME_MAX_LENGTH) {
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
    const char *hint = find_hint(option, "");
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
    if (strncmp(next, "--", 2) == 0 && find_hint(option, ""))
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
        if (read_token(&cursor, &token, NULL) != FSH_OK)
            continue;
        arguments->help = arguments->help || token.option == help_option;
        arguments->version = arguments->version || token.option == version_option;
    }
}

static FshStatus store_option(const Token *token, bool *seen, FshError *error)
{
    const Option *option = token->option;
    if (*seen && option->kind != OPTION_LIST)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: given twice", option->name);
    *seen = true;
    if (option->given)
        *option->given = true;
    if (option->kind != OPTION_FLAG)
        return store_value[option->kind](option, token->text, error);
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
        return store_value[option->kind](option, text, error);
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s: '%s' is neither true nor false", option->name,
                             text);
    *(bool *)option->value = text[0] == 't';
    return FSH_OK;
}

/* Stores the file that the words name before anything else. Wrong words are reported later. */
static FshStatus store_config(const OptionTable *table, char **words, OptionArguments *arguments,
                              FshError *error)
{
    const char *path = NULL;
    Cursor cursor = {.table = table, .next = words};
    for (skip_separator(&cursor); table->config && !at_end(&cursor); skip_separator(&cursor)) {
        Token token;
        if (read_token(&cursor, &token, NULL) == FSH_OK && token.option && token.text &&
            strcmp(token.option->name, table->config) == 0)
            path = token.text;
    }
    if (!path)
        return FSH_OK;
    FshStatus status = options_config_read(path, &arguments->config, error);
    if (!status)
        status = options_config_apply(table, path, arguments->config, error);
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
    status = store_config(table, words, arguments, error);
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
    *arguments = (OptionArguments){0};
}

FshStatus options_split_colon(const char *what, const char *text, char (*parts)[256], size_t most,
                              size_t *count_ret, FshError *error)
{
    size_t count = 0;
    for (const char *part = text; part;) {
        const char *colon = strchr(part, ':');
        size_t length = colon ? (size_t)(colon - part) : strlen(part);
        if (length == 0)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' has an empty part; write A:B", what, text);
        if (length >= sizeof *parts)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: a part of '%s' is longer than %zu bytes", what,
                                 text, sizeof *parts - 1);
        if (count == most)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' has more than %zu parts", what, text, most);
        memcpy(parts[count], part, length);
        parts[count][length] = '\0';
        for (size_t i = 0; i < count; i++)
            if (strcmp(parts[i], parts[count]) == 0)
                return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' names '%s' twice", what, text, parts[i]);
        count++;
        part = colon ? colon + 1 : NULL;
    }
    if (count < 2)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' has no colon; write A:B", what, text);
    *count_ret = count;
    return FSH_OK;
}
