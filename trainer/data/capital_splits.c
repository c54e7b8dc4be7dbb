#include "trainer/data/capital_splits.h"

#include <string.h>

#include "formats/names.h"

bool class_is_like_split(const FshSplit *split, size_t class_number, SplitLikeClass *like_ret)
{
    const FshManifest *manifest = fsh_manifest(split->dataset);
    const char *name = manifest->class_names[class_number], *small = fsh_split_in_small_letters(name);
    const size_t bytes = strlen(name) + 1;
    const bool alone = fsh_are_split_names(manifest->class_names, manifest->class_count);
    bool there = false, deeper = false;
    if ((!small && !alone) || !fsh_container_has(manifest->container, FSH_HAS_FILES))
        return false;
    for (uint64_t i = 0; i < split->sample_count && !deeper; i++) {
        FshSample sample;
        const bool in_class = fsh_sample_get(split, i, &sample, NULL) == FSH_OK &&
                              sample.label == (int64_t)class_number && sample.key_bytes > bytes &&
                              !memcmp(sample.key, name, bytes - 1) && sample.key[bytes - 1] == '/';
        there |= in_class;
        deeper = in_class && memchr(sample.key + bytes, '/', sample.key_bytes - bytes);
    }
    *like_ret = (SplitLikeClass){.small = small ? small : name, .flat = !deeper};
    return (small && deeper) || (alone && there);
}
