#include "common/options_value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- similar names ---- */

unsigned options_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    unsigned rows[3][OPTIONS_WORD_MAX + 1]; /* rows of the table: two before, one before, this one */
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

/* ---- one function for each kind ---- */

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
        (void)snprintf(buffer, buffer_bytes, option->kind == OPTION_INTEGER ? "%.0f" : "%.15g", bound);
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

/* Returns whether the option is a share of something: from 0 to 1, or less. */
static bool is_share(const Option *option)
{
    return bounded_above(option) && option->minimum >= 0 && option->maximum <= 1;
}

/* Reads a number. Returns whether the text is one. */
static bool parse_real(const char *text, double *value_ret)
{
    /* The set excludes what strtod also reads: "inf", "nan", hexadecimal, leading blanks. */
    const bool plain = text[0] != '\0' && text[strspn(text, "0123456789+-.eE")] == '\0';
    char *end = NULL;
    *value_ret = strtod(text, &end);
    return plain && !*end && isfinite(*value_ret);
}

bool options_parse_percent(const char *text, double *value_ret)
{
    char scaled[64];
    const size_t digits = strspn(text, "0123456789+-.");
    if (digits == 0 || digits + sizeof "e-2" > sizeof scaled || strcmp(text + digits, "%") != 0)
        return false;
    (void)snprintf(scaled, sizeof scaled, "%.*se-2", (int)digits, text);
    return parse_real(scaled, value_ret);
}

static FshStatus store_real(const Option *option, const char *text, FshError *error)
{
    double value = 0;
    const bool share = is_share(option);
    if (!(parse_real(text, &value) || (share && options_parse_percent(text, &value))) ||
        !in_range(option, value)) {
        char noun[96] = "a number";
        if (share && strchr(text, '%'))
            (void)snprintf(noun, sizeof noun, "a percentage from %.15g%% to %.15g%%, nor a number",
                           100 * option->minimum, 100 * option->maximum);
        return refuse_number(option, text, noun, error);
    }
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
static void fold(const char *text, char folded[OPTIONS_WORD_MAX + 1])
{
    size_t length = 0;
    for (; *text && length < OPTIONS_WORD_MAX; text++) {
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

const char *options_names_near(const char *typed, OptionsNameAt *name_at, char *buffer, size_t buffer_bytes)
{
    enum { WRONG_LETTERS_MAX = 3 };
    const size_t length = strlen(typed), third = length / 3;
    unsigned nearest = (unsigned)(third < WRONG_LETTERS_MAX ? third : WRONG_LETTERS_MAX) + 1;
    char word[OPTIONS_WORD_MAX + 1] = "";
    const char *name = NULL;
    size_t used = 0;
    buffer[0] = '\0';
    if (length > OPTIONS_WORD_MAX)
        return buffer;
    for (size_t i = 0; i < length; i++)
        word[i] = (char)tolower((unsigned char)typed[i]);
    for (size_t i = 0; (name = name_at(i)); i++) {
        const unsigned apart = options_distance(word, name);
        used = apart < nearest ? 0 : used; /* those before are farther */
        if (apart > nearest || (apart == nearest && !used) || used >= buffer_bytes)
            continue;
        const int wrote = snprintf(buffer + used, buffer_bytes - used, "%s%s", used ? " or " : "", name);
        used += wrote > 0 ? (size_t)wrote : 0;
        nearest = apart;
    }
    return buffer;
}

/* Returns the choice that was probably meant: the same apart from case and signs, or a word with one wrong
 * letter that is not the first ("jpg", but not "422"; "gpu" does not give "cpu"). NULL: unknown. */
static const char *nearest_choice(const Option *option, const char *text)
{
    char typed[OPTIONS_WORD_MAX + 1], known[OPTIONS_WORD_MAX + 1];
    const char *nearest = NULL, *choice = NULL;
    fold(text, typed);
    for (int i = options_first_choice(option); *typed && (choice = options_choice_text(option, i)); i++) {
        fold(choice, known);
        if (strcmp(known, typed) == 0)
            return choice;
        if (!nearest && isalpha((unsigned char)typed[0]) && typed[0] == known[0] &&
            options_distance(typed, known) == 1)
            nearest = choice;
    }
    return nearest;
}

const char *options_hint(const Option *option, const char *text)
{
    char typed[OPTIONS_WORD_MAX + 1], known[OPTIONS_WORD_MAX + 1];
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
    const char *hint = options_hint(option, text);
    const char *nearest = hint ? NULL : nearest_choice(option, text);
    hint = hint || nearest ? hint : options_hint(option, "");
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
static FshStatus (*const stores[])(const Option *option, const char *text, FshError *error) = {
    [OPTION_FLAG] = NULL,       [OPTION_INTEGER] = store_integer, [OPTION_SIZE] = store_size,
    [OPTION_REAL] = store_real, [OPTION_TEXT] = store_text,       [OPTION_CHOICE] = store_choice,
    [OPTION_LIST] = store_list,
};

FshStatus options_store_value(const Option *option, const char *text, FshError *error)
{
    return stores[option->kind](option, text, error);
}

void option_list_free(OptionList *list)
{
    free(list->items);
    *list = (OptionList){0};
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
