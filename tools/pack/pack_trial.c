/* pack_trial.c - some samples are worked on before the plan is finished: to train the dictionary on, and to
 * know what compressing and encoding make of the planned bytes, so that --shard-size comes out about right.
 *
 * They are evenly spread over the training split in packing order, so that they are the same for any number
 * of threads. */
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "tools/pack/pack_work.h"

/* To measure by; and to train on, whose bytes are bounded in the end. A hundred times the dictionary's bytes
 * are what zstd advises. */
enum { MEASURED_SAMPLES = 128, TRAINED_SAMPLES_MAX = 1 << 17, TRAINED_TIMES = 100 };

/* What came of a sample. */
typedef struct TrialSample {
    Buffer bytes;                         /* of its fields, one after the other */
    size_t sizes[FSH_FIELDS_MAX];         /* 0: it failed; the work will say why */
    uint64_t planned_bytes, stored_bytes; /* of its record, the second without the compression */
    FshSample sample;                     /* its fields' data lie in bytes */
} TrialSample;

typedef struct Trial {
    const PackStored *stored;
    Worker *workers;
    TrialSample *samples;
    uint64_t count;
    uint64_t first, of; /* spread over samples first .. first + of - 1 of the plan */
} Trial;

static FshStatus try_one(uint64_t item, int thread, void *context, FshError *error)
{
    Trial *trial = context;
    TrialSample *result = &trial->samples[item];
    const PackSample *sample = &trial->stored->split->samples[trial->first + item * trial->of / trial->count];
    WorkResult work = {0};
    FshStatus status = work_describe(&trial->workers[thread], trial->stored, sample, false, NULL, &work,
                                     &result->sample, error);
    if (!status && !work.failure) {
        result->planned_bytes = stored_record_bytes(trial->stored, sample);
        result->stored_bytes = fsh_record_bytes(&result->sample, FSH_RECORD_ALIGNED);
        for (size_t i = 0; i < result->sample.field_count && !status; i++) {
            result->sizes[i] = result->sample.fields[i].bytes;
            status = buffer_append(&result->bytes, result->sample.fields[i].data, result->sizes[i], error);
        }
        size_t offset = 0;
        for (size_t i = 0; i < result->sample.field_count && !status; i++) {
            result->sample.fields[i].data = result->bytes.bytes + offset;
            offset += result->sizes[i];
        }
    }
    return status;
}

/* Trains the dictionary on the bytes of all samples of the trial. */
static FshStatus train(const Trial *trial, PackStored *stored, FshError *error)
{
    Buffer bytes = {0};
    size_t count = 0;
    FshStatus status = FSH_OK;
    size_t *sizes = calloc(trial->count * stored->found->field_count + 1, sizeof *sizes);
    if (!sizes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", stored->found->root);
    for (uint64_t i = 0; i < trial->count && !status; i++) {
        const TrialSample *sample = &trial->samples[i];
        status = buffer_append(&bytes, sample->bytes.bytes, sample->bytes.length, error);
        for (size_t field = 0; field < stored->found->field_count; field++) {
            if (sample->sizes[field])
                sizes[count++] = sample->sizes[field];
        }
    }
    if (!status) {
        FshError failure = {0};
        status =
            fsh_dictionary_train(bytes.bytes, sizes, count, trial->stored->found->options->dictionary_bytes,
                                 &stored->dictionary, &stored->dictionary_bytes, &failure);
        if (status)
            status =
                fsh_error_set(error, status, "--dictionary: %s: %s", stored->found->root, failure.message);
    }
    free(sizes);
    buffer_free(&bytes);
    return status;
}

/* Adds up planned and stored bytes, the latter compressed where the options say so. */
static FshStatus measure(const Trial *trial, StoredShare *share, FshError *error)
{
    const PackOptions *options = trial->stored->found->options;
    FshPacker *packer = NULL;
    FshStatus status = FSH_OK;
    const FshRecordForm form = work_record_form(trial->stored);
    uint64_t planned = 0, stored = 0;
    if (work_compresses(trial->stored))
        status = fsh_packer_new(&packer, options->level, trial->stored->dictionary,
                                trial->stored->dictionary_bytes, error);
    const uint64_t step = trial->count > MEASURED_SAMPLES ? trial->count / MEASURED_SAMPLES : 1;
    for (uint64_t i = 0; i < trial->count && !status; i += step) {
        TrialSample *sample = &trial->samples[i];
        if (!sample->sizes[0])
            continue;
        if (packer)
            status = fsh_sample_pack(packer, &sample->sample, &sample->sample, error);
        planned += sample->planned_bytes;
        stored += packer && !status ? fsh_record_bytes(&sample->sample, form) : sample->stored_bytes;
    }
    if (planned && stored)
        *share = (StoredShare){stored, planned};
    fsh_packer_free(&packer);
    return status;
}

/* Returns how many samples come to about `bytes`, at least one. */
static uint64_t samples_for(const PackStored *stored, const SplitRange *split, uint64_t bytes)
{
    enum { LOOKED_AT = 1024 };
    const uint64_t step = split->sample_count / LOOKED_AT + 1;
    uint64_t seen_bytes = 0, seen = 0;
    for (uint64_t i = 0; i < split->sample_count; i += step, seen++)
        seen_bytes += stored_sample_bytes(stored, &stored->split->samples[split->first_sample + i]);
    const uint64_t each = seen_bytes / (seen ? seen : 1) + 1;
    const uint64_t count = bytes / each + 1;
    return count < TRAINED_SAMPLES_MAX ? count : TRAINED_SAMPLES_MAX;
}

FshStatus store_trial(PackStored *stored, FshError *error)
{
    const PackOptions *options = stored->found->options;
    const SplitRange *split = &stored->split->ranges[stored->split->main];
    if (options->store != PACK_STORE_JPEG && options->store != PACK_STORE_ZSTD && !options->dictionary_bytes)
        return FSH_OK;
    uint64_t count = MEASURED_SAMPLES;
    if (split->sample_count == 0) /* an update may have none of this split */
        return FSH_OK;
    const bool trains = options->dictionary_bytes && !stored->dictionary;
    if (trains)
        count = samples_for(stored, split, options->dictionary_bytes * TRAINED_TIMES);
    if (count > split->sample_count)
        count = split->sample_count;
    Trial trial = {.stored = stored,
                   .workers = calloc((size_t)options->jobs, sizeof *trial.workers),
                   .samples = calloc(count + 1, sizeof *trial.samples),
                   .count = count,
                   .first = split->first_sample,
                   .of = split->sample_count};
    FshStatus status = FSH_OK;
    if (!trial.workers || !trial.samples)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", stored->found->root);
    if (!status)
        status = pool_run(options->jobs, count, try_one, &trial, error);
    if (!status && trains)
        status = train(&trial, stored, error);
    if (!status)
        status = measure(&trial, &stored->share, error);
    for (int thread = 0; trial.workers && thread < options->jobs; thread++)
        worker_free(&trial.workers[thread]);
    for (uint64_t i = 0; trial.samples && i < count; i++)
        buffer_free(&trial.samples[i].bytes);
    free(trial.workers);
    free(trial.samples);
    return status;
}
