#include "trainer/ranks/communicator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ranks/host_ranks.h"

struct Communicator {
    RankPlace place;
    HostRanks *host;
};

FshStatus communicator_open(Communicator **communicator_ret, const RankPlace *place,
                            const CommunicatorOptions *options, FshError *error)
{
    const CommunicatorOptions defaults = {0};
    Communicator *communicator = calloc(1, sizeof *communicator);
    *communicator_ret = NULL;
    if (!communicator)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a communicator");
    communicator->place = *place;
    FshStatus status = host_ranks_open(&communicator->host, place, options ? options : &defaults, error);
    if (status)
        communicator_close(&communicator);
    *communicator_ret = communicator;
    return status;
}

void communicator_close(Communicator **communicator_ret)
{
    if (!*communicator_ret)
        return;
    host_ranks_close(&(*communicator_ret)->host);
    free(*communicator_ret);
    *communicator_ret = NULL;
}

const RankPlace *communicator_place(const Communicator *communicator)
{
    return &communicator->place;
}

/* ---- losses ---- */

FshStatus communicator_check(Communicator *communicator, FshError *error)
{
    return host_ranks_check(communicator->host, error);
}

FshStatus communicator_check_all_there(Communicator *communicator, FshError *error)
{
    const uint64_t left = host_ranks_left(communicator->host);
    char name[HOST_RANKS_NAME_MAX];
    FshStatus status = communicator_check(communicator, error);
    if (status || left == host_ranks_count(communicator->host))
        return status;
    return fsh_error_set(error, FSH_ERR_PEER, "%s has ended",
                         host_ranks_describe(communicator->host, left, name));
}

int communicator_lost_to(const Communicator *communicator)
{
    return host_ranks_lost_to(communicator->host);
}

bool communicator_is_broken(const Communicator *communicator)
{
    return host_ranks_is_lost(communicator->host);
}

/* ---- together ---- */

FshStatus communicator_barrier(Communicator *communicator, FshError *error)
{
    return host_ranks_meet(communicator->host, NULL, error);
}

static void add_f64(void *result, const void *slot, size_t from, size_t to)
{
    double *sums = result;
    const double *values = slot;
    for (size_t i = from; i < to; i++)
        sums[i] += values[i];
}

static void add_f32(void *result, const void *slot, size_t from, size_t to)
{
    float *sums = result;
    const float *values = slot;
    for (size_t i = from; i < to; i++)
        sums[i] += values[i];
}

static void add_u64(void *result, const void *slot, size_t from, size_t to)
{
    uint64_t *sums = result;
    const uint64_t *values = slot;
    for (size_t i = from; i < to; i++)
        sums[i] += values[i];
}

static void max_u64(void *result, const void *slot, size_t from, size_t to)
{
    uint64_t *most = result;
    const uint64_t *values = slot;
    for (size_t i = from; i < to; i++)
        most[i] = values[i] > most[i] ? values[i] : most[i];
}

static void or_bytes(void *result, const void *slot, size_t from, size_t to)
{
    unsigned char *all = result;
    const unsigned char *bytes = slot;
    for (size_t i = from; i < to; i++)
        all[i] |= bytes[i];
}

static const RankReduction sum_f64 = {sizeof(double), add_f64}, sum_f32 = {sizeof(float), add_f32},
                           sum_u64 = {sizeof(uint64_t), add_u64}, most_u64 = {sizeof(uint64_t), max_u64},
                           union_of_bytes = {1, or_bytes};

static FshStatus reduce(Communicator *communicator, void *values, size_t count,
                        const RankReduction *reduction, FshError *error)
{
    return host_ranks_reduce(communicator->host, values, count, reduction, NULL, error);
}

FshStatus communicator_sum_f64(Communicator *communicator, double *values, size_t count, FshError *error)
{
    return reduce(communicator, values, count, &sum_f64, error);
}

FshStatus communicator_sum_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error)
{
    return reduce(communicator, values, count, &sum_u64, error);
}

FshStatus communicator_max_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error)
{
    return reduce(communicator, values, count, &most_u64, error);
}

FshStatus communicator_mean_f32(Communicator *communicator, float *values, size_t count, FshError *error)
{
    const float share = (float)(1.0 / (double)communicator->place.world_size);
    FshStatus status = reduce(communicator, values, count, &sum_f32, error);
    for (size_t i = 0; i < count && !status; i++)
        values[i] *= share;
    return status;
}

/* Returns the index on this host of a rank of the run; the number of ranks here if it is on another. */
static uint64_t index_of(const Communicator *communicator, uint64_t rank)
{
    uint64_t index = 0;
    while (index < host_ranks_count(communicator->host) && host_ranks_rank(communicator->host, index) != rank)
        index++;
    return index;
}

FshStatus communicator_broadcast(Communicator *communicator, uint64_t root, void *bytes, size_t byte_count,
                                 FshError *error)
{
    return host_ranks_broadcast(communicator->host, index_of(communicator, root), bytes, byte_count, NULL,
                                error);
}

/* Gathers as a union of bytes: every rank sets its own, and zeros in the places of the others. */
FshStatus communicator_gather(Communicator *communicator, const void *mine, size_t byte_count, void *all_ret,
                              FshError *error)
{
    const RankPlace *place = &communicator->place;
    memset(all_ret, 0, (size_t)place->world_size * byte_count);
    memcpy((char *)all_ret + place->rank * byte_count, mine, byte_count);
    return reduce(communicator, all_ret, (size_t)place->world_size * byte_count, &union_of_bytes, error);
}
