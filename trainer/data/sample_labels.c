#include "trainer/data/sample_labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds a key to a list of those that are told; count: how many there were before. */
static void tell_key(char *list, size_t list_bytes, uint64_t count, const char *key, size_t key_bytes)
{
    enum { KEY_TOLD = 70 };
    const size_t length = strlen(list);
    if (count < LABEL_KEYS_TOLD)
        (void)snprintf(list + length, list_bytes - length, "%s'%.*s%s'", count ? ", " : "",
                       (int)(key_bytes < KEY_TOLD ? key_bytes : KEY_TOLD), key,
                       key_bytes < KEY_TOLD ? "" : "…");
}

static FshStatus take_memory(SampleLabels *labels, const LabelFile *file, FshError *error)
{
    const size_t samples = (size_t)labels->sample_count;
    bool made = false;
    if (labels->kind == LABELS_ONE) {
        labels->classes = malloc((samples + 1) * sizeof *labels->classes);
        made = labels->classes;
    } else if (labels->kind == LABELS_MANY) {
        labels->starts = calloc(samples + 1, sizeof *labels->starts);
        labels->members = malloc((file->member_count + 1) * sizeof *labels->members);
        made = labels->starts && labels->members;
    } else {
        labels->numbers = calloc(samples * labels->width + 1, sizeof *labels->numbers);
        made = labels->numbers;
    }
    return made ? FSH_OK
                : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory for the labels of %zu samples",
                                file->path, samples);
}

/* Takes the labels of a row over for a sample; NULL: it has none. */
static void take_row(SampleLabels *labels, uint64_t sample, const LabelFile *file, const LabelRow *row)
{
    if (labels->kind == LABELS_ONE) {
        labels->classes[sample] = row ? (int64_t)file->members[row->first] : FSH_NO_LABEL;
    } else if (labels->kind == LABELS_MANY) {
        const uint32_t count = row ? row->count : 0;
        if (count)
            memcpy(labels->members + labels->starts[sample], file->members + row->first,
                   count * sizeof *labels->members);
        labels->starts[sample + 1] = labels->starts[sample] + count;
    } else if (row) {
        memcpy(labels->numbers + sample * labels->width, file->numbers + row->first,
               labels->width * sizeof *labels->numbers);
    }
}

/* Returns the set's name as keys have it before them; NULL: none has. */
static const char *set_folder(const LabelFile *file, const char *set)
{
    while (strncmp(set, "./", 2) == 0) /* as in the file's keys */
        set += 2;
    return label_file_has_folder(file, set) ? set : NULL;
}

/* Marks the row of a record. FSH_ERR_MISMATCH: another record has it. */
static FshStatus use_row(const FshSplit *split, const FshSample *sample, const LabelFile *file,
                         const LabelRow *row, uint8_t *used, FshError *error)
{
    const uint64_t number = (uint64_t)(row - file->rows);
    uint8_t *byte = &used[number / 8];
    const uint8_t bit = (uint8_t)(1U << number % 8);
    if (*byte & bit)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "%s:%llu: its key is that of %s/%.*s and of another record; write whole keys, with the split's "
            "folder, or give evaluation a file of its own (--val-labels); of sets that train together, with "
            "the "
            "set's name before all",
            file->path, (unsigned long long)row->line, split->info->name, (int)sample->key_bytes,
            sample->key);
    *byte |= bit;
    return FSH_OK;
}

FshStatus sample_labels_make(SampleLabels *labels, const FshSplit *split, char *const *sets,
                             const LabelFile *file, size_t width, uint8_t *used, LabelFit *fit,
                             FshError *error)
{
    enum { AHEAD = 16 };
    *labels = (SampleLabels){.kind = file->kind, .sample_count = split->sample_count, .width = width};
    FshStatus status = take_memory(labels, file, error);
    size_t set = 0;
    const char *folder = set_folder(file, sets[0]);
    for (uint64_t i = 0; i < split->sample_count && !status; i++) {
        FshSample sample;
        while (i >= fsh_split_member_end(split, set))
            folder = set_folder(file, sets[++set]);
        if (i + AHEAD < split->sample_count)
            fsh_sample_prefetch(split, i + AHEAD, false);
        status = fsh_sample_get(split, i, &sample, error);
        if (status)
            break;
        const LabelRow *row = label_file_find(file, folder, split->info->name, sample.key, sample.key_bytes);
        if (row)
            status = use_row(split, &sample, file, row, used, error);
        else
            tell_key(fit->first_without, sizeof fit->first_without, fit->without++, sample.key,
                     sample.key_bytes);
        take_row(labels, i, file, row);
    }
    fit->records += split->sample_count;
    if (status)
        sample_labels_free(labels);
    return status;
}

void sample_labels_end_fit(const LabelFile *file, const uint8_t *used, LabelFit *fit)
{
    fit->rows += file->row_count;
    for (uint64_t i = 0; i < file->row_count; i++)
        if (!(used[i / 8] >> i % 8 & 1))
            tell_key(fit->first_unused, sizeof fit->first_unused, fit->unused++,
                     (const char *)file->text.bytes + file->rows[i].key_at, file->rows[i].key_bytes);
}

void sample_labels_free(SampleLabels *labels)
{
    free(labels->classes);
    free(labels->starts);
    free(labels->members);
    free(labels->numbers);
    *labels = (SampleLabels){0};
}

void sample_labels_count(const SampleLabels *labels, uint64_t *counts)
{
    for (uint64_t i = 0; labels->kind == LABELS_ONE && i < labels->sample_count; i++)
        if (labels->classes[i] != FSH_NO_LABEL)
            counts[labels->classes[i]]++;
    for (uint64_t i = 0; labels->kind == LABELS_MANY && i < labels->starts[labels->sample_count]; i++)
        counts[labels->members[i]]++;
}

void sample_labels_row(const SampleLabels *labels, uint64_t sample, const int32_t *places, float *row,
                       size_t row_width)
{
    memset(row, 0, row_width * sizeof *row);
    if (labels->kind == LABELS_NUMBERS)
        for (size_t k = 0; k < labels->width; k++)
            row[places ? places[k] : (int32_t)k] = labels->numbers[sample * labels->width + k];
    else
        for (uint64_t i = labels->starts[sample]; i < labels->starts[sample + 1]; i++)
            row[places ? (uint32_t)places[labels->members[i]] : labels->members[i]] = 1;
}
