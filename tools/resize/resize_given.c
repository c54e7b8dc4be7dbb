#include "tools/resize/resize_given.h"

#include <stdio.h>
#include <string.h>

#include "tools/resize/resize_state_recipe.h"

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

/* A "?" may stand for a byte that JSON cannot hold. */
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

FshStatus resize_given_fill(const Option *options, const char *destination, json_t **recipe_ret,
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
