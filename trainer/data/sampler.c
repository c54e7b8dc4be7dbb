#include "trainer/data/sampler.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "common/cpu.h"
#include "common/random.h"

/* Keeps the order's numbers apart from those of the augmentation, which are keyed by (epoch, sample). */
static const uint64_t order_stream = 0x6f72646572;    /* "order" */
static const uint64_t class_stream = 0x636c617373;    /* "class" */
static const uint64_t member_stream = 0x6d656d626572; /* "member" */
static const uint64_t set_stream = 0x736574;          /* "set" */

/* In the order of SamplerKind. */
static const char *const sampler_names[] = {"shuffle", "balanced", NULL};

static uint64_t repeats_of(const Sampler *sampler)
{
    return sampler->training && sampler->repeats > 1 ? sampler->repeats : 1;
}

uint64_t sampler_step_count(const Sampler *sampler)
{
    uint64_t total_batch = sampler->batch * sampler->world_size;
    uint64_t whole = sampler->sample_count / total_batch;
    if (!sampler->training || sampler->keep_last)
        return whole + (sampler->sample_count % total_batch != 0);
    return sampler->update_steps > 1 && whole > sampler->update_steps ? whole - whole % sampler->update_steps
                                                                      : whole;
}

/* Returns pick number `place` of an epoch that goes round the classes. */
static SamplerPick pick_balanced(const Sampler *sampler, uint64_t epoch, uint64_t place, uint64_t places)
{
    const ClassOrder *classes = sampler->classes;
    const uint64_t count = classes->class_count, round = place / count;
    const uint64_t rounds = (places + count - 1) / count; /* of an epoch; the last may be begun only */
    const uint64_t class_place = random_permute(place % count, count, sampler->seed,
                                                random_stream(random_stream(class_stream, epoch), round));
    const uint64_t begin = classes->starts[class_place], members = classes->starts[class_place + 1] - begin;
    const uint64_t visit = epoch * rounds + round, cycle = visit / members;
    const uint64_t member = random_permute(visit % members, members, sampler->seed,
                                           random_stream(random_stream(member_stream, class_place), cycle));
    return (SamplerPick){.sample = classes->samples[begin + member], .turn = cycle};
}

/* Returns the sample of pick number `number`, below the places of all sets, of an epoch with weights. */
static SamplerPick pick_of_sets(const Sampler *sampler, uint64_t epoch, uint64_t number)
{
    const SetOrder *sets = sampler->sets;
    const size_t set = set_order_find(sets, number);
    const uint64_t first = sets->firsts[set], samples = sets->firsts[set + 1] - first,
                   places = sets->places[set + 1] - sets->places[set];
    const uint64_t visit = epoch * places + number - sets->places[set], cycle = visit / samples;
    const uint64_t sample = random_permute(visit % samples, samples, sampler->seed,
                                           random_stream(random_stream(set_stream, set), cycle));
    return (SamplerPick){.sample = first + sample, .turn = cycle};
}

/* Returns pick number `place` of an epoch in which each sample of the split, or each place of the sets, comes
 * once. */
static SamplerPick pick_shuffled(const Sampler *sampler, uint64_t epoch, uint64_t place)
{
    const uint64_t number =
        random_permute(place, sampler->sample_count, sampler->seed, random_stream(order_stream, epoch));
    return sampler->sets ? pick_of_sets(sampler, epoch, number)
                         : (SamplerPick){.sample = number, .turn = epoch};
}

/* Returns what stands at a place of evaluation. */
static SamplerPick pick_stored(const Sampler *sampler, uint64_t epoch, uint64_t place)
{
    const SetOrder *sets = sampler->sets;
    const size_t set = sets ? set_order_find(sets, place) : 0;
    const uint64_t sample = sets ? sets->firsts[set] + place - sets->places[set] : place;
    return (SamplerPick){.sample = sets && sample >= sets->firsts[set + 1] ? SAMPLER_PADDING : sample,
                         .turn = epoch};
}

static SamplerPick pick_at_place(const Sampler *sampler, uint64_t epoch, uint64_t place)
{
    const uint64_t repeats = repeats_of(sampler), count = sampler->sample_count;
    if (place >= count)
        return (SamplerPick){.sample = SAMPLER_PADDING, .turn = epoch};
    if (!sampler->training)
        return pick_stored(sampler, epoch, place);
    SamplerPick pick = sampler->classes
                           ? pick_balanced(sampler, epoch, place / repeats, (count + repeats - 1) / repeats)
                           : pick_shuffled(sampler, epoch, place / repeats);
    pick.turn = pick.turn * repeats + place % repeats;
    return pick;
}

SamplerPick sampler_at(const Sampler *sampler, uint64_t epoch, uint64_t step, uint64_t slot)
{
    const uint64_t batch = sampler->batch, world_size = sampler->world_size;
    if (repeats_of(sampler) == 1)
        return pick_at_place(sampler, epoch, (step * world_size + sampler->rank) * batch + slot);
    /* Neighbours come from the two halves of what the rank has of the step. */
    const uint64_t own = slot % 2 * ((batch + 1) / 2) + slot / 2;
    return pick_at_place(sampler, epoch, (step * batch + own) * world_size + sampler->rank);
}

/* ---- the digest ---- */

enum { SAMPLES_FOR_A_THREAD = 1 << 16, DIGEST_THREADS = 4 };

/* The places that one thread sums up. */
typedef struct DigestPart {
    const Sampler *sampler;
    uint64_t epoch, begin, end, digest;
    pthread_t thread;
    bool started;
} DigestPart;

/* Sums the hashes of the part's places into its digest. */
static void *sum_part(void *context)
{
    DigestPart *part = context;
    for (uint64_t place = part->begin; place < part->end; place++) {
        uint64_t sample = pick_at_place(part->sampler, part->epoch, place).sample;
        unsigned char pair[16];
        for (int i = 0; i < 8; i++) {
            pair[i] = (unsigned char)(place >> (8 * i));
            pair[8 + i] = (unsigned char)(sample >> (8 * i));
        }
        part->digest += XXH3_64bits(pair, sizeof pair);
    }
    return NULL;
}

/* Returns how many threads the digest is worth: a sample costs a quarter of a microsecond, so that each has
 * 15 milliseconds to do; and no more than a few, for the loader is at work beside. */
static uint64_t digest_threads(uint64_t sample_count)
{
    const uint64_t wanted = sample_count / SAMPLES_FOR_A_THREAD;
    const uint64_t most =
        cpu_count_available() < DIGEST_THREADS ? (uint64_t)cpu_count_available() : DIGEST_THREADS;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

uint64_t sampler_order_digest(const Sampler *sampler, uint64_t epoch)
{
    DigestPart parts[DIGEST_THREADS];
    const uint64_t threads = digest_threads(sampler->sample_count);
    uint64_t digest = 0;
    for (uint64_t i = 0; i < threads; i++) {
        parts[i] = (DigestPart){.sampler = sampler, .epoch = epoch};
        parts[i].begin = sampler->sample_count / threads * i;
        parts[i].end = i + 1 < threads ? sampler->sample_count / threads * (i + 1) : sampler->sample_count;
        parts[i].started = i > 0 && pthread_create(&parts[i].thread, NULL, sum_part, &parts[i]) == 0;
    }
    /* A sum does not care for the order in which the parts are added. */
    for (uint64_t i = 0; i < threads; i++) {
        if (parts[i].started)
            (void)pthread_join(parts[i].thread, NULL);
        else
            (void)sum_part(&parts[i]);
        digest += parts[i].digest;
    }
    return digest;
}

/* ---- options ---- */

Sampling sampling_default(void)
{
    return (Sampling){.kind = SAMPLER_SHUFFLE, .repeats = 1};
}

size_t sampling_rows(Sampling *sampling, Option *rows)
{
    enum { REPEATS_MAX = 1024 };
    /* clang-format off */
    const Option own[] = {
        {.name = "sampler", .kind = OPTION_CHOICE, .value = &sampling->kind, .argument = "HOW",
         .group = "Order of samples",
         .choices = sampler_names,
         .help = "what an epoch of training consists of: each image once (shuffle), or as many images, "
                 "of each class equally often (balanced)"},
        {.name = "aug-repeats", .kind = OPTION_INTEGER, .value = &sampling->repeats, .argument = "N",
         .maximum = REPEATS_MAX, .alias = "ra-reps",
         .help = "each image of an epoch comes N times, each time in another view, and an epoch has so "
                 "many fewer images; 0 or 1: once"},
    };
    /* clang-format on */
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
