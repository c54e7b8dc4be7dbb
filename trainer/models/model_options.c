/* model_options.c - the options of all networks in one list, and their values. */
#include <stdio.h>
#include <string.h>

#include "trainer/models/networks.h"

bool model_has_option(const Model *model, const ModelOption *option)
{
    for (const ModelOption *const *at = model->options; at && *at; at++)
        if (*at == option)
            return true;
    return false;
}

/* Returns whether an earlier network has the option too. */
static bool was_listed(size_t model_index, const ModelOption *option)
{
    for (size_t i = 0; i < model_index; i++)
        if (model_has_option(model_at(i), option))
            return true;
    return false;
}

const ModelOption *model_option(size_t index)
{
    const Model *model = NULL;
    for (size_t i = 0; (model = model_at(i)); i++)
        for (const ModelOption *const *at = model->options; at && *at; at++)
            if (!was_listed(i, *at) && index-- == 0)
                return *at;
    return NULL;
}

/* Returns where the option's value is. */
static const ModelValue *value_of(const ModelValues *values, const ModelOption *option)
{
    size_t i = 0;
    while (model_option(i) != option)
        i++;
    return &values->at[i];
}

static bool is_chosen(const ModelOption *option, const ModelValue *value)
{
    return option->row.kind == OPTION_TEXT   ? value->text != NULL
           : option->row.kind == OPTION_REAL ? value->real != 0
                                             : value->integer != 0;
}

int64_t model_integer(const ModelSpec *spec, const ModelOption *option, int64_t fallback)
{
    const ModelValue *value = value_of(&spec->options, option);
    return is_chosen(option, value) ? value->integer : fallback;
}

double model_real(const ModelSpec *spec, const ModelOption *option, double fallback)
{
    const ModelValue *value = value_of(&spec->options, option);
    return is_chosen(option, value) ? value->real : fallback;
}

const char *model_text(const ModelSpec *spec, const ModelOption *option, const char *fallback)
{
    const ModelValue *value = value_of(&spec->options, option);
    return is_chosen(option, value) ? value->text : fallback;
}

bool model_has_shapes(const Model *model)
{
    for (const ModelOption *const *at = model->options; at && *at; at++)
        if (!(*at)->trains_only)
            return true;
    return false;
}

/* Writes the names of the networks that have the option to buffer, "unet, nafnet"; of three and more that
 * --list-models has one after the other, "the first to the last". Returns the number of all. */
static size_t list_owners(const ModelOption *option, char *buffer, size_t buffer_bytes)
{
    const Model *model = NULL;
    size_t count = 0, used = 0, run = 0;
    for (size_t i = 0; (model = model_at(i)); i += run ? run : 1) {
        for (run = 0; model_at(i + run) && model_has_option(model_at(i + run), option);)
            run++;
        if (!run)
            continue;
        const char *between = run > 2 ? " to " : ", ", *last = model_at(i + run - 1)->name;
        if (used < buffer_bytes)
            used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%s%s%s", count ? ", " : "",
                                     model->name, run > 1 ? between : "", run > 1 ? last : "");
        count += run;
    }
    return count;
}

FshStatus model_check_options(const Model *model, const ModelValues *values, FshError *error)
{
    const ModelOption *option = NULL;
    FshStatus status = FSH_OK;
    for (size_t i = 0; (option = model_option(i)); i++) {
        char owners[512], text[700];
        if (!is_chosen(option, &values->at[i]) || model_has_option(model, option))
            continue;
        const size_t count = list_owners(option, owners, sizeof owners);
        (void)snprintf(text, sizeof text, "--%s: %s has none; %s %s it", option->row.name, model->name,
                       owners, count == 1 ? "has" : "have");
        if (status)
            fsh_error_advise(error, "%s", text);
        else
            status = fsh_error_set(error, FSH_ERR_USAGE, "%s", text);
    }
    return status;
}

/* ---- in files of weights ---- */

static const char *shape_name(const ModelOption *option, char *name, size_t name_bytes)
{
    size_t i = 0;
    for (; option->row.name[i] && i + 1 < name_bytes; i++)
        name[i] = (char)(option->row.name[i] == '-' ? '_' : option->row.name[i]);
    name[i] = '\0';
    return name;
}

bool model_write_shape(const ModelValues *values, json_t *object)
{
    const ModelOption *option = NULL;
    char name[64];
    bool wrote = true;
    for (size_t i = 0; wrote && (option = model_option(i)); i++) {
        const ModelValue *value = &values->at[i];
        if (!option->trains_only)
            wrote = json_object_set_new(
                        object, shape_name(option, name, sizeof name),
                        option->row.kind == OPTION_TEXT   ? json_string(value->text ? value->text : "")
                        : option->row.kind == OPTION_REAL ? json_real(value->real)
                                                          : json_integer(value->integer)) == 0;
    }
    return wrote;
}

void model_read_shape(const json_t *object, ModelValues *values)
{
    const ModelOption *option = NULL;
    char name[64];
    *values = (ModelValues){0};
    for (size_t i = 0; (option = model_option(i)); i++) {
        const json_t *value = json_object_get(object, shape_name(option, name, sizeof name));
        const char *text = json_string_value(value);
        if (option->trains_only)
            continue;
        if (option->row.kind == OPTION_TEXT)
            values->at[i].text = text && *text ? text : NULL;
        else if (option->row.kind == OPTION_REAL)
            values->at[i].real = json_number_value(value);
        else
            values->at[i].integer = json_integer_value(value) > 0 ? (int64_t)json_integer_value(value) : 0;
    }
}

void model_take_shape(ModelValues *values, const ModelValues *shape)
{
    const ModelOption *option = NULL;
    for (size_t i = 0; (option = model_option(i)); i++)
        if (!option->trains_only && !is_chosen(option, &values->at[i]))
            values->at[i] = shape->at[i];
}
