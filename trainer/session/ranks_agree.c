#include "trainer/session/ranks_agree.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "common/interrupt.h"

/* Returns a hash of the message, with which ranks compare theirs; 0: no message. */
static uint64_t hash_of(const FshError *error)
{
    return error ? XXH3_64bits(error->message, strlen(error->message)) | 1 : 0;
}

/* The message of a rank that only ends because another one failed. Such a rank never counts as one that
 * reports, however often the ranks agree. */
static const char told_by_another[] = "another rank has failed, and says why; this one ends with it";

/* The status of a rank; the maximum over ranks counts. A signal's number lies between the two. */
enum { WELL = 0, FAILED = 1000 };

/* Leaves the message to another rank. */
static void leave_message(FshError *error)
{
    if (error)
        (void)snprintf(error->message, sizeof error->message, "%s", ranks_told_elsewhere);
}

void ranks_leave_to_first(const Communicator *communicator, FshError *error)
{
    if (communicator && !rank_place_speaks(communicator_place(communicator)))
        leave_message(error);
}

bool ranks_interrupted(const Communicator *communicator)
{
    return !communicator && interrupt_requested();
}

/* Makes the failures of all ranks known to each other, by the hashes of their messages; 0: none of its own.
 * Leaves this rank's message to a rank that has the same: a lower one of its host, or the first of all unless
 * this one speaks for its host. */
static FshStatus share_failures(Communicator *communicator, bool failed, uint64_t hash, FshError *error)
{
    const RankPlace *place = communicator_place(communicator);
    uint64_t hashes[RANKS_MAX];
    FshStatus status = communicator_gather(communicator, &hash, sizeof hash, hashes, NULL);
    if (status || !failed)
        return status;
    if (hashes[0] && (!hash || hash == hashes[0]))
        ranks_leave_to_first(communicator, error);
    for (uint64_t lower = rank_place_first(place); lower < place->rank && hash; lower++)
        if (hashes[lower] == hash)
            leave_message(error);
    return FSH_OK;
}

FshStatus ranks_agree(Communicator *communicator, FshStatus mine, FshError *error)
{
    if (!communicator)
        return mine;
    const uint64_t signal_here = (uint64_t)interrupt_signal();
    const bool stops = mine == FSH_ERR_INTERRUPTED || (!mine && signal_here);
    const uint64_t own = mine && !stops ? FAILED : stops ? (signal_here ? signal_here : 1) : WELL;
    const bool tells = own == FAILED && !(error && strcmp(error->message, told_by_another) == 0);
    uint64_t worst = own;
    FshError lost = {0};
    FshStatus status = communicator_max_u64(communicator, &worst, 1, &lost);
    if (!status && worst == FAILED) /* a rank that is lost now is told of by the next exchange */
        (void)share_failures(communicator, own == FAILED, tells ? hash_of(error) : 0, error);
    if (own == FAILED)
        return mine;
    if (status)
        return fsh_error_set(error, status, "%s", lost.message);
    if (worst == FAILED)
        return fsh_error_set(error, FSH_ERR_PEER, "%s", told_by_another);
    if (worst == WELL)
        return FSH_OK;
    if (!signal_here)
        interrupt_simulate((int)worst);
    return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
}

FshStatus ranks_check_there(Communicator *communicator, FshError *error)
{
    return communicator ? communicator_check_all_there(communicator, error) : FSH_OK;
}

void ranks_tell_once(Communicator *communicator, FshError *error)
{
    if (!communicator || !error || strcmp(error->message, ranks_told_elsewhere) == 0)
        return;
    if (strcmp(error->message, told_by_another) == 0)
        ranks_leave_to_first(communicator, error);
    else if ((error->status == FSH_ERR_PEER || communicator_is_broken(communicator)) &&
             !communicator_tells(communicator))
        leave_message(error);
}

FshStatus ranks_explain(Communicator *communicator, FshStatus status, FshError *error)
{
    FshError lost = {0};
    if (!communicator || communicator_check(communicator, &lost) == FSH_OK)
        return status;
    const int signal_number = communicator_lost_to(communicator);
    if (signal_number && !interrupt_signal())
        interrupt_simulate(signal_number);
    if (status == FSH_ERR_LIBRARY || status == FSH_ERR_SYSTEM) /* NCCL's or CUDA's, or of a wait for them */
        status = lost.status;
    return fsh_error_set(error, signal_number ? FSH_ERR_INTERRUPTED : status,
                         "%s%s; --resume auto goes on from the last checkpoint", lost.message,
                         signal_number ? "" : ", and training ends with it");
}

FshStatus ranks_sum_metrics(Communicator *communicator, Metrics *metrics, FshError *error)
{
    double numbers[2 * METRIC_COUNT];
    if (!communicator)
        return FSH_OK;
    for (int i = 0; i < METRIC_COUNT; i++) {
        numbers[i] = metrics->sums[i];
        numbers[METRIC_COUNT + i] = metrics_has(metrics, (Metric)i) ? 1 : 0;
    }
    FshStatus status = communicator_sum_f64(communicator, numbers, 2 * (size_t)METRIC_COUNT, error);
    if (!status)
        status = communicator_sum_u64(communicator, &metrics->count, 1, error);
    for (int i = 0; i < METRIC_COUNT && !status; i++) {
        metrics->sums[i] = numbers[i];
        if (numbers[METRIC_COUNT + i] > 0)
            metrics->measured |= 1U << i;
    }
    return status;
}

FshStatus ranks_sum_count(Communicator *communicator, uint64_t *count, FshError *error)
{
    return communicator ? communicator_sum_u64(communicator, count, 1, error) : FSH_OK;
}

FshStatus ranks_max_count(Communicator *communicator, uint64_t *count, FshError *error)
{
    return communicator ? communicator_max_u64(communicator, count, 1, error) : FSH_OK;
}

FshStatus ranks_lowest(Communicator *communicator, bool mine, uint64_t *rank_ret, FshError *error)
{
    const RankPlace *place = communicator_place(communicator);
    uint64_t most =
        mine ? place->world_size - place->rank : 0; /* of several, the lowest rank's is the maximum */
    FshStatus status = communicator_max_u64(communicator, &most, 1, error);
    *rank_ret = place->world_size - most;
    return status;
}

FshStatus ranks_share_text(Communicator *communicator, char *text, size_t text_bytes, FshError *error)
{
    uint64_t rank = 0;
    FshStatus status = ranks_lowest(communicator, text[0] != '\0', &rank, error);
    if (!status && rank < communicator_place(communicator)->world_size)
        status = communicator_broadcast(communicator, rank, text, text_bytes, error);
    return status;
}
