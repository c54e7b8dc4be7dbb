/* pack_texts.c - labels that somebody wrote down to classes: names, or numbers. */
#include <stdlib.h>
#include <string.h>

#include "tools/pack/pack_keyed.h"

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether all are numbers, and the largest. */
static bool all_numbers(const PackKeyed *keyed, const char *const *texts, uint64_t *most_ret)
{
    *most_ret = 0;
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        uint64_t number = 0;
        if (!names_parse_number(texts[i], &number))
            return false;
        *most_ret = number > *most_ret ? number : *most_ret;
    }
    return true;
}

/* Numbers are places: in the file of --classes, or in a list of classes that have no other names. */
static FshStatus label_by_number(PackKeyed *keyed, const PackOptions *options, const char *const *texts,
                                 uint64_t most, const char *what, NameList *names, FshError *error)
{
    FshStatus status = options->classes ? key_read_class_list(options->classes, names, error)
                                        : names_add_numbers(names, most + 1, what, error);
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        uint64_t number = 0;
        (void)names_parse_number(texts[i], &number);
        keyed->samples[i].label = (int32_t)number;
        if (number >= names->count)
            status = fsh_error_set(error, FSH_ERR_MISMATCH,
                                   "%s: the label of %.*s is %s, and %s names %zu classes, counted from 0",
                                   what, (int)keyed->samples[i].key_bytes, keyed->samples[i].key, texts[i],
                                   options->classes, names->count);
    }
    return status;
}

/* Names in byte order, as those of folders. */
static FshStatus label_by_name(PackKeyed *keyed, const char *const *texts, NameList *names, FshError *error)
{
    FshStatus status = FSH_OK;
    const char **sorted = calloc(keyed->sample_count + 1, sizeof *sorted);
    if (!sorted)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    memcpy(sorted, texts, keyed->sample_count * sizeof *sorted);
    qsort(sorted, keyed->sample_count, sizeof *sorted, compare_texts);
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        if (i == 0 || strcmp(sorted[i - 1], sorted[i]) != 0)
            status = names_add(names, sorted[i], error);
    }
    free(sorted);
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        size_t label = 0;
        (void)names_find(names, texts[i], &label);
        keyed->samples[i].label = (int32_t)label;
    }
    return status;
}

FshStatus key_label_by_texts(PackKeyed *keyed, const PackOptions *options, const char *const *texts,
                             const char *what, FshError *error)
{
    NameList names = {0};
    uint64_t most = 0;
    FshStatus status = FSH_OK;
    if (keyed->sample_count)
        status = all_numbers(keyed, texts, &most)
                     ? label_by_number(keyed, options, texts, most, what, &names, error)
                     : label_by_name(keyed, texts, &names, error);
    keyed->class_names = names.names;
    keyed->class_count = names.count;
    return status;
}
