#include "trainer/ranks/communicator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "trainer/ranks/host_ranks.h"
#include "trainer/ranks/hub.h"

_Static_assert((int)HUB_PIECE_BYTES == (int)HOST_RANKS_PIECE_BYTES, "a piece of a host is one of the hub");

struct Communicator {
    RankPlace place;
    HostRanks *host;
    uint64_t host_count;
    Hub *hub; /* of a host's first rank, where there are several hosts; else NULL */
};

/* ---- several hosts ---- */

static FshStatus look_at_host(void *context, int *signal_ret, FshError *error)
{
    HostRanks *host = context;
    FshStatus status = host_ranks_check(host, error);
    *signal_ret = status ? host_ranks_lost_to(host) : 0;
    return status;
}

static void lose_on_host(void *context, const char *text, int signal_number)
{
    (void)host_ranks_lose_to_signal(context, signal_number, text, NULL);
}

static double most_silence(void *context, int *signal_ret)
{
    return host_ranks_still_most(context, signal_ret);
}

static double most_late(void *context, int *signal_ret)
{
    return host_ranks_late_most(context, signal_ret);
}

/* What the first rank of a host does to meet the others. */
typedef struct Journey {
    Communicator *communicator;
    HubOptions options;
    FshStatus status; /* with which it failed */
} Journey;

static FshStatus join_hosts(void *context, void *bytes, size_t byte_count, FshError *error)
{
    Journey *journey = context;
    (void)bytes;
    (void)byte_count;
    journey->status =
        hub_open(&journey->communicator->hub, &journey->communicator->place, &journey->options, error);
    return journey->status;
}

/* Meets the other hosts. start: when this rank began to wait for others. */
static FshStatus meet_hosts(Communicator *communicator, const CommunicatorOptions *options, double start,
                            FshError *error)
{
    HostRanks *host = communicator->host;
    Journey journey = {.communicator = communicator,
                       .options = {.hint = options->hint,
                                   .timeout_seconds = host_ranks_timeout(host),
                                   .secret = options->secret,
                                   .look = look_at_host,
                                   .lose = lose_on_host,
                                   .most_silence = most_silence,
                                   .most_late = most_late,
                                   .context = host}};
    const HostExchange exchange = {.run = join_hosts, .context = &journey};
    const double left = options->hint.most_seconds - (progress_now_seconds() - start);
    journey.options.hint.most_seconds = left > 1 ? left : 1;
    FshStatus status = host_ranks_meet(host, &exchange, error);
    if (status == FSH_ERR_INTERRUPTED && !interrupt_signal()) /* it has come to the first rank of the host */
        interrupt_simulate(host_ranks_lost_to(host));
    if (status && !host_ranks_tells(host))
        return fsh_error_set(error, status, "%s", ranks_told_elsewhere);
    return journey.status ? journey.status : status;
}

/* ---- opening ---- */

FshStatus communicator_open(Communicator **communicator_ret, const RankPlace *place,
                            const CommunicatorOptions *options, FshError *error)
{
    const bool has_hosts = rank_place_has_hosts(place);
    const double start = progress_now_seconds();
    CommunicatorOptions own = options ? *options : (CommunicatorOptions){0};
    Communicator *communicator = calloc(1, sizeof *communicator);
    *communicator_ret = NULL;
    if (!communicator)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a communicator");
    communicator->place = *place;
    communicator->host_count = 1;
    if (has_hosts && own.hint.most_seconds <= 0)
        own.hint.most_seconds = COMMUNICATOR_HOSTS_SECONDS;
    FshStatus status = host_ranks_open(&communicator->host, place, &own, error);
    if (!status && has_hosts)
        status = meet_hosts(communicator, &own, start, error);
    if (!status && has_hosts) {
        communicator->host_count = host_ranks_index(communicator->host) == 0;
        status = communicator_sum_u64(communicator, &communicator->host_count, 1, error);
    }
    if (status)
        communicator_close(&communicator);
    *communicator_ret = communicator;
    return status;
}

void communicator_close(Communicator **communicator_ret)
{
    if (!*communicator_ret)
        return;
    hub_close(&(*communicator_ret)->hub);
    host_ranks_close(&(*communicator_ret)->host);
    free(*communicator_ret);
    *communicator_ret = NULL;
}

void communicator_forget(const RankPlace *place)
{
    host_ranks_forget(place);
}

const RankPlace *communicator_place(const Communicator *communicator)
{
    return &communicator->place;
}

uint64_t communicator_host_count(const Communicator *communicator)
{
    return communicator->host_count;
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
    if (status)
        return status;
    if (left < host_ranks_count(communicator->host))
        (void)host_ranks_describe(communicator->host, left, name);
    else if (!communicator->hub || !hub_left(communicator->hub, name))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_PEER, "%s has ended", name);
}

int communicator_lost_to(const Communicator *communicator)
{
    return host_ranks_lost_to(communicator->host);
}

FshStatus communicator_lose(Communicator *communicator, bool is_own, const char *what, FshError *error)
{
    HostRanks *host = communicator->host;
    char name[HOST_RANKS_NAME_MAX], text[HOST_RANKS_LOSS_MAX];
    (void)host_ranks_describe(host, host_ranks_index(host), name);
    (void)snprintf(text, sizeof text, "%s%s%s", is_own ? name : "", is_own ? " " : "", what);
    return host_ranks_lose(host, text, error);
}

double communicator_timeout(const Communicator *communicator)
{
    return host_ranks_timeout(communicator->host);
}

bool communicator_tells(Communicator *communicator)
{
    return host_ranks_tells(communicator->host);
}

bool communicator_is_broken(const Communicator *communicator)
{
    return host_ranks_is_lost(communicator->host);
}

/* ---- together ---- */

/* A call, as the first ranks of the hosts make it with each other. */
typedef struct HostsCall {
    Hub *hub;
    const RankReduction *reduction; /* NULL: a broadcast */
    bool is_mine;                   /* a broadcast from this host */
} HostsCall;

static FshStatus call_hosts(void *context, void *bytes, size_t byte_count, FshError *error)
{
    const HostsCall *call = context;
    return call->reduction ? hub_reduce(call->hub, bytes, byte_count, call->reduction, error)
                           : hub_broadcast(call->hub, call->is_mine, bytes, byte_count, error);
}

/* Returns the exchange of a call; NULL on a single host. It has room in storage. */
static const HostExchange *exchange_of(const Communicator *communicator, HostsCall *call,
                                       HostExchange *storage)
{
    call->hub = communicator->hub;
    *storage = (HostExchange){.run = call_hosts, .context = call};
    return rank_place_has_hosts(&communicator->place) ? storage : NULL;
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
    HostsCall call = {.reduction = reduction};
    HostExchange exchange;
    return host_ranks_reduce(communicator->host, values, count, reduction,
                             exchange_of(communicator, &call, &exchange), error);
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
    const uint64_t index = index_of(communicator, root);
    HostsCall call = {.is_mine = index < host_ranks_count(communicator->host)};
    HostExchange exchange;
    return host_ranks_broadcast(communicator->host, index, bytes, byte_count,
                                exchange_of(communicator, &call, &exchange), error);
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
