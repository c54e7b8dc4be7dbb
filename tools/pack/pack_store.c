/* pack_store.c - how each sample is stored, and what its record takes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "common/progress.h"
#include "imaging/decode.h"
#include "tools/pack/pack_intake.h"

const char *const pack_store_names[] = {"copy", "jpeg", "raw", "zstd", "auto", NULL};

PackStore plan_store_of(const Plan *plan, const PackOptions *options, const PlanSample *sample)
{
    if (options->store != PACK_STORE_AUTO)
        return options->store;
    return plan->is_raw[sample - plan->samples] ? PACK_STORE_RAW : PACK_STORE_COPY;
}

uint64_t plan_record_bytes(const Plan *plan, const PlanSample *sample)
{
    FshSample description;
    pack_plan_describe(plan, sample, &description);
    return fsh_record_bytes(&description, FSH_RECORD_ALIGNED);
}

uint32_t plan_main_split(const Plan *plan)
{
    uint32_t split = 0;
    while (split + 1 < PLAN_SPLITS && !plan->splits[split].present)
        split++;
    return split;
}

/* ---- pixels: sizes come from the headers ---- */

typedef struct ProbeThread {
    ImageDecoder *decoder;
    Intake intake;
} ProbeThread;

typedef struct ProbeJob {
    const Plan *plan;
    const PackOptions *options;
    uint64_t *pixels;  /* for each field of each sample: width * height, 0 where the header cannot be read */
    uint8_t *channels; /* likewise */
    ProbeThread *threads;
} ProbeJob;

static FshStatus probe_one(uint64_t number, int thread, void *context, FshError *error)
{
    ProbeJob *job = context;
    ProbeThread *own = &job->threads[thread];
    const Plan *plan = job->plan;
    const PlanSample *sample = &plan->samples[number / plan->field_count];
    const size_t field = number % plan->field_count;
    ImageInfo info = {0};
    FshError failure = {0};
    if (!own->decoder) {
        FshStatus made = image_decoder_new(&own->decoder, error);
        if (made)
            return made;
    }
    FshStatus status =
        intake_probe(&own->intake, own->decoder, plan, job->options, sample, field, &info, &failure);
    if (status == FSH_ERR_MEMORY) {
        char name[PATH_MAX];
        return fsh_error_set(error, status, "%s: %s", plan_source_name(plan, sample, field, name),
                             failure.message);
    }
    uint64_t pixels = (uint64_t)info.width * info.height;
    if (!status && pixels <= job->options->max_pixels) { /* the work reports the others, with the reason */
        job->pixels[number] = pixels;
        job->channels[number] = (uint8_t)info.channels;
    }
    return FSH_OK;
}

/* Gray datasets stay gray; one image with colours makes all of them RGB, so that every sample has the same
 * channels. payload_bytes: for each item. */
static FshStatus probe_raw(Plan *plan, const PackOptions *options, uint64_t *payload_bytes, FshError *error)
{
    const uint64_t count = plan->sample_count * plan->field_count;
    FshStatus status = FSH_OK;
    ProbeJob job = {.plan = plan,
                    .options = options,
                    .pixels = calloc(count + 1, sizeof *job.pixels),
                    .channels = calloc(count + 1, sizeof *job.channels),
                    .threads = calloc((size_t)options->jobs, sizeof *job.threads)};
    if (!job.pixels || !job.channels || !job.threads) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
        goto done;
    }
    status = pool_run(options->jobs, count, probe_one, &job, error);
    plan->raw_channels = 1;
    for (uint64_t i = 0; i < count; i++) {
        if (job.channels[i] > 1)
            plan->raw_channels = 3;
    }
    for (uint64_t i = 0; i < count; i++)
        payload_bytes[plan_item(plan, &plan->samples[i / plan->field_count], i % plan->field_count)] =
            job.pixels[i] * plan->raw_channels;
done:
    for (int thread = 0; job.threads && thread < options->jobs; thread++) {
        image_decoder_free(&job.threads[thread].decoder);
        intake_free(&job.threads[thread].intake);
    }
    free(job.threads);
    free(job.pixels);
    free(job.channels);
    return status;
}

/* ---- auto ---- */

/* A sample that may become raw. */
typedef struct Candidate {
    int64_t growth_bytes; /* of its record, over the copy */
    uint64_t sample, raw_bytes;
} Candidate;

static int compare_candidates(const void *a, const void *b)
{
    const Candidate *left = a, *right = b;
    if (left->growth_bytes != right->growth_bytes)
        return left->growth_bytes < right->growth_bytes ? -1 : 1;
    return left->sample < right->sample ? -1 : left->sample > right->sample;
}

/* Record bytes of a sample, raw, or 0 where it cannot be: a header that nobody can read, an image above
 * --raw-under. */
static uint64_t raw_record_bytes(const Plan *plan, const PackOptions *options, const PlanSample *sample,
                                 const uint64_t *payload_bytes)
{
    FshSample description;
    pack_plan_describe(plan, sample, &description);
    for (size_t field = 0; field < plan->field_count; field++) {
        const uint64_t bytes = payload_bytes[plan_item(plan, sample, field)];
        if (bytes == 0 || (options->raw_under && bytes > options->raw_under))
            return 0;
        description.fields[field].bytes = (size_t)bytes;
    }
    return fsh_record_bytes(&description, FSH_RECORD_ALIGNED);
}

static FshStatus warn_over_budget(Plan *plan, const PackOptions *options, uint64_t total, FshError *error)
{
    char budget[32], files[32];
    return notes_addf(
        &plan->warnings, FSH_OK, error, "--budget",
        "the files as they are come to %s already, more than %s: no image is stored raw that would take more",
        progress_format_bytes(files, sizeof files, total),
        progress_format_bytes(budget, sizeof budget, options->budget_bytes));
}

/* As many samples raw as the budget allows: those whose records grow least come first, which gives the
 * largest number; of equals the one that is packed first. payload_bytes: what each item takes raw; becomes
 * what it takes as chosen. */
static FshStatus choose(Plan *plan, const PackOptions *options, uint64_t *payload_bytes, FshError *error)
{
    FshStatus status = FSH_OK;
    uint64_t total = 0, count = 0;
    Candidate *candidates = calloc(plan->sample_count + 1, sizeof *candidates);
    plan->is_raw = calloc(plan->sample_count + 1, sizeof *plan->is_raw);
    if (!candidates || !plan->is_raw) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
        goto done;
    }
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        const uint64_t copy_bytes = plan_record_bytes(plan, &plan->samples[i]);
        const uint64_t raw_bytes = raw_record_bytes(plan, options, &plan->samples[i], payload_bytes);
        total += copy_bytes;
        if (raw_bytes)
            candidates[count++] = (Candidate){(int64_t)raw_bytes - (int64_t)copy_bytes, i, raw_bytes};
    }
    if (options->budget_bytes && total > options->budget_bytes)
        status = warn_over_budget(plan, options, total, error);
    plan->chosen.copy_count = plan->sample_count;
    plan->chosen.copy_bytes = total;
    qsort(candidates, count, sizeof *candidates, compare_candidates);
    for (uint64_t i = 0; i < count; i++) {
        const Candidate *candidate = &candidates[i];
        if (candidate->growth_bytes > 0 && options->budget_bytes &&
            (total > options->budget_bytes ||
             (uint64_t)candidate->growth_bytes > options->budget_bytes - total))
            break;
        total += (uint64_t)candidate->growth_bytes; /* modulo 2^64: it may be negative */
        plan->is_raw[candidate->sample] = 1;
        plan->chosen.raw_count++;
        plan->chosen.raw_bytes += candidate->raw_bytes;
        plan->chosen.copy_count--;
        plan->chosen.copy_bytes -= candidate->raw_bytes - (uint64_t)candidate->growth_bytes;
    }
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        const PlanSample *sample = &plan->samples[i];
        for (size_t field = 0; field < plan->field_count && !plan->is_raw[i]; field++) {
            FshSample description;
            pack_plan_describe(plan, sample, &description);
            payload_bytes[plan_item(plan, sample, field)] = description.fields[field].bytes;
        }
    }
done:
    free(candidates);
    return status;
}

FshStatus plan_store(Plan *plan, const PackOptions *options, FshError *error)
{
    if (options->store == PACK_STORE_COPY || options->store == PACK_STORE_JPEG)
        return FSH_OK;
    uint64_t *payload_bytes = calloc(plan->item_count + 1, sizeof *payload_bytes);
    if (!payload_bytes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    FshStatus status = probe_raw(plan, options, payload_bytes, error);
    if (!status && options->store == PACK_STORE_AUTO)
        status = choose(plan, options, payload_bytes, error);
    plan->payload_bytes = payload_bytes;
    return status;
}
