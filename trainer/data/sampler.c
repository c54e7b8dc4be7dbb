#include "trainer/data/sampler.h"

#include <xxhash.h>

#include "common/cpu.h"
#include "common/random.h"

/* Keeps the order's numbers apart from those of the augmentation, which are keyed by (epoch, sample). */
static const uint64_t order_stream = 0x6f72646572; /* "order" */

uint64_t sampler_step_count(const Sampler *sampler)
{
    uint64_t total_batch = sampler->batch * sampler->world_size;
    uint64_t whole = sampler->sample_count / total_batch;
    return whole + (!sampler->training && sampler->sample_count % total_batch != 0);
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

/* A quarter of a microsecond for each sample: a thread for every 15 milliseconds of that, and no more than a
 * few, for the loader is at work beside. */
static int digest_threads(uint64_t sample_count)
{
    enum { SAMPLES_FOR_A_THREAD = 1 << 16, THREADS_MAX = 4 };
    uint64_t wanted = sample_count / SAMPLES_FOR_A_THREAD;
    int most = cpu_count_available() < THREADS_MAX ? cpu_count_available() : THREADS_MAX;
    return wanted < 1 ? 1 : wanted < (uint64_t)most ? (int)wanted : most;
}

uint64_t sampler_order_digest(const Sampler *sampler, uint64_t epoch)
{
    /* A sum does not care for the order in which threads add to it. */
    uint64_t digest = 0;
    const int threads = digest_threads(sampler->sample_count);
    (void)threads; /* a compiler without OpenMP reads no pragma */
#pragma omp parallel for schedule(static) reduction(+ : digest) num_threads(threads)
    for (uint64_t place = 0; place < sampler->sample_count; place++) {
        uint64_t sample = sample_at_place(sampler, epoch, place);
        unsigned char pair[16];
        for (int i = 0; i < 8; i++) {
            pair[i] = (unsigned char)(place >> (8 * i));
            pair[8 + i] = (unsigned char)(sample >> (8 * i));
        }
        digest += XXH3_64bits(pair, sizeof pair);
    }
    return digest;
}
