#include "tools/job/job.h"

#include <stdbool.h>

#include "common/json_text.h"

FshStatus job_print_json(FILE *stream, json_t *object, size_t flags, FshError *error)
{
    const bool printed = object && json_dumpf(object, stream, flags | JSON_COMPACT | JSON_PRINTED) == 0 &&
                         fputc('\n', stream) != EOF;
    json_decref(object);
    return printed ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "--json: the result cannot be written");
}
