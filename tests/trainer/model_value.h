/* model_value.h - sets an option of a network by its name, as ftrain's command line does. */
#ifndef FSHARD_TESTS_TRAINER_MODEL_VALUE_H
#define FSHARD_TESTS_TRAINER_MODEL_VALUE_H

#include "trainer/models/models.h"

/* Returns whether the name is the option's; "encoder_blocks" counts as "encoder-blocks". */
static inline bool model_option_is(const ModelOption *option, const char *name)
{
    const char *own = option->row.name;
    for (; *own && *own == (*name == '_' ? '-' : *name); own++)
        name++;
    return *own == '\0' && *name == '\0';
}

/* Returns the place in values of the option of this name ("width", "encoder_blocks", "encoder-blocks"); NULL:
 * no network has it. */
static inline ModelValue *model_value(ModelValues *values, const char *name)
{
    const ModelOption *option = NULL;
    for (size_t i = 0; (option = model_option(i)); i++)
        if (model_option_is(option, name))
            return &values->at[i];
    return NULL;
}

#endif
