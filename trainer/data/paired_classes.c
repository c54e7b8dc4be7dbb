#include "trainer/data/paired_classes.h"

#include <stdlib.h>
#include <string.h>

/* A sample's path below its class folder, without the extension. Borrowed from the dataset. */
typedef struct ClassFile {
    const char *path;
    size_t path_bytes;
    int32_t label;
} ClassFile;

static int compare_names(const ClassFile *left, const ClassFile *right)
{
    if (left->path_bytes != right->path_bytes)
        return left->path_bytes < right->path_bytes ? -1 : 1;
    return memcmp(left->path, right->path, left->path_bytes);
}

/* Orders by path, then class. */
static int compare_class_files(const void *a, const void *b)
{
    const ClassFile *left = a, *right = b;
    const int order = compare_names(left, right);
    return order ? order : (left->label > right->label) - (left->label < right->label);
}

static bool is_number(const ClassFile *file)
{
    size_t digits = 0;
    while (digits < file->path_bytes && file->path[digits] >= '0' && file->path[digits] <= '9')
        digits++;
    return digits == file->path_bytes;
}

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

/* Counts the files that both classes have, and the files of each class. */
static void count_same(ClassFile *files, uint64_t count, uint64_t *same_ret, uint64_t counts[2])
{
    qsort(files, count, sizeof *files, compare_class_files);
    *same_ret = counts[0] = counts[1] = 0;
    for (uint64_t i = 0; i < count; i++) {
        counts[files[i].label]++;
        *same_ret += i > 0 && files[i].label != files[i - 1].label && !is_number(&files[i]) &&
                     compare_names(&files[i], &files[i - 1]) == 0;
    }
}

FshStatus paired_classes_look(const FshSplit *split, bool *paired_ret, FshError *error)
{
    const FshManifest *manifest = fsh_manifest(split->dataset);
    uint64_t count = 0, same = 0, counts[2] = {0};
    *paired_ret = false;
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
    count_same(files, count, &same, counts);
    free(files);
    *paired_ret = same > (counts[0] > counts[1] ? counts[0] : counts[1]) / 2;
    return FSH_OK;
}
