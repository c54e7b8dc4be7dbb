#include "tools/resize/resize_recipe.h"

json_t *resize_recipe_json(const ResizeRecipe *recipe, const char *tool)
{
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:i, s:s, s:s, s:i, s:s, s:s, s:b, s:b}", "tool", tool,
                     "version", FSHARD_VERSION, "max_size", (int)recipe->max_size, "edge",
                     recipe->long_edge ? "long" : "short", "filter", resample_filter_names[recipe->filter],
                     "quality", recipe->quality, "subsampling",
                     recipe->subsampling == IMAGE_SUBSAMPLING_420 ? "420" : "444", "format",
                     recipe->format == IMAGE_UNKNOWN ? "keep" : image_format_name(recipe->format), "min_size",
                     (int)recipe->min_size, "orient", recipe->ignore_orientation ? "ignore" : "apply", "icc",
                     recipe->ignore_icc ? "ignore" : "srgb", "exact", recipe->exact, "keep_metadata",
                     recipe->keep_metadata);
}
