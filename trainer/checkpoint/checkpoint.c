#include "trainer/checkpoint/checkpoint.h"

#include <stdlib.h>

#include "trainer/checkpoint/state_file.h"

static const char notes_key[] = "fshard.checkpoint";

char *checkpoint_format(const json_t *notes)
{
    return json_dumps(notes, JSON_COMPACT | JSON_REAL_PRECISION(17)); /* digits that tell every double */
}

FshStatus checkpoint_save(const char *path, State *state, const Graph *graph, const char *notes,
                          FshError *error)
{
    const SafetensorsMetadata metadata[] = {{"writer", "fshard " FSHARD_VERSION}, {notes_key, notes}};
    return state_file_write(path, state, graph, STATE_ALL, 0, metadata, 2, error);
}

FshStatus checkpoint_notes(const char *path, json_t **notes_ret, FshError *error)
{
    Safetensors *file = NULL;
    json_error_t where;
    *notes_ret = NULL;
    FshStatus status = safetensors_open(&file, path, error);
    if (status)
        return status;
    const char *text = safetensors_metadata(file, notes_key);
    if (!text)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "%s: holds weights and no state of a run; a run goes on from its "
                               "checkpoint.safetensors (--weights begins a new run with these)",
                               path);
    else if (!(*notes_ret = json_loads(text, JSON_REJECT_DUPLICATES, &where)))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: its notes are no JSON: %s", path, where.text);
    safetensors_close(&file);
    return status;
}

/* Returns whether a run since the last update had a loss that was no number. */
static bool holds_refused(const Safetensors *file)
{
    const SafetensorsEntry *micro = safetensors_find(file, "optimizer.micro");
    float count = 0;
    return micro && micro->count == 1 && !safetensors_read_f32(micro, &count, 1, NULL) && count < 0;
}

FshStatus checkpoint_load(const char *path, State *state, const Graph *graph, bool *at_update,
                          FshError *error)
{
    Safetensors *file = NULL;
    FshStatus status = safetensors_open(&file, path, error);
    *at_update = *at_update || (!status && holds_refused(file));
    const StatePart part = *at_update ? STATE_AT_UPDATE : STATE_ALL;
    if (!status)
        status = state_file_check(path, file, graph, part, NULL, error);
    if (!status)
        status = state_file_read(path, file, state, graph, part, NULL, error);
    safetensors_close(&file);
    return status;
}
