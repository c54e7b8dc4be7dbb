#include "trainer/data/capital_splits.h"

#include <string.h>

#include "formats/names.h"

const char *capital_split(const FshSplit *split, size_t class_number)
{
    const FshManifest *manifest = fsh_manifest(split->dataset);
    const char *name = manifest->class_names[class_number], *small = fsh_split_in_small_letters(name);
    const size_t bytes = strlen(name) + 1;
    bool deeper = false;
    if (!small || !fsh_container_has(manifest->container, FSH_HAS_FILES))
        return NULL;
    if (fsh_are_split_names(manifest->class_names, manifest->class_count))
        return small;
    for (uint64_t i = 0; i < split->sample_count && !deeper; i++) {
        FshSample sample;
        deeper = fsh_sample_get(split, i, &sample, NULL) == FSH_OK && sample.label == (int64_t)class_number &&
                 sample.key_bytes > bytes && !memcmp(sample.key, name, bytes - 1) &&
                 sample.key[bytes - 1] == '/' && memchr(sample.key + bytes, '/', sample.key_bytes - bytes);
    }
    return deeper ? small : NULL;
}
