/* pack_chosen.c - classes that somebody wrote down: --classes, these and no others in the order of a file;
 * and labels that stand in a file, names or numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/text.h"
#include "tools/pack/pack_keyed.h"

enum { LIST_BYTES_MAX = 64 << 20 };

/* A name and its place in a list. */
typedef struct ClassPlace {
    const char *name;
    size_t place;
} ClassPlace;

static int compare_places(const void *a, const void *b)
{
    const ClassPlace *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order ? order : (left->place > right->place) - (left->place < right->place);
}

/* Returns the names of the list in byte order, owned by the caller; NULL: out of memory. */
static ClassPlace *sort_places(const NameList *names)
{
    ClassPlace *places = calloc(names->count + 1, sizeof *places);
    for (size_t i = 0; places && i < names->count; i++)
        places[i] = (ClassPlace){.name = names->names[i], .place = i};
    if (places && names->count)
        qsort(places, names->count, sizeof *places, compare_places);
    return places;
}

/* ---- the file ---- */

static FshStatus refuse_twice(const char *path, const NameList *names, FshError *error)
{
    ClassPlace *places = sort_places(names);
    FshStatus status = places ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 1; i < names->count && !status; i++) {
        if (strcmp(places[i - 1].name, places[i].name) == 0)
            status = fsh_error_set(error, FSH_ERR_CORRUPT,
                                   "%s: the class '%s' is there twice, as names %zu and %zu", path,
                                   places[i].name, places[i - 1].place + 1, places[i].place + 1);
    }
    free(places);
    return status;
}

/* Reads names, one a line; what follows a tab and empty lines are passed over. FSH_ERR_NOT_FOUND,
 * FSH_ERR_SYSTEM; FSH_ERR_CORRUPT: no text, no name, or one name twice. */
static FshStatus read_class_list(const char *path, NameList *names, FshError *error)
{
    Buffer text = {0};
    FshStatus status = file_read_stream(path, LIST_BYTES_MAX, &text, error);
    if (!status)
        status = buffer_append(&text, "\n", 2, error); /* and a NUL */
    if (!status && memchr(text.bytes, '\0', text.length - 1))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: is no text file", path);
    for (char *line = (char *)text.bytes, *end = NULL; !status && (end = strchr(line, '\n'));
         line = end + 1) {
        *end = '\0';
        line[strcspn(line, "\r\t")] = '\0'; /* words.txt of ImageNet has words after a tab */
        if (*line)
            status = names_add(names, line, error);
    }
    if (!status && names->count == 0)
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "%s: names no class", path);
    buffer_free(&text);
    return status ? status : refuse_twice(path, names, error);
}

/* ---- choosing: --classes ---- */

/* Returns what each class found becomes: its place in the list, or -1. Owned by the caller; NULL: out of
 * memory. */
static int32_t *match_classes(const PackKeyed *keyed, const NameList *chosen)
{
    int32_t *labels = calloc(keyed->class_count + 1, sizeof *labels);
    ClassPlace *places = sort_places(chosen);
    for (size_t i = 0; i < keyed->class_count && labels && places; i++) {
        const ClassPlace key = {.name = keyed->class_names[i]};
        size_t low = 0, high = chosen->count; /* the first place that is not below the name */
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (strcmp(places[middle].name, key.name) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        labels[i] =
            low < chosen->count && strcmp(places[low].name, key.name) == 0 ? (int32_t)places[low].place : -1;
    }
    if (!places) {
        free(labels);
        labels = NULL;
    }
    free(places);
    return labels;
}

void keyed_count_other_class(PackKeyed *keyed, const char *path)
{
    if (keyed->other_class_count++ == 0)
        (void)snprintf(keyed->other_class_example, sizeof keyed->other_class_example, "%s", path);
}

/* Keeps the samples of chosen classes. */
static FshStatus keep_samples(PackKeyed *keyed, const int32_t *labels, size_t chosen_count, FshError *error)
{
    uint64_t kept = 0;
    char name[PATH_MAX];
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        PackSample *sample = &keyed->samples[i];
        const int32_t label = sample->label >= 0 ? labels[sample->label] : -1;
        if (label < 0) {
            keyed_count_other_class(keyed, sample_source_name(keyed->found, sample, 0, name));
            continue;
        }
        sample->label = label;
        keyed->samples[kept++] = *sample;
    }
    keyed->sample_count = kept;
    if (kept == 0)
        return fsh_error_set(
            error, FSH_ERR_NOT_FOUND,
            "--classes: %s has no image of any of the %zu classes in %s; its own classes are "
            "named like '%s'",
            keyed->found->root, chosen_count, keyed->found->options->classes,
            keyed->class_count ? keyed->class_names[0] : "");
    if (keyed->other_class_count == 0)
        return FSH_OK;
    return notes_addf(&keyed->found->notes->warnings, FSH_OK, error, "--classes",
                      "left out %llu image%s of other classes, such as %s",
                      (unsigned long long)keyed->other_class_count, text_plural(keyed->other_class_count),
                      keyed->other_class_example);
}

static FshStatus tell_missing(PackKeyed *keyed, const NameList *chosen, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    size_t missing = 0;
    const char *example = NULL;
    uint64_t *counts = calloc(chosen->count + 1, sizeof *counts);
    if (!counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->classes);
    for (uint64_t i = 0; i < keyed->sample_count; i++)
        counts[keyed->samples[i].label]++;
    for (size_t i = chosen->count; i-- > 0;) {
        missing += counts[i] == 0;
        example = counts[i] == 0 ? chosen->names[i] : example;
    }
    free(counts);
    if (!missing)
        return FSH_OK;
    return notes_addf(
        &keyed->found->notes->warnings, FSH_OK, error, options->classes,
        "%zu of its %zu classes have no image, '%s' is the first; kept as classes with no sample", missing,
        chosen->count, example);
}

FshStatus key_choose_classes(PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    NameList chosen = {0};
    int32_t *labels = NULL;
    if (keyed->found->kind != FSH_KIND_CLASSES)
        return fsh_error_set(error, FSH_ERR_USAGE, "--classes: pairs have no classes");
    FshStatus status = read_class_list(options->classes, &chosen, error);
    if (!status) {
        labels = match_classes(keyed, &chosen);
        status = labels ? keep_samples(keyed, labels, chosen.count, error)
                        : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->classes);
    }
    if (!status)
        status = tell_missing(keyed, &chosen, error);
    if (!status) {
        NameList before = {.names = keyed->class_names, .count = keyed->class_count};
        names_free(&before);
        keyed->class_names = chosen.names;
        keyed->class_count = chosen.count;
        chosen = (NameList){0};
    }
    free(labels);
    names_free(&chosen);
    return status;
}

/* ---- labels that are texts ---- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns whether all texts are numbers; *most_ret: the largest. */
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

/* Takes numbers as places: in the file of --classes, or in a list of classes that have no other names. */
static FshStatus label_by_number(PackKeyed *keyed, const char *const *texts, uint64_t most, const char *what,
                                 NameList *names, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    FshStatus status = options->classes ? read_class_list(options->classes, names, error)
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

/* Gives samples the classes that texts name, in byte order as those of folders. */
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

FshStatus key_label_by_names(PackKeyed *keyed, const char *const *texts, FshError *error)
{
    NameList names = {0};
    const FshStatus status = label_by_name(keyed, texts, &names, error);
    keyed->class_names = names.names;
    keyed->class_count = names.count;
    return status;
}

FshStatus key_label_by_texts(PackKeyed *keyed, const char *const *texts, const char *what, FshError *error)
{
    NameList names = {0};
    uint64_t most = 0;
    FshStatus status = FSH_OK;
    if (keyed->sample_count)
        status = all_numbers(keyed, texts, &most) ? label_by_number(keyed, texts, most, what, &names, error)
                                                  : label_by_name(keyed, texts, &names, error);
    keyed->class_names = names.names;
    keyed->class_count = names.count;
    return status;
}
