/* checkpoint.h - saves everything that a run needs to resume, in one file.
 *
 * OUTPUT/checkpoint.safetensors holds every tensor of the State (parameters, buffers, optimizer) as float32,
 * bit for bit. Its metadata has "fshard.checkpoint", a JSON object made by the loop, which says where the run
 * stood (run_state.h). So N steps give the same as k steps, a stop, and N - k steps.
 *
 * The file is replaced atomically: at any moment it is the old one or the new one. */
#ifndef FSHARD_TRAINER_CHECKPOINT_CHECKPOINT_H
#define FSHARD_TRAINER_CHECKPOINT_CHECKPOINT_H

#include <jansson.h>

#include "trainer/backend/backend.h"

/* Returns the notes as text whose numbers are read back exactly; free it. NULL: no memory. */
char *checkpoint_format(const json_t *notes);
/* Writes the checkpoint. notes: of checkpoint_format. */
FshStatus checkpoint_save(const char *path, State *state, const Graph *graph, const char *notes,
                          FshError *error);

/* Reads the notes alone and sets *notes_ret to a new reference. FSH_ERR_NOT_FOUND; FSH_ERR_MISMATCH: weights
 * without the notes of a checkpoint; FSH_ERR_CORRUPT. */
FshStatus checkpoint_notes(const char *path, json_t **notes_ret, FshError *error);

/* Sets the State from the checkpoint. *at_update: it is to stand where its last update has left it; what
 * was gathered for the next one is neither asked for nor taken. *at_update becomes true where ranks have
 * noted that one of the runs since that update had a loss that was no number (Optimizer, "optimizer.micro"):
 * those runs are to be made again. FSH_ERR_MISMATCH: it is from another network or optimizer (the message
 * names the first tensor that differs); nothing is changed then. */
FshStatus checkpoint_load(const char *path, State *state, const Graph *graph, bool *at_update,
                          FshError *error);

#endif
