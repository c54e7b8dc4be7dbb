#include "trainer/checkpoint/class_names.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"

FshStatus class_names_parse(ClassNames *names, const char *text, FshError *error)
{
    json_error_t where;
    json_t *array = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    FshStatus status = FSH_OK;
    *names = (ClassNames){0};
    if (!json_is_array(array))
        status = fsh_error_set(error, FSH_ERR_CORRUPT, "its names of classes are no list: %s",
                               array ? "another value" : where.text);
    else if (!(names->names = calloc(json_array_size(array) + 1, sizeof *names->names)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for its names of classes");
    for (size_t i = 0; !status && i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (!name)
            status = fsh_error_set(error, FSH_ERR_CORRUPT, "its name of class %zu is no string", i);
        else if (!(names->names[names->count] = strdup(name)))
            status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for its names of classes");
        else
            names->count++;
    }
    json_decref(array);
    if (status)
        class_names_free(names);
    return status;
}

char *class_names_text(const char *const *names, size_t count)
{
    json_t *array = json_array();
    bool complete = array != NULL;
    for (size_t i = 0; i < count && complete; i++)
        complete = json_array_append_new(array, json_text(names[i])) == 0;
    char *text = complete ? json_dumps(array, JSON_COMPACT) : NULL;
    json_decref(array);
    return text;
}

FshStatus class_names_copy(ClassNames *names, const char *const *from, size_t count, FshError *error)
{
    *names = (ClassNames){0};
    char *text = class_names_text(from, count);
    FshStatus status = text ? class_names_parse(names, text, error)
                            : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for names of classes");
    free(text);
    return status;
}

void class_names_free(ClassNames *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->names[i]);
    free(names->names);
    *names = (ClassNames){0};
}

/* ---- matching two lists ---- */

/* A name and its index in its list. */
typedef struct Placed {
    const char *name;
    int32_t place;
} Placed;

static int compare_names(const void *a, const void *b)
{
    const Placed *left = a, *right = b;
    return strcmp(left->name, right->name);
}

/* Returns the names sorted in byte order; NULL: no memory. */
static Placed *sort_names(const ClassNames *names)
{
    Placed *sorted = calloc(names->count + 1, sizeof *sorted);
    for (size_t i = 0; sorted && i < names->count; i++)
        sorted[i] = (Placed){names->names[i], (int32_t)i};
    if (sorted)
        qsort(sorted, names->count, sizeof *sorted, compare_names);
    return sorted;
}

static const Placed *find_name(const Placed *sorted, size_t count, const char *name)
{
    const Placed wanted = {.name = name};
    return bsearch(&wanted, sorted, count, sizeof *sorted, compare_names);
}

/* Returns a name that occurs twice in the list; NULL: none does. */
static const char *find_twice(const Placed *sorted, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0)
            return sorted[i].name;
    return NULL;
}

static bool are_same(const ClassNames *a, const ClassNames *b)
{
    bool same = a->count == b->count;
    for (size_t i = 0; same && i < a->count; i++)
        same = strcmp(a->names[i], b->names[i]) == 0;
    return same;
}

static FshStatus find_places(ClassMap *map, const ClassNames *dataset, const Placed *of_dataset,
                             size_t weights_count, const Placed *of_weights, FshError *error)
{
    const char *twice = find_twice(of_weights, weights_count);
    if (twice)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "the weights have two classes '%.100s'; classes are found by their names",
                             twice);
    twice = find_twice(of_dataset, dataset->count);
    if (twice)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "the dataset has two classes '%.100s'; classes are found by their names", twice);
    for (size_t i = 0; i < dataset->count; i++) {
        const Placed *found = find_name(of_weights, weights_count, dataset->names[i]);
        map->places[i] = found ? found->place : -1;
        map->missing += !found;
    }
    return FSH_OK;
}

FshStatus class_map_make(ClassMap *map, const ClassNames *dataset, const ClassNames *weights, FshError *error)
{
    *map = (ClassMap){.count = dataset->count, .same = are_same(dataset, weights)};
    Placed *of_dataset = sort_names(dataset), *of_weights = sort_names(weights);
    map->places = calloc(dataset->count + 1, sizeof *map->places);
    FshStatus status = FSH_OK;
    if (!of_dataset || !of_weights || !map->places || dataset->count > INT32_MAX ||
        weights->count > INT32_MAX)
        status =
            fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu names of classes", dataset->count);
    else if (map->same) /* also if a name occurs twice */
        for (size_t i = 0; i < dataset->count; i++)
            map->places[i] = (int32_t)i;
    else
        status = find_places(map, dataset, of_dataset, weights->count, of_weights, error);
    free(of_dataset);
    free(of_weights);
    if (status)
        class_map_free(map);
    return status;
}

void class_map_free(ClassMap *map)
{
    free(map->places);
    *map = (ClassMap){0};
}

/* ---- for people ---- */

/* Returns how many bytes of the name to show: at most SHOWN_BYTES_MAX, in whole characters. */
static size_t shown_bytes(const char *name)
{
    enum { SHOWN_BYTES_MAX = 60 };
    size_t bytes = strlen(name);
    if (bytes > SHOWN_BYTES_MAX)
        for (bytes = SHOWN_BYTES_MAX; bytes > 0 && ((unsigned char)name[bytes] & 0xC0) == 0x80;)
            bytes--;
    return bytes;
}

/* Appends the name in quotes and returns true, if it fits together with what may follow it. */
static bool append_name(char *text, size_t text_bytes, const char *name)
{
    enum { ROOM_AFTER = 24 }; /* " and 12345 more" */
    const size_t length = strlen(text), bytes = shown_bytes(name);
    const char *dots = name[bytes] ? "…" : "";
    char whole[96];
    (void)snprintf(whole, sizeof whole, "%s'%.*s%s'", length ? ", " : "", (int)bytes, name, dots);
    for (char *at = whole; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            *at = '?';
    if (length + strlen(whole) + ROOM_AFTER > text_bytes)
        return false;
    (void)snprintf(text + length, text_bytes - length, "%s", whole);
    return true;
}

const char *class_names_only_in(const ClassNames *a, const ClassNames *b, char *text, size_t text_bytes)
{
    enum { NAMED_MAX = 4 };
    Placed *of_b = sort_names(b);
    size_t count = 0, named = 0;
    text[0] = '\0';
    for (size_t i = 0; of_b && i < a->count; i++) {
        if (find_name(of_b, b->count, a->names[i]))
            continue;
        count++;
        if (named + 1 == count && named < NAMED_MAX)
            named += append_name(text, text_bytes, a->names[i]);
    }
    const size_t length = strlen(text);
    if (named < count)
        (void)snprintf(text + length, text_bytes - length, "%s%zu%s", named ? " and " : "", count - named,
                       named ? " more" : "");
    else if (!count)
        (void)snprintf(text, text_bytes, "none");
    free(of_b);
    return text;
}
