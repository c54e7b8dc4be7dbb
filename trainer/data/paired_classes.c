#include "trainer/data/paired_classes.h"

#include <stdlib.h>
#include <string.h>

#include "common/paired_names.h"
#include "imaging/mask.h"

/* Returns what follows the class folder in a sample's path, "CLASS/x.jpg" or "train/CLASS/x.jpg", without the
 * extension. */
static ClassFile below_class(const FshSample *sample, const char *class_name)
{
    const size_t class_bytes = strlen(class_name);
    const char *at = sample->key, *end = at + sample->key_bytes;
    for (int depth = 0; depth < 2; depth++) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const bool found =
            slash && (size_t)(slash - at) == class_bytes && !memcmp(at, class_name, class_bytes);
        at = slash ? slash + 1 : at;
        if (found)
            break;
    }
    for (const char *dot = end; dot-- > at && *dot != '/';) {
        if (*dot != '.')
            continue;
        end = dot > at && dot[-1] != '/' ? dot : end;
        break;
    }
    return (ClassFile){.path = at, .path_bytes = (size_t)(end - at), .label = (int32_t)sample->label};
}

/* Returns the one class of two whose first image begins as a mask does; -1: neither, or both. */
static int find_mask_class(const FshSplit *split, FshUnpacker *unpacker)
{
    bool seen[2] = {false, false}, masks[2] = {false, false};
    for (uint64_t i = 0; i < split->sample_count && !(seen[0] && seen[1]); i++) {
        FshSample sample;
        const void *data = NULL;
        size_t bytes = 0;
        if (fsh_sample_get(split, i, &sample, NULL) || sample.label < 0 || sample.label > 1 ||
            seen[sample.label])
            continue;
        seen[sample.label] = true;
        masks[sample.label] = !fsh_field_unpack(unpacker, split, &sample.fields[0], &data, &bytes, NULL) &&
                              mask_begins(data, bytes);
    }
    return masks[0] == masks[1] ? -1 : masks[1];
}

FshStatus paired_classes_look(const FshSplit *split, bool *paired_ret, int *mask_class_ret, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(split->dataset);
    uint64_t count = 0;
    *paired_ret = false;
    *mask_class_ret = -1;
    if (manifest->class_count != 2 || !fsh_container_has(manifest->container, FSH_HAS_FILES))
        return FSH_OK;
    ClassFile *files = calloc(split->sample_count + 1, sizeof *files);
    if (!files)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", fsh_path(split->dataset));
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshSample sample;
        if (fsh_sample_get(split, i, &sample, NULL) == FSH_OK && (sample.label == 0 || sample.label == 1))
            files[count++] = below_class(&sample, manifest->class_names[sample.label]);
    }
    *paired_ret = paired_names(files, count);
    free(files);
    if (!*paired_ret)
        return FSH_OK;
    FshUnpacker *unpacker = NULL;
    FshStatus status = fsh_unpacker_new(&unpacker, error);
    if (!status)
        *mask_class_ret = find_mask_class(split, unpacker);
    fsh_unpacker_free(&unpacker);
    return status;
}
