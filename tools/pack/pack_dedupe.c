/* pack_dedupe.c - --dedupe: of samples with exactly the same content the first stays, in the order train,
 * val, test and then of the plan. So a validation image that training has seen goes, and training stays
 * whole.
 *
 * Content is told by XXH3-128 over the bytes of all fields: the chance that two of a billion different images
 * share it is below 1 in 10^20. Only those are read whose size another sample has. */
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/pool.h"
#include "tools/pack/pack_intake.h"

typedef struct Content {
    uint64_t hash[2]; /* {bytes, 0} until it is read */
    uint64_t sample;
    uint32_t split;
    bool known; /* read in full */
} Content;

typedef struct DedupeJob {
    const Plan *plan;
    const PackOptions *options;
    Content *contents;
    Intake *intakes; /* for each thread */
} DedupeJob;

/* The same content together, the one that stays first. */
static int compare_contents(const void *a, const void *b)
{
    const Content *left = a, *right = b;
    for (size_t i = 0; i < 2; i++) {
        if (left->hash[i] != right->hash[i])
            return left->hash[i] < right->hash[i] ? -1 : 1;
    }
    if (left->split != right->split)
        return left->split < right->split ? -1 : 1;
    return left->sample < right->sample ? -1 : left->sample > right->sample;
}

static bool same_hash(const Content *a, const Content *b)
{
    return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1];
}

/* A sample that cannot be read equals nothing: the work reports it. */
static FshStatus hash_sample(uint64_t item, int thread, void *context, FshError *error)
{
    DedupeJob *job = context;
    Content *content = &job->contents[item];
    const PlanSample *sample = &job->plan->samples[content->sample];
    FshError failure = {0};
    FshStatus status = FSH_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", job->plan->root);
    (void)XXH3_128bits_reset(state);
    for (size_t field = 0; field < job->plan->field_count && !status; field++) {
        IntakeBytes taken;
        status = intake_original(&job->intakes[thread], job->plan, job->options, sample, field, NULL, &taken,
                                 &failure);
        if (status)
            break;
        const uint64_t shape[] = {taken.bytes, taken.is_raw, taken.width, taken.height, taken.channels};
        (void)XXH3_128bits_update(state, shape, sizeof shape);
        (void)XXH3_128bits_update(state, taken.data, taken.bytes);
    }
    if (!status)
        status = intake_check_read(job->plan, sample, &failure);
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)XXH3_freeState(state);
    content->known = !status;
    content->hash[0] = status ? content->sample : hash.low64;
    content->hash[1] = status ? UINT64_MAX : hash.high64;
    return status == FSH_ERR_MEMORY ? fsh_error_set(error, status, "%s", failure.message) : FSH_OK;
}

/* Puts those whose size another has to the front; returns how many they are. */
static uint64_t find_candidates(const Plan *plan, Content *contents)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        const PlanSample *sample = &plan->samples[i];
        contents[i] = (Content){.sample = i, .split = sample->split};
        for (size_t field = 0; field < plan->field_count; field++)
            contents[i].hash[0] += plan_source(plan, sample, field).bytes;
    }
    qsort(contents, plan->sample_count, sizeof *contents, compare_contents);
    for (uint64_t begin = 0, end; begin < plan->sample_count; begin = end) {
        for (end = begin + 1; end < plan->sample_count && same_hash(&contents[begin], &contents[end]);)
            end++;
        for (uint64_t i = begin; i < end && end - begin > 1; i++)
            contents[count++] = contents[i];
    }
    return count;
}

static FshStatus note_duplicate(Plan *plan, const PlanSample *sample, const PlanSample *kept, FshError *error)
{
    char name[PATH_MAX], kept_name[PATH_MAX];
    const bool other_class = sample->label != kept->label && sample->label >= 0 && kept->label >= 0;
    (void)plan_source_name(plan, sample, 0, name);
    (void)plan_source_name(plan, kept, 0, kept_name);
    return notes_addf(&plan->left_out, FSH_OK, error, name, "has the same content as %s%s%s", kept_name,
                      other_class ? ", which is of another class: " : "",
                      other_class ? plan->class_names[kept->label] : "");
}

/* kept_for[i]: the sample, plus one, that stays for sample i; 0: i stays. */
static FshStatus remove_duplicates(Plan *plan, const uint64_t *kept_for, FshError *error)
{
    FshStatus status = FSH_OK;
    uint64_t kept = 0;
    /* Notes first: they name samples by their place. */
    for (uint64_t i = 0; i < plan->sample_count && !status; i++) {
        if (kept_for[i])
            status = note_duplicate(plan, &plan->samples[i], &plan->samples[kept_for[i] - 1], error);
    }
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        if (!kept_for[i])
            plan->samples[kept++] = plan->samples[i];
    }
    plan->sample_count = kept;
    return status;
}

FshStatus plan_dedupe(Plan *plan, const PackOptions *options, FshError *error)
{
    FshStatus status = FSH_OK;
    DedupeJob job = {.plan = plan,
                     .options = options,
                     .contents = calloc(plan->sample_count + 1, sizeof *job.contents),
                     .intakes = calloc((size_t)options->jobs, sizeof *job.intakes)};
    uint64_t *kept_for = calloc(plan->sample_count + 1, sizeof *kept_for);
    if (!job.contents || !job.intakes || !kept_for) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
        goto done;
    }
    const uint64_t count = find_candidates(plan, job.contents);
    status = pool_run(options->jobs, count, hash_sample, &job, error);
    if (status)
        goto done;
    qsort(job.contents, count, sizeof *job.contents, compare_contents);
    for (uint64_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1;
             end < count && job.contents[end].known && same_hash(&job.contents[begin], &job.contents[end]);
             end++)
            kept_for[job.contents[end].sample] = job.contents[begin].sample + 1;
    }
    status = remove_duplicates(plan, kept_for, error);
done:
    for (int thread = 0; job.intakes && thread < options->jobs; thread++)
        intake_free(&job.intakes[thread]);
    free(job.contents);
    free(job.intakes);
    free(kept_for);
    return status;
}
