/* host_ranks.c - barriers, reductions and losses of the ranks of one host.
 *
 * A reduction goes through the slots in pieces: every rank copies its piece into its slot; barrier; every
 * rank combines its share of the piece over all slots into the result; barrier; every rank copies the
 * result out. Two barriers are enough: a slot is overwritten only after the second barrier, and the
 * result only after the first barrier of the next piece. So whatever is written before a first barrier
 * goes into a slot, never into the result, which other ranks may still be copying. An exchange with other
 * hosts, which changes the result, lies between the second barrier and a third one. */
#include "trainer/ranks/host_ranks.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "trainer/ranks/host_beats.h"
#include "trainer/ranks/host_memory.h"

enum { SPINS = 1000 };
/* For how many seconds a rank may stand still after a signal, and after two; and may be late after two. */
static const double still_after_signal = 5, still_after_signals = 2, late_after_signals = 10;
static const double tell_seconds = 2; /* in which a lower rank may come to tell of a loss */
static const double step_most_seconds = 10 * HOST_RANKS_LOOK_SECONDS;

struct HostRanks {
    HostMemory memory;
    HostBeats beats;
    double timeout_seconds, patience_seconds;
    /* interrupt.h of who opens it: a backend, which calls too, is a plugin with a copy that hears of no
     * signal. */
    int (*signal_number)(void), (*signal_count)(void);
};

/* ---- joining ---- */

FshStatus host_ranks_open(HostRanks **host_ret, const RankPlace *place, const CommunicatorOptions *options,
                          FshError *error)
{
    HostRanks *host = calloc(1, sizeof *host);
    *host_ret = NULL;
    if (!host)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the ranks of this host");
    host->signal_number = interrupt_signal;
    host->signal_count = interrupt_count;
    host->timeout_seconds =
        options->timeout_seconds > 0 ? options->timeout_seconds : COMMUNICATOR_TIMEOUT_SECONDS;
    host->patience_seconds =
        options->patience_seconds > 0 ? options->patience_seconds : COMMUNICATOR_PATIENCE_SECONDS;
    FshStatus status = host_memory_open(&host->memory, place, &options->hint, error);
    if (!status)
        status = host_beats_start(&host->beats, &host->memory, host->timeout_seconds, error);
    if (!status)
        status = host_memory_gather(&host->memory, &options->hint, error);
    if (status == FSH_ERR_PEER && !host_ranks_tells(host))
        (void)fsh_error_set(error, status, "%s", ranks_told_elsewhere);
    if (status)
        host_ranks_close(&host);
    *host_ret = host;
    return status;
}

void host_ranks_close(HostRanks **host_ret)
{
    if (!*host_ret)
        return;
    host_beats_stop(&(*host_ret)->beats);
    host_memory_close(&(*host_ret)->memory);
    free(*host_ret);
    *host_ret = NULL;
}

void host_ranks_forget(const RankPlace *place)
{
    HostMemory memory;
    host_memory_place(&memory, place);
    (void)shm_unlink(memory.name);
}

uint64_t host_ranks_index(const HostRanks *host)
{
    return host->memory.index;
}

uint64_t host_ranks_count(const HostRanks *host)
{
    return host->memory.count;
}

uint64_t host_ranks_rank(const HostRanks *host, uint64_t index)
{
    return (uint64_t)atomic_load(&host->memory.head->ranks[index].rank);
}

const char *host_ranks_describe(const HostRanks *host, uint64_t index, char text[HOST_RANKS_NAME_MAX])
{
    return host_memory_describe(&host->memory, index, text);
}

/* ---- losses ---- */

static void sleep_on(atomic_uint *futex, unsigned value)
{
    const struct timespec time = {.tv_nsec = (long)(HOST_RANKS_LOOK_SECONDS * 1e9)};
    (void)syscall(SYS_futex, futex, FUTEX_WAIT, value, &time, NULL, 0);
}

static void wake_all(atomic_uint *futex)
{
    (void)syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool host_ranks_is_lost(const HostRanks *host)
{
    return atomic_load(&host->memory.head->loss.state) != HOST_LOSS_NONE;
}

/* Returns the loss that counts. A rank that ended while it wrote the message has left none. */
static FshStatus tell_loss(const HostRanks *host, FshError *error)
{
    enum { TRIES = 500 };
    const struct timespec pause = {.tv_nsec = 1000000};
    const HostLoss *loss = &host->memory.head->loss;
    for (int i = 0; i < TRIES && atomic_load(&loss->state) != HOST_LOSS_TOLD; i++)
        (void)nanosleep(&pause, NULL);
    const bool told = atomic_load(&loss->state) == HOST_LOSS_TOLD;
    return fsh_error_set(error, told ? (FshStatus)atomic_load(&loss->status) : FSH_ERR_PEER, "%.*s",
                         (int)sizeof loss->text - 1, told ? loss->text : "another rank has ended");
}

/* Makes it the loss that something has failed with the status. */
static FshStatus lose_with(HostRanks *host, FshStatus failed, int signal_number, const char *text,
                           FshError *error)
{
    HostHead *head = host->memory.head;
    int none = HOST_LOSS_NONE;
    if (atomic_compare_exchange_strong(&head->loss.state, &none, HOST_LOSS_WRITING)) {
        (void)snprintf(head->loss.text, sizeof head->loss.text, "%s", text);
        atomic_store(&head->loss.signal_number, signal_number);
        atomic_store(&head->loss.status, (int)failed);
        atomic_store(&head->loss.state, HOST_LOSS_TOLD);
        wake_all(&head->generation);
    }
    return tell_loss(host, error);
}

FshStatus host_ranks_lose_to_signal(HostRanks *host, int signal_number, const char *text, FshError *error)
{
    return lose_with(host, FSH_ERR_PEER, signal_number, text, error);
}

FshStatus host_ranks_lose(HostRanks *host, const char *text, FshError *error)
{
    return host_ranks_lose_to_signal(host, 0, text, error);
}

int host_ranks_lost_to(const HostRanks *host)
{
    return atomic_load(&host->memory.head->loss.signal_number);
}

/* Makes it the loss that a rank `what`, as in "has ended". */
static FshStatus lose_rank(HostRanks *host, uint64_t index, const char *what, FshError *error)
{
    char name[HOST_RANKS_NAME_MAX], text[HOST_RANKS_LOSS_MAX];
    (void)snprintf(text, sizeof text, "%s %s", host_ranks_describe(host, index, name), what);
    return host_ranks_lose(host, text, error);
}

double host_ranks_timeout(const HostRanks *host)
{
    return host->timeout_seconds;
}

/* Returns less after a signal: the others would wait only to make a checkpoint together. */
double host_ranks_still_most(const HostRanks *host, int *signal_ret)
{
    *signal_ret = host->signal_number();
    const double most = !*signal_ret               ? host->timeout_seconds
                        : host->signal_count() > 1 ? still_after_signals
                                                   : still_after_signal;
    return most < host->timeout_seconds ? most : host->timeout_seconds;
}

double host_ranks_late_most(const HostRanks *host, int *signal_ret)
{
    const bool hurries = host->signal_count() > 1;
    *signal_ret = hurries ? host->signal_number() : 0;
    return hurries && late_after_signals < host->patience_seconds ? late_after_signals
                                                                  : host->patience_seconds;
}

/* Makes it the loss that a rank `what` for so many seconds, and that a signal leaves it behind. */
static FshStatus lose_to_signal(HostRanks *host, uint64_t index, const char *what, double seconds,
                                FshError *error)
{
    char name[HOST_RANKS_NAME_MAX], text[HOST_RANKS_LOSS_MAX];
    (void)snprintf(text, sizeof text, "%s %s for %.0f s, and a signal ends the run without it",
                   host_ranks_describe(host, index, name), what, seconds);
    return host_ranks_lose_to_signal(host, host->signal_number(), text, error);
}

/* Makes it the loss that a rank stands still. */
static FshStatus lose_still(HostRanks *host, uint64_t index, double still, FshError *error)
{
    char text[128];
    if (host->signal_number())
        return lose_to_signal(host, index, "has not moved", still, error);
    (void)snprintf(text, sizeof text,
                   "has not moved for %.0f s (--timeout): it is stopped, frozen or swapped out", still);
    return lose_rank(host, index, text, error);
}

FshStatus host_ranks_check(HostRanks *host, FshError *error)
{
    const HostMemory *memory = &host->memory;
    if (host_ranks_is_lost(host))
        return tell_loss(host, error);
    for (uint64_t index = 0; index < memory->count; index++)
        if (index != memory->index && host_memory_has_died(memory, index))
            return lose_rank(host, index, "has ended", error);
    for (uint64_t index = 0; index < memory->count; index++) {
        int signal_number = 0;
        const double still = host_beats_still(&host->beats, index);
        if (index != memory->index && still >= host_ranks_still_most(host, &signal_number))
            return lose_still(host, index, still, error);
    }
    return FSH_OK;
}

uint64_t host_ranks_left(const HostRanks *host)
{
    const HostMemory *memory = &host->memory;
    uint64_t index = 0;
    while (index < memory->count &&
           (index == memory->index || host_memory_state(memory, index) != HOST_RANK_LEFT))
        index++;
    return index;
}

/* Returns whether a rank before this one may tell: it lives, and does not stand still. */
static bool may_lower_tell(const HostRanks *host)
{
    int signal_number = 0;
    const double most = host_ranks_still_most(host, &signal_number) / 2;
    for (uint64_t index = 0; index < host->memory.index; index++)
        if (host_memory_state(&host->memory, index) == HOST_RANK_THERE &&
            !host_memory_has_died(&host->memory, index) && host_beats_still(&host->beats, index) < most)
            return true;
    return false;
}

bool host_ranks_tells(HostRanks *host)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const double start = progress_now_seconds();
    const int own = (int)host->memory.index + 1;
    atomic_int *teller = &host->memory.head->loss.teller;
    int nobody = 0;
    while (!atomic_load(teller) && may_lower_tell(host) && progress_now_seconds() - start < tell_seconds)
        (void)nanosleep(&pause, NULL);
    return atomic_compare_exchange_strong(teller, &nobody, own) || nobody == own;
}

/* ---- the barrier ---- */

/* Returns the first rank that has not come to the barrier of that generation; the number of ranks if all
 * have. */
static uint64_t first_missing(const HostRanks *host, unsigned generation)
{
    uint64_t index = 0;
    while (index < host->memory.count &&
           atomic_load(&host->memory.head->ranks[index].meeting) == generation + 1)
        index++;
    return index;
}

/* Looks whether those who are missing at the barrier of that generation may still come. */
static FshStatus check_missing(HostRanks *host, unsigned generation, double waited, FshError *error)
{
    const HostMemory *memory = &host->memory;
    const uint64_t left = host_ranks_left(host), missing = first_missing(host, generation);
    char text[96];
    int signal_number = 0;
    FshStatus status = host_ranks_check(host, error); /* one that died may be why another has left */
    if (status || atomic_load(&memory->head->generation) != generation)
        return status; /* who has passed the barrier may leave */
    if (left < memory->count)
        return lose_rank(host, left, "has ended", error);
    if (missing == memory->count)
        return FSH_OK;
    if (waited <= host_ranks_late_most(host, &signal_number))
        return FSH_OK;
    if (signal_number)
        return lose_to_signal(host, missing, "has kept the others waiting", waited, error);
    (void)snprintf(text, sizeof text, "has kept the others waiting for %.0f s: its process lives, but hangs",
                   waited);
    return lose_rank(host, missing, text, error);
}

/* Waits for the end of the barrier of that generation. */
static FshStatus wait_for_others(HostRanks *host, unsigned generation, FshError *error)
{
    HostHead *head = host->memory.head;
    for (int i = 0; i < SPINS; i++)
        if (atomic_load(&head->generation) != generation)
            return FSH_OK;
    double waited = 0, last = progress_now_seconds();
    while (atomic_load(&head->generation) == generation) {
        sleep_on(&head->generation, generation);
        /* Time in which this process itself stood still does not count, nor does that of an exchange. */
        const double now = progress_now_seconds(), passed = now - last;
        last = now;
        if (!atomic_load(&head->exchanging))
            waited += passed < step_most_seconds ? passed : step_most_seconds;
        if (atomic_load(&head->generation) != generation)
            return FSH_OK;
        FshStatus status = check_missing(host, generation, waited, error);
        /* The last rank may have come meanwhile; then the next call tells the loss. */
        if (status && atomic_load(&head->generation) == generation)
            return status;
    }
    return FSH_OK;
}

static FshStatus pass_barrier(HostRanks *host, FshError *error)
{
    HostHead *head = host->memory.head;
    if (host_ranks_is_lost(host))
        return tell_loss(host, error);
    const unsigned generation = atomic_load(&head->generation);
    atomic_store_explicit(&head->ranks[host->memory.index].meeting, generation + 1, memory_order_release);
    if (atomic_fetch_add(&head->arrived, 1) + 1 < host->memory.count)
        return wait_for_others(host, generation, error);
    atomic_store(&head->arrived, 0);
    atomic_fetch_add(&head->generation, 1);
    wake_all(&head->generation);
    return FSH_OK;
}

/* Makes it the loss that the exchange has failed here. Wrong options and a signal are told as such: all ranks
 * end for them as this one does. */
static FshStatus lose_exchange(HostRanks *host, FshStatus failed, const char *text, FshError *error)
{
    if (failed == FSH_ERR_INTERRUPTED)
        return lose_with(host, failed, host->signal_number(), text, error);
    return lose_with(host, failed == FSH_ERR_USAGE ? failed : FSH_ERR_PEER, 0, text, error);
}

/* Lets the first rank exchange the bytes with other hosts while the others wait. */
static FshStatus run_exchange(HostRanks *host, const HostExchange *exchange, void *bytes, size_t byte_count,
                              FshError *error)
{
    HostHead *head = host->memory.head;
    FshError failure = {0};
    if (host->memory.index == 0) {
        atomic_store(&head->exchanging, true);
        FshStatus status = exchange->run(exchange->context, bytes, byte_count, &failure);
        atomic_store(&head->exchanging, false);
        if (status)
            return lose_exchange(host, status, failure.message, error);
    }
    return pass_barrier(host, error);
}

FshStatus host_ranks_meet(HostRanks *host, const HostExchange *exchange, FshError *error)
{
    FshStatus status = pass_barrier(host, error);
    return status || !exchange ? status : run_exchange(host, exchange, NULL, 0, error);
}

/* ---- values ---- */

/* Combines this rank's share of a piece over all slots, in the order of the ranks. */
static void combine_share(const HostRanks *host, size_t count, const RankReduction *reduction)
{
    const HostMemory *memory = &host->memory;
    const size_t from = count * memory->index / memory->count,
                 to = count * (memory->index + 1) / memory->count;
    const size_t bytes = reduction->element_bytes;
    char *result = host_memory_result(memory);
    memcpy(result + from * bytes, host_memory_slot(memory, 0) + from * bytes, (to - from) * bytes);
    for (uint64_t other = 1; other < memory->count; other++)
        reduction->combine(result, host_memory_slot(memory, other), from, to);
}

FshStatus host_ranks_reduce(HostRanks *host, void *values, size_t count, const RankReduction *reduction,
                            const HostExchange *exchange, FshError *error)
{
    const HostMemory *memory = &host->memory;
    const size_t piece = HOST_SLOT_BYTES / reduction->element_bytes;
    FshStatus status = FSH_OK;
    for (size_t at = 0; at < count && !status; at += piece) {
        const size_t now = count - at < piece ? count - at : piece, bytes = now * reduction->element_bytes;
        char *own = (char *)values + at * reduction->element_bytes;
        memcpy(host_memory_slot(memory, memory->index), own, bytes);
        status = pass_barrier(host, error);
        if (!status) {
            combine_share(host, now, reduction);
            status = pass_barrier(host, error);
        }
        if (!status && exchange)
            status = run_exchange(host, exchange, host_memory_result(memory), bytes, error);
        if (!status)
            memcpy(own, host_memory_result(memory), bytes);
    }
    return status;
}

FshStatus host_ranks_broadcast(HostRanks *host, uint64_t index, void *bytes, size_t byte_count,
                               const HostExchange *exchange, FshError *error)
{
    const HostMemory *memory = &host->memory;
    const bool sends = memory->index == index;
    char *slot = host_memory_slot(memory, index < memory->count ? index : 0);
    FshStatus status = FSH_OK;
    for (size_t at = 0; at < byte_count && !status; at += HOST_SLOT_BYTES) {
        const size_t now = byte_count - at < HOST_SLOT_BYTES ? byte_count - at : HOST_SLOT_BYTES;
        if (sends)
            memcpy(slot, (char *)bytes + at, now);
        status = pass_barrier(host, error);
        if (!status && exchange)
            status = run_exchange(host, exchange, slot, now, error);
        if (!status && !sends)
            memcpy((char *)bytes + at, slot, now);
        if (!status)
            status = pass_barrier(host, error);
    }
    return status;
}
