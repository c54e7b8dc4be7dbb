/* pack_dedupe.c - --dedupe: of samples with exactly the same content the first stays: train before val before
 * test, and within a split in the order of the samples. So a validation image that training has seen goes,
 * and training stays whole. Each image left out is listed; what a list of thousands amounts to is told too:
 * that nothing is left to validate on, or of a class.
 *
 * Content is told by XXH3-128 over the bytes of all fields: the chance that two of a billion different images
 * share it is below 1 in 10^20. Only those are read whose size another sample has. */
#include <inttypes.h>
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
    const PackKeyed *keyed;
    Content *contents;
    Intake *intakes; /* for each thread */
} DedupeJob;

/* Orders the same content together, the sample that stays first. */
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

/* Hashes the bytes of a sample. One that cannot be read equals nothing: the work reports it. */
static FshStatus hash_sample(uint64_t item, int thread, void *context, FshError *error)
{
    DedupeJob *job = context;
    Content *content = &job->contents[item];
    const PackSample *sample = &job->keyed->samples[content->sample];
    FshError failure = {0};
    FshStatus status = FSH_OK;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", job->keyed->found->root);
    (void)XXH3_128bits_reset(state);
    for (size_t field = 0; field < job->keyed->found->field_count && !status; field++) {
        IntakeBytes taken;
        status =
            intake_original(&job->intakes[thread], job->keyed->found, sample, field, NULL, &taken, &failure);
        if (status)
            break;
        const uint64_t shape[] = {taken.bytes, taken.is_raw, taken.width, taken.height, taken.channels};
        (void)XXH3_128bits_update(state, shape, sizeof shape);
        (void)XXH3_128bits_update(state, taken.data, taken.bytes);
    }
    if (!status)
        status = intake_check_read(job->keyed->found, sample, &failure);
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)XXH3_freeState(state);
    content->known = !status;
    content->hash[0] = status ? content->sample : hash.low64;
    content->hash[1] = status ? UINT64_MAX : hash.high64;
    return status == FSH_ERR_MEMORY ? fsh_error_set(error, status, "%s", failure.message) : FSH_OK;
}

/* Puts those whose size another has to the front; returns how many they are. */
static uint64_t find_candidates(const PackKeyed *keyed, Content *contents)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        const PackSample *sample = &keyed->samples[i];
        contents[i] = (Content){.sample = i, .split = sample->split};
        for (size_t field = 0; field < keyed->found->field_count; field++)
            contents[i].hash[0] += sample_source(keyed->found, sample, field).bytes;
    }
    qsort(contents, keyed->sample_count, sizeof *contents, compare_contents);
    for (uint64_t begin = 0, end; begin < keyed->sample_count; begin = end) {
        for (end = begin + 1; end < keyed->sample_count && same_hash(&contents[begin], &contents[end]);)
            end++;
        for (uint64_t i = begin; i < end && end - begin > 1; i++)
            contents[count++] = contents[i];
    }
    return count;
}

static FshStatus note_duplicate(PackKeyed *keyed, const PackSample *sample, const PackSample *kept,
                                FshError *error)
{
    char name[PATH_MAX], kept_name[PATH_MAX];
    const bool other_class = sample->label != kept->label && sample->label >= 0 && kept->label >= 0;
    (void)sample_source_name(keyed->found, sample, 0, name);
    (void)sample_source_name(keyed->found, kept, 0, kept_name);
    return notes_addf(&keyed->found->notes->left_out, FSH_OK, error, name, "has the same content as %s%s%s",
                      kept_name, other_class ? ", which is of another class: " : "",
                      other_class ? keyed->class_names[kept->label] : "");
}

/* Notes and removes the samples that are not to stay. kept_for[i]: the sample, plus one, that stays for
 * sample i; 0: i stays. */
static FshStatus remove_duplicates(PackKeyed *keyed, const uint64_t *kept_for, FshError *error)
{
    FshStatus status = FSH_OK;
    uint64_t kept = 0;
    /* Notes first: they name samples by their place. */
    for (uint64_t i = 0; i < keyed->sample_count && !status; i++) {
        if (kept_for[i])
            status = note_duplicate(keyed, &keyed->samples[i], &keyed->samples[kept_for[i] - 1], error);
    }
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        if (!kept_for[i])
            keyed->samples[kept++] = keyed->samples[i];
    }
    keyed->sample_count = kept;
    return status;
}

/* Removes every sample whose content an earlier one has. */
static FshStatus find_and_remove(PackKeyed *keyed, FshError *error)
{
    const PackOptions *options = keyed->found->options;
    FshStatus status = FSH_OK;
    DedupeJob job = {.keyed = keyed,
                     .contents = calloc(keyed->sample_count + 1, sizeof *job.contents),
                     .intakes = calloc((size_t)options->jobs, sizeof *job.intakes)};
    uint64_t *kept_for = calloc(keyed->sample_count + 1, sizeof *kept_for);
    if (!job.contents || !job.intakes || !kept_for) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
        goto done;
    }
    const uint64_t count = find_candidates(keyed, job.contents);
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
    status = remove_duplicates(keyed, kept_for, error);
done:
    for (int thread = 0; job.intakes && thread < options->jobs; thread++)
        intake_free(&job.intakes[thread]);
    free(job.contents);
    free(job.intakes);
    free(kept_for);
    return status;
}

/* ---- what that took from whom ---- */

/* How many samples there are of each split, and of each class in it. */
typedef struct Tally {
    uint64_t splits[PACK_SPLITS];
    uint64_t *classes; /* class_count of train, of val, of test; owned */
} Tally;

/* Counts the samples that there are now; free(tally->classes). */
static FshStatus count_samples(Tally *tally, const PackKeyed *keyed, FshError *error)
{
    *tally = (Tally){0};
    tally->classes = calloc(PACK_SPLITS * keyed->class_count + 1, sizeof *tally->classes);
    if (!tally->classes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", keyed->found->root);
    for (uint64_t i = 0; i < keyed->sample_count; i++) {
        const PackSample *sample = &keyed->samples[i];
        tally->splits[sample->split]++;
        if (sample->label >= 0) /* pairs, and some samples of tars, have none */
            tally->classes[sample->split * keyed->class_count + (size_t)sample->label]++;
    }
    return FSH_OK;
}

/* Refuses a split of which nothing is left: training or its measure would be of nothing. */
static FshStatus refuse_empty_split(const PackKeyed *keyed, uint32_t split, uint64_t before, FshError *error)
{
    const char *name = fsh_split_name(split);
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "%s: --dedupe leaves nothing of %s: all of its %" PRIu64
        " samples have the content of others, as listed; leave out %s or --dedupe, or give it "
        "images of its own",
        keyed->found->root, name, before, name);
}

/* Warns of classes that had samples in a split before, and have none now. */
static FshStatus warn_of_empty_classes(PackKeyed *keyed, const Tally *before, const Tally *now,
                                       uint32_t split, FshError *error)
{
    size_t emptied = 0, first = 0;
    for (size_t i = keyed->class_count; i-- > 0;) {
        const size_t at = split * keyed->class_count + i;
        if (before->classes[at] && !now->classes[at]) {
            emptied++;
            first = i;
        }
    }
    if (!emptied)
        return FSH_OK;
    return notes_addf(
        &keyed->found->notes->warnings, FSH_OK, error, "--dedupe",
        "leaves no sample of %zu class%s in %s, '%s' is the first; kept as classes with no sample "
        "there",
        emptied, emptied == 1 ? "" : "es", fsh_split_name(split), keyed->class_names[first]);
}

/* Fills keyed->duplicates with the samples that were removed since *before was counted. */
static FshStatus tell_duplicates(PackKeyed *keyed, const Tally *before, FshError *error)
{
    Tally now = {0};
    FshStatus status = count_samples(&now, keyed, error);
    for (uint32_t split = 0; split < PACK_SPLITS && !status; split++) {
        keyed->duplicates[split] = before->splits[split] - now.splits[split];
        if (before->splits[split] && !now.splits[split])
            status = refuse_empty_split(keyed, split, before->splits[split], error);
        else
            status = warn_of_empty_classes(keyed, before, &now, split, error);
    }
    free(now.classes);
    return status;
}

FshStatus key_dedupe(PackKeyed *keyed, FshError *error)
{
    Tally before = {0};
    FshStatus status = count_samples(&before, keyed, error);
    if (!status)
        status = find_and_remove(keyed, error);
    if (!status)
        status = tell_duplicates(keyed, &before, error);
    free(before.classes);
    return status;
}
