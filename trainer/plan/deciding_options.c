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

/* Writes a real number with as many digits as it takes to read it back: 0.05, and not more where that is
 * enough. */
static void write_real(double value, char *text, size_t text_bytes)
{
    (void)snprintf(text, text_bytes, "%.15g", value);
    if (strtod(text, NULL) != value)
        (void)snprintf(text, text_bytes, "%.17g", value);
}

/* Returns the value of the member in a run: what its plan has chosen, else what its options have. */
static const json_t *value_in(const DecidedOptions *run, const char *member)
{
    const json_t *chosen = json_object_get(run->chosen, member);
    return chosen ? chosen : json_object_get(run->options, member);
}

/* Returns what is to be said of a value of a run beside the value: ", the default", or, where that varies and
 * the plan is not known, no more than that the run may have another one. */
static const char *origin_of(const DecidedOptions *run, const char *member, const json_t *plain)
{
    if (json_object_get(run->chosen, member))
        return ", the default";
    const json_t *value = json_object_get(run->options, member);
    if (!plain || json_is_null(plain) || (value && !json_equal(value, plain)))
        return "";
    return !varies(member) ? ", the default" : run->chosen ? "" : " or another default";
}

/* Writes the value of a member in a run as the command line would have it, 0.5, cosine, true, and where that
 * is from; "not given" for null. plain: the default, which it is where the options lack the member; NULL: not
 * known. Returns text. */
static const char *value_text(const DecidedOptions *run, const char *member, const json_t *plain, char *text,
                              size_t text_bytes)
{
    const json_t *own = value_in(run, member), *value = own ? own : plain;
    char *other = NULL;
    if (!value || json_is_null(value))
        (void)snprintf(text, text_bytes, "not given");
    else if (json_is_string(value))
        (void)snprintf(text, text_bytes, "%s", json_string_value(value));
    else if (json_is_real(value))
        write_real(json_real_value(value), text, text_bytes);
    else
        (void)snprintf(text, text_bytes, "%s",
                       (other = json_dumps(value, JSON_ENCODE_ANY)) ? other : "out of memory");
    free(other);
    const size_t length = strlen(text);
    if (value && !json_is_null(value))
        (void)snprintf(text + length, text_bytes - length, "%s", origin_of(run, member, plain));
    return text;
}

/* Returns whether a member differs between two runs. Where both left it open, or where it is not known which
 * of them did, it must differ in their options, too: what follows from others does not count. */
static bool differs(const DecidedOptions *now, const DecidedOptions *before, const char *member,
                    const json_t *plain)
{
    const json_t *is = value_in(now, member), *was = value_in(before, member);
    const json_t *typed = json_object_get(now->options, member),
                 *typed_before = json_object_get(before->options, member);
    const bool open_now = json_object_get(now->chosen, member),
               open_before = json_object_get(before->chosen, member);
    const bool alike = json_equal(typed, typed_before ? typed_before : plain);
    if (json_equal(is, was ? was : plain))
        return false;
    return !alike || (now->chosen && before->chosen && open_now != open_before);
}

void deciding_differences(const DecidedOptions *now, const DecidedOptions *before, const json_t *plain,
                          const DifferenceWords *words, char *text, size_t text_bytes)
{
    size_t length = 0;
    const char *member;
    json_t *value;
    text[0] = '\0';
    json_object_foreach((json_t *)now->options, member, value)
    {
        char name[64], is[240], was[240];
        const json_t *usual = json_object_get(plain, member);
        if (!differs(now, before, member, usual) || length >= text_bytes)
            continue;
        (void)snprintf(name, sizeof name, "%s", member);
        for (char *at = name; *at && words->dashes; at++)
            *at = *at == '_' ? '-' : *at;
        length +=
            (size_t)snprintf(text + length, text_bytes - length, "%s%s%s%s%s%s%s%s", length ? ", " : "",
                             words->before, name, words->is, value_text(now, member, usual, is, sizeof is),
                             words->was, value_text(before, member, usual, was, sizeof was), words->after);
    }
}
