#include "trainer/plan/deciding_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/options_config.h"

/* Returns the values of the rows without OPTION_FREE and, with `alike`, of those with OPTION_ALIKE. */
static json_t *values_of(const TrainOptions *options, bool alike)
{
    TrainOptions copy = *options;
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&copy, rows);
    for (Option *row = rows; alike && row->name; row++)
        if (row->marks & OPTION_ALIKE)
            row->marks &= ~(unsigned)OPTION_FREE;
    const OptionTable table = train_options_table(rows);
    return options_config_object(&table, OPTION_FREE);
}

json_t *deciding_options(const TrainOptions *options)
{
    return values_of(options, false);
}

json_t *deciding_options_of_ranks(const TrainOptions *options)
{
    return values_of(options, true);
}

/* Returns whether the default of the option, by its member's name, varies (OPTION_VARIES). */
static bool varies(const char *member)
{
    TrainOptions options = train_options_default();
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&options, rows);
    for (const Option *row = rows; row->name; row++) {
        const char *at = member, *name = row->name;
        while (*name && *at == (*name == '-' ? '_' : *name)) {
            at++;
            name++;
        }
        if (!*name && !*at)
            return (row->marks & OPTION_VARIES) != 0;
    }
    return false;
}

/* Writes a value as the command line would have it: 0.5, cosine, true; "not given" for null; where it is the
 * default (plain: NULL where it is not known) with ", the default", or, where that varies, without a claim
 * that the run has this one. Returns text. */
static const char *value_text(const char *member, const json_t *value, const json_t *plain, char *text,
                              size_t text_bytes)
{
    char *other = NULL;
    if (!value || json_is_null(value))
        (void)snprintf(text, text_bytes, "not given");
    else if (json_is_string(value))
        (void)snprintf(text, text_bytes, "%s", json_string_value(value));
    else if (json_is_real(value))
        (void)snprintf(text, text_bytes, "%.9g", json_real_value(value));
    else
        (void)snprintf(text, text_bytes, "%s",
                       (other = json_dumps(value, JSON_ENCODE_ANY)) ? other : "out of memory");
    free(other);
    const size_t length = strlen(text);
    if (value && !json_is_null(value) && plain && json_equal(value, plain))
        (void)snprintf(text + length, text_bytes - length,
                       varies(member) ? " or another default" : ", the default");
    return text;
}

void deciding_differences(const json_t *now, const json_t *before, const json_t *plain,
                          const DifferenceWords *words, char *text, size_t text_bytes)
{
    size_t length = 0;
    const char *member;
    json_t *value;
    text[0] = '\0';
    json_object_foreach((json_t *)now, member, value)
    {
        char name[64], is[240], was[240];
        const json_t *known = json_object_get(before, member);
        const json_t *usual = json_object_get(plain, member), *old = known ? known : usual;
        if (json_equal(value, old) || length >= text_bytes)
            continue;
        (void)snprintf(name, sizeof name, "%s", member);
        for (char *at = name; *at && words->dashes; at++)
            *at = *at == '_' ? '-' : *at;
        length +=
            (size_t)snprintf(text + length, text_bytes - length, "%s%s%s%s%s%s%s%s", length ? ", " : "",
                             words->before, name, words->is, value_text(member, value, usual, is, sizeof is),
                             words->was, value_text(member, old, usual, was, sizeof was), words->after);
    }
}
