/* Classes whose labels are names, as in tars whose .cls are. Each file has counted its own names; all of them
 * together are sorted and counted anew, so that neither the order of samples nor that of files has a say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/collection.h"
#include "formats/names.h"
#include "formats/sample_table.h"
#include "formats/shard.h"
#include "formats/split_file.h"

/* Gives each label that occurs its number as a name, "7", in a table of numbers beside tables of names. */
static FshStatus name_numbers(SampleTable *table, FshError *error)
{
    fsh_names_free(table->class_names, table->class_name_count); /* what a .json said of a number */
    table->class_name_count = 0;
    const size_t count = (size_t)((int64_t)table->label_max + 1);
    table->class_names = calloc(count + 1, sizeof *table->class_names);
    if (!table->class_names)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    table->class_name_count = count;
    for (uint64_t i = 0; i < table->sample_count; i++) {
        const int32_t label = fsh_table_row(table, i)->label;
        char number[16];
        if (label < 0 || table->class_names[label])
            continue;
        (void)snprintf(number, sizeof number, "%d", (int)label);
        table->class_names[label] = strdup(number);
        if (!table->class_names[label])
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    }
    table->names_are_labels = true;
    return FSH_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Gathers the names of all tables in *names_ret, sorted, each once: *name_count_ret of them. The names belong
 * to the tables; the caller frees the array, also on failure. */
static FshStatus gather_names(const SplitFile *files, size_t count, const char ***names_ret,
                              size_t *name_count_ret, FshError *error)
{
    size_t most = 0, given = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        most += files[i].table.class_name_count; /* arrays in memory: no sum of their lengths overflows */
    }
    const char **names = calloc(most + 1, sizeof *names);
    *names_ret = names;
    if (!names)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++) {
        for (size_t label = 0; label < files[i].table.class_name_count; label++) {
            if (files[i].table.class_names[label])
                names[given++] = files[i].table.class_names[label];
        }
    }
    qsort(names, given, sizeof *names, compare_names);
    for (size_t i = 0; i < given; i++) {
        if (kept == 0 || strcmp(names[kept - 1], names[i]) != 0)
            names[kept++] = names[i];
    }
    *name_count_ret = kept;
    if (kept <= FOREIGN_CLASSES_MAX)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%zu names of classes in .cls; at most %d are possible",
                         kept, FOREIGN_CLASSES_MAX);
}

/* Changes the labels of a file from places among its own names to places among all names. */
static FshStatus take_places(SplitFile *file, const char **names, size_t name_count, FshError *error)
{
    SampleTable *table = &file->table;
    int32_t *places = calloc(table->class_name_count + 1, sizeof *places);
    if (!places)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < table->class_name_count; i++) {
        const char *name = table->class_names[i];
        const char **found = name ? bsearch(&name, names, name_count, sizeof *names, compare_names) : NULL;
        places[i] = found ? (int32_t)(found - names) : FSH_NO_LABEL;
    }
    table->label_max = FSH_NO_LABEL;
    for (uint64_t i = 0; i < table->sample_count; i++) {
        SampleRow *row = fsh_table_row(table, i);
        uint8_t *index_row = file->own_rows.bytes + i * INDEX_ROW_BYTES;
        IndexRow index = fsh_index_row_load(index_row);
        index.label = row->label = row->label < 0 ? row->label : places[row->label];
        fsh_index_row_store(index_row, &index);
        table->label_max = row->label > table->label_max ? row->label : table->label_max;
    }
    free(places);
    return FSH_OK;
}

FshStatus fsh_unite_class_names(SplitFile *files, size_t count, FshError *error)
{
    const char **names = NULL;
    char **copies = NULL;
    size_t name_count = 0;
    bool named = false;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count; i++) {
        named = named || files[i].table.names_are_labels;
    }
    if (!named)
        return FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        if (!files[i].table.names_are_labels)
            status = name_numbers(&files[i].table, error);
    }
    if (!status)
        status = gather_names(files, count, &names, &name_count, error);
    if (!status)
        status = fsh_names_copy(&copies, names, name_count, error);
    for (size_t i = 0; i < count && !status; i++) {
        status = take_places(&files[i], names, name_count, error);
    }
    for (size_t i = 0; i < count && !status; i++) {
        SampleTable *table = &files[i].table;
        fsh_names_free(table->class_names, table->class_name_count);
        table->class_names = i ? NULL : copies; /* one of them tells it for all */
        table->class_name_count = i ? 0 : name_count;
    }
    if (status)
        fsh_names_free(copies, copies ? name_count : 0);
    free(names);
    return status;
}
