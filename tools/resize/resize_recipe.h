/* resize_recipe.h - the recipe as JSON, as a destination or a dataset keeps it. */
#ifndef FSHARD_RESIZE_RECIPE_H
#define FSHARD_RESIZE_RECIPE_H

#include <jansson.h>

#include "tools/resize/resize_image.h"

/* tool: who makes the images smaller, "fresize" or "fpack". A new reference; NULL: out of memory. */
json_t *resize_recipe_json(const ResizeRecipe *recipe, const char *tool);

#endif
