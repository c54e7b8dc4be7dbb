/* resize_given.h - a check asks for what a destination was made by: options that are not given come from its
 * recipe. */
#ifndef FSHARD_RESIZE_GIVEN_H
#define FSHARD_RESIZE_GIVEN_H

#include <jansson.h>

#include "common/options.h"

/* Stores, into each option whose `given` is there and false, what recipe.json of destination says of it; what
 * it does not say, or not as the option takes it, stays. Texts point into *recipe_ret, which is the caller's
 * to json_decref, NULL where there is none: the check will tell. FSH_ERR_USAGE: the path is too long;
 * FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus resize_given_fill(const Option *options, const char *destination, json_t **recipe_ret,
                            FshError *error);

#endif
