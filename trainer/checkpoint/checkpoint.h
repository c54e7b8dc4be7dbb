/* checkpoint.h - everything that a run needs to go on where it stopped, in one file.
 *
 * OUTPUT/checkpoint.safetensors holds every tensor of the State (parameters, buffers, the optimizer's) as
 * float32, bit for bit, and in its metadata, under "fshard.checkpoint", where the run stood: a JSON object
 * made by the loop (progress.h). So N steps are the same as k steps, a stop, and N - k steps.
 *
 * It is replaced atomically: at any moment the file is the one before or the new one. */
#ifndef FSHARD_TRAINER_CHECKPOINT_CHECKPOINT_H
#define FSHARD_TRAINER_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>

#include "trainer/backend/backend.h"

/* notes: borrowed. */
FshStatus checkpoint_save(const char *path, State *state, const Graph *graph, const json_t *notes,
                          FshError *error);

/* The notes alone, a new reference. FSH_ERR_NOT_FOUND; FSH_ERR_MISMATCH: weights without a checkpoint's
 * notes; FSH_ERR_CORRUPT. */
FshStatus checkpoint_notes(const char *path, json_t **notes_ret, FshError *error);

/* Sets the State. FSH_ERR_MISMATCH: the checkpoint is of another network or optimizer (the first tensor that
 * differs); nothing is changed then. */
FshStatus checkpoint_load(const char *path, State *state, const Graph *graph, FshError *error);

#endif
