#include "trainer/loop/class_names.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"

FshStatus class_names_parse(ClassNames *names, const char *text, FshError *error)
{
    json_error_t where;
    json_t *array = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    FshStatus status = FSH_OK;
    *names = (ClassNames){0};
    if (!json_is_array(array))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "its names of classes are no list: %s",
                               array ? "another value" : where.text);
    else if (!(names->names = calloc(json_array_size(array) + 1, sizeof *names->names)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for its names of classes");
    for (size_t i = 0; !status && i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (!name)
            status = fsh_error_set(error, FSH_ERR_CORRUPT, "its name of class %zu is no string", i);
        else if (!(names->names[names->count] = strdup(name)))
            status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for its names of classes");
        else
            names->count++;
    }
    json_decref(array);
    if (status)
        class_names_free(names);
    return status;
}

char *class_names_text(const char *const *names, size_t count)
{
    json_t *array = json_array();
    bool complete = array != NULL;
    for (size_t i = 0; i < count && complete; i++)
        complete = json_array_append_new(array, json_text(names[i])) == 0;
    char *text = complete ? json_dumps(array, JSON_COMPACT) : NULL;
    json_decref(array);
    return text;
}

void class_names_free(ClassNames *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (ClassNames){0};
}
