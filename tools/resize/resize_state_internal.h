/* resize_state_internal.h - what the parts of the state (resize_state.h) share: resize_state.c holds locks
 * and ledgers, resize_state_look.c refuses what is not fresize's to write, resize_state_recipe.c keeps
 * recipe.json. */
#ifndef FSHARD_RESIZE_STATE_INTERNAL_H
#define FSHARD_RESIZE_STATE_INTERNAL_H

#include <jansson.h>

#include "tools/resize/resize_state.h"

#define RECIPE_NAME       "recipe.json"
#define OLD_LEDGER_ENDING ".lmdb"

/* Returns whether name ends in ending, after something else. */
bool state_has_ending(const char *name, const char *ending);

/* Does what resize_state_check does, to a state whose locks may be held: there its answer lasts.
 * (resize_state_look.c) */
FshStatus state_look(ResizeState *state, const ResizeOptions *options, FshError *error);

/* ---- recipe.json: how a destination is made, from what, and whether another run's is the same ---- */

/* Writes to resolved the path without links and dots, also where its last parts do not exist yet.
 * FSH_ERR_USAGE: it is too long, or goes up from what does not exist. */
FshStatus recipe_resolve(const char *path, char resolved[PATH_MAX], FshError *error);

/* Writes object, which is consumed, to a file of the state; NULL, with error set, passes through. */
FshStatus recipe_write_json(const ResizeState *state, const char *name, json_t *object, FshError *error);
/* Reads a file of the state. *object_ret is the caller's: NULL if there is no such file, or it is no object.
 */
FshStatus recipe_read_json(const ResizeState *state, const char *name, json_t **object_ret, FshError *error);

/* Writes recipe.json; complete: a run came to its end. */
FshStatus recipe_write(const ResizeState *state, const ResizeOptions *options, bool complete,
                       FshError *error);
/* Fills state->recipe: what ledgers know the recipe by. */
FshStatus recipe_hash(ResizeState *state, const ResizeOptions *options, FshError *error);
/* Refuses a recipe that is not that of these options: FSH_ERR_EXISTS, with what differs; writes: and with the
 * way out. */
FshStatus recipe_compare(const ResizeState *state, const json_t *theirs, const ResizeOptions *options,
                         bool writes, FshError *error);

#endif
