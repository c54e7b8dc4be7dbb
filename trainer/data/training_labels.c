#include "trainer/data/training_labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/names.h"
#include "formats/xxh3.h"

/* What is read for one split, or for both. */
typedef struct Reading {
    LabelFile files[2];
    size_t count;
    uint8_t *used[2]; /* bits of the rows that a record has */
} Reading;

const SampleLabels *training_labels_of(const TrainingLabels *labels, bool training)
{
    return !labels->path ? NULL : training ? &labels->train : &labels->evaluation;
}

static FshStatus read_files(Reading *reading, const LabelSources *sources, bool trains, bool evaluates,
                            FshError *error)
{
    const LabelFileOptions options = {.kind = sources->kind, .columns = sources->columns};
    const bool own = evaluates && sources->evaluation_path;
    const char *const paths[] = {trains || !own ? sources->path : sources->evaluation_path,
                                 own && trains ? sources->evaluation_path : NULL};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < 2 && paths[i] && !status; i++) {
        status = label_file_read(&reading->files[i], paths[i], &options, error);
        reading->count += !status;
        if (!status) {
            reading->used[i] = calloc(reading->files[i].row_count / 8 + 1, 1);
            if (!reading->used[i])
                status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", paths[i]);
        }
    }
    return status;
}

/* Makes the digest of all that decides the labels: the files, and the classes in their order. */
static void digest_labels(TrainingLabels *labels, const Reading *reading)
{
    XXH128_hash_t all = {0};
    for (size_t i = 0; i < reading->count; i++)
        all = XXH3_128bits_withSeed(reading->files[i].digest, sizeof reading->files[i].digest,
                                    all.low64 ^ all.high64);
    for (size_t i = 0; i < labels->names.count; i++)
        all = XXH3_128bits_withSeed(labels->names.names[i], strlen(labels->names.names[i]),
                                    all.low64 ^ all.high64);
    all.low64 ^= (uint64_t)labels->kind;
    const FshHash128 hash = fsh_hash_store(all);
    fsh_hash_format(&hash, labels->digest);
}

/* Checks that training has samples of every class that evaluation has: a class that is never seen can only be
 * got wrong. */
static FshStatus check_same_classes(const TrainingLabels *labels, const LabelFile *file, FshError *error)
{
    const size_t count = labels->names.count;
    uint64_t *train = calloc(count + 1, sizeof *train), *evaluation = calloc(count + 1, sizeof *evaluation);
    FshStatus status = train && evaluation
                           ? FSH_OK
                           : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the counts of classes");
    if (!status) {
        sample_labels_count(&labels->train, train);
        sample_labels_count(&labels->evaluation, evaluation);
    }
    for (size_t i = 0; i < count && !status; i++)
        if (evaluation[i] && !train[i])
            status =
                fsh_error_set(error, FSH_ERR_MISMATCH,
                              "%s: %llu samples that are evaluated have the class '%.200s', and none that "
                              "is trained on",
                              file->path, (unsigned long long)evaluation[i], labels->names.names[i]);
    free(train);
    free(evaluation);
    return status;
}

static FshStatus refuse_unlabelled(const TrainingLabels *labels, FshError *error)
{
    const LabelFit *fit = &labels->fit;
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "%s: has no label for %llu of %llu records: %s%s; %llu of its %llu lines have no "
                         "record%s%s; keys are paths below the split's folder; --where \"key in FILE\" takes "
                         "the records of a list alone",
                         labels->path, (unsigned long long)fit->without, (unsigned long long)fit->records,
                         fit->first_without, fit->without > LABEL_KEYS_TOLD ? ", …" : "",
                         (unsigned long long)fit->unused, (unsigned long long)fit->rows,
                         fit->unused ? ": " : "", fit->first_unused);
}

FshStatus training_labels_read(TrainingLabels *labels, const LabelSources *sources, const FshSplit *train,
                               const FshSplit *evaluation, char *const *sets, FshError *error)
{
    const FshSplit *const splits[] = {train, evaluation};
    SampleLabels *made[] = {&labels->train, &labels->evaluation};
    Reading reading = {0};
    *labels = (TrainingLabels){.path = sources->path};
    FshStatus status = read_files(&reading, sources, train != NULL, evaluation != NULL, error);
    if (!status)
        status = label_files_settle(reading.files, reading.count, sources->names, &labels->names, error);
    labels->kind = reading.files[0].kind;
    for (size_t i = 0; i < 2 && !status; i++) {
        const size_t file = reading.count == 2 ? i : 0;
        const bool same = i == 1 && splits[0] == splits[1]; /* --val-split train */
        if (same)
            memset(reading.used[file], 0, reading.files[file].row_count / 8 + 1);
        if (splits[i])
            status = sample_labels_make(made[i], splits[i], sets, &reading.files[file], labels->names.count,
                                        reading.used[file], &labels->fit, error);
    }
    for (size_t i = 0; i < reading.count && !status; i++)
        sample_labels_end_fit(&reading.files[i], reading.used[i], &labels->fit);
    if (!status && labels->fit.without)
        status = refuse_unlabelled(labels, error);
    if (!status && labels->kind != LABELS_NUMBERS && train && evaluation)
        status = check_same_classes(labels, &reading.files[0], error);
    if (!status)
        digest_labels(labels, &reading);
    for (size_t i = 0; i < 2; i++) {
        label_file_free(&reading.files[i]);
        free(reading.used[i]);
    }
    if (status)
        training_labels_free(labels);
    return status;
}

void training_labels_free(TrainingLabels *labels)
{
    sample_labels_free(&labels->train);
    sample_labels_free(&labels->evaluation);
    label_names_free(&labels->names);
    *labels = (TrainingLabels){0};
}
