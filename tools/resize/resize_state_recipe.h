/* resize_state_recipe.h - recipe.json: how a destination is made, from what, and whether another run's is the
 * same. Internal to resize_state.c and resize_given.c. */
#ifndef FSHARD_RESIZE_STATE_RECIPE_H
#define FSHARD_RESIZE_STATE_RECIPE_H

#include <jansson.h>

#include "tools/resize/resize_state.h"

#define RECIPE_NAME "recipe.json"

/* The path without links and dots, also where its last parts do not exist yet. FSH_ERR_USAGE: it is too long,
 * or goes up from what does not exist. */
FshStatus recipe_resolve(const char *path, char resolved[PATH_MAX], FshError *error);

/* A file of the state's. object is consumed; NULL, with error set, passes through. */
FshStatus recipe_write_json(const ResizeState *state, const char *name, json_t *object, FshError *error);
/* *object_ret: NULL if there is no such file, or it is no object; the caller's. */
FshStatus recipe_read_json(const ResizeState *state, const char *name, json_t **object_ret, FshError *error);

FshStatus recipe_write(const ResizeState *state, const ResizeOptions *options, bool complete,
                       FshError *error);
/* Into state->recipe: what ledgers know the recipe by. */
FshStatus recipe_hash(ResizeState *state, const ResizeOptions *options, FshError *error);
/* FSH_ERR_EXISTS, with what differs, unless theirs is the recipe of these options; writes: and with the way
 * out. */
FshStatus recipe_compare(const ResizeState *state, const json_t *theirs, const ResizeOptions *options,
                         bool writes, FshError *error);
/* "max-size" to "max_size": under which key an option stands in recipe.json. Returns key. */
const char *recipe_key(const char *option, char *key, size_t key_bytes);

#endif
