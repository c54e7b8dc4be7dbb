#include "trainer/data/sampler.h"

#include <pthread.h>
#include <stdbool.h>
#include <xxhash.h>

#include "common/cpu.h"
#include "common/random.h"

/* Keeps the order's numbers apart from those of the augmentation, which are keyed by (epoch, sample). */
static const uint64_t order_stream = 0x6f72646572; /* "order" */

uint64_t sampler_step_count(const Sampler *sampler)
{
    uint64_t total_batch = sampler->batch * sampler->world_size;
    uint64_t whole = sampler->sample_count / total_batch;
    if (!sampler->training)
        return whole + (sampler->sample_count % total_batch != 0);
    return sampler->update_steps > 1 && whole > sampler->update_steps ? whole - whole % sampler->update_steps
                                                                      : whole;
}

static uint64_t sample_at_place(const Sampler *sampler, uint64_t epoch, uint64_t place)
{
    if (place >= sampler->sample_count)
        return SAMPLER_PADDING;
    if (!sampler->training)
        return place;
    return random_permute(place, sampler->sample_count, sampler->seed, random_stream(order_stream, epoch));
}

uint64_t sampler_at(const Sampler *sampler, uint64_t epoch, uint64_t step, uint64_t slot)
{
    uint64_t rank_batch = step * sampler->world_size + sampler->rank;
    return sample_at_place(sampler, epoch, rank_batch * sampler->batch + slot);
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
        uint64_t sample = sample_at_place(part->sampler, part->epoch, place);
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
