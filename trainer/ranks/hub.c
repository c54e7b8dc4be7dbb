/* hub.c - in an operation every other host sends rank 0 one message ("up"), and then rank 0 sends each one
 * ("down"). The thread does all input and output. The caller puts a message out, wakes the thread, and waits
 * until those of the others are in. */
#include "trainer/ranks/hub.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/progress.h"
#include "common/thread.h"
#include "trainer/ranks/hub_sockets.h"
#include "trainer/ranks/hub_wire.h"

enum { LOOK_MILLISECONDS = 100, LEAVE_SECONDS = 2, NAME_SECONDS = 2 };

struct Hub {
    RankPlace place;
    HubOptions options;
    HubWire *wires; /* rank 0's host: to all others, in the order of their ranks; else to rank 0's */
    size_t wire_count;
    uint32_t operation;
    pthread_t thread;
    bool has_thread;
    int wake; /* an eventfd: the caller has put something out */
    /* below, and the wires: guarded by the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends, lost;
    char loss[HUB_TEXT_MAX];
    int loss_signal;
};

/* ---- losses ---- */

static const char *describe(const Hub *hub, const HubWire *wire, char text[HOST_RANKS_NAME_MAX])
{
    return rank_describe(text, HOST_RANKS_NAME_MAX, wire->link.first, hub->place.world_size, wire->link.host,
                         wire->link.process);
}

/* Ends all communication, with the first loss that is noticed, of which all hosts are told. */
static void lose(Hub *hub, const char *text, int signal_number)
{
    if (hub->lost)
        return;
    hub->lost = true;
    hub->loss_signal = signal_number;
    (void)snprintf(hub->loss, sizeof hub->loss, "%.*s", HUB_TEXT_MAX - 1, text);
    for (size_t i = 0; i < hub->wire_count; i++)
        hub->wires[i].tells_loss = !hub->wires[i].gone;
    (void)pthread_cond_broadcast(&hub->changed);
    if (hub->options.lose)
        hub->options.lose(hub->options.context, hub->loss, signal_number);
}

/* Makes it the loss that a host `what`, as in "has ended". That host is told too, if it still hears. */
static void lose_host(Hub *hub, const HubWire *wire, const char *what, int signal_number)
{
    char name[HOST_RANKS_NAME_MAX], text[HUB_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s %s", describe(hub, wire, name), what);
    lose(hub, text, signal_number);
}

/* Looks at this host, without the lock; tells what it has lost. */
static void look(Hub *hub)
{
    FshError error = {0};
    int signal_number = 0;
    if (!hub->options.look || !hub->options.look(hub->options.context, &signal_number, &error))
        return;
    (void)pthread_mutex_lock(&hub->lock);
    lose(hub, error.message, signal_number);
    (void)pthread_mutex_unlock(&hub->lock);
}

/* ---- the thread ---- */

static void wait_for_events(Hub *hub)
{
    struct pollfd polled[RANKS_MAX + 1];
    uint64_t count;
    polled[hub->wire_count] = (struct pollfd){.fd = hub->wake, .events = POLLIN};
    (void)pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < hub->wire_count; i++) {
        const HubWire *wire = &hub->wires[i];
        polled[i] = (struct pollfd){.fd = wire->gone ? -1 : wire->link.socket,
                                    .events = (short)(hub_wire_has_output(wire) ? POLLIN | POLLOUT : POLLIN)};
    }
    (void)pthread_mutex_unlock(&hub->lock);
    (void)poll(polled, hub->wire_count + 1, LOOK_MILLISECONDS);
    (void)!read(hub->wake, &count, sizeof count);
}

/* Reads from a host. */
static void listen_to(Hub *hub, HubWire *wire)
{
    switch (hub_wire_read(wire)) {
    case HUB_NEWS_NONE:
        return;
    case HUB_NEWS_SOME:
        if (wire->told)
            lose(hub, wire->loss, wire->loss_signal);
        break;
    case HUB_NEWS_ENDED:
        if (wire->told)
            lose(hub, wire->loss, wire->loss_signal);
        else if (!wire->left)
            lose_host(hub, wire, errno == ETIMEDOUT ? "cannot be reached any more" : "has ended", 0);
        break;
    case HUB_NEWS_NONSENSE:
        lose_host(hub, wire, "says what ftrain would not say at this point", 0);
        break;
    }
    (void)pthread_cond_broadcast(&hub->changed);
}

/* Returns the seconds that have passed since *last, and sets it to now. Time in which this process itself
 * stood still does not count. */
static double passed_since(const Hub *hub, double *last)
{
    const double quarter = hub->options.timeout_seconds / 4, most = quarter < 1 ? quarter : 1;
    const double now = progress_now_seconds(), passed = now - *last;
    *last = now;
    return passed < most ? passed : most;
}

/* Looks whether a host has been silent for too long. */
static void mind_silence(Hub *hub, const HubWire *wire)
{
    char what[128];
    int signal_number = 0;
    const double most = hub->options.timeout_seconds;
    const double now_most =
        hub->options.most_silence ? hub->options.most_silence(hub->options.context, &signal_number) : most;
    if (wire->gone || wire->left || hub->lost || wire->silent < now_most)
        return;
    (void)snprintf(what, sizeof what, "has not been heard of for %.0f s%s", wire->silent,
                   signal_number ? ", and a signal ends the run without it"
                                 : " (--timeout): its host is frozen, or cannot be reached");
    lose_host(hub, wire, what, signal_number);
}

/* Reads and writes all connections, so many seconds after the last time. */
static void serve(Hub *hub, double passed)
{
    for (size_t i = 0; i < hub->wire_count; i++) {
        HubWire *wire = &hub->wires[i];
        wire->silent += passed;
        listen_to(hub, wire);
        hub_wire_write(wire, hub->loss, hub->loss_signal);
        mind_silence(hub, wire);
    }
}

static bool all_sent(const Hub *hub)
{
    for (size_t i = 0; i < hub->wire_count; i++)
        if (hub_wire_has_output(&hub->wires[i]))
            return false;
    return true;
}

static void *run_hub(void *context)
{
    Hub *hub = context;
    double looked = 0, served = progress_now_seconds();
    bool goes_on = true;
    while (goes_on) {
        wait_for_events(hub);
        if (progress_now_seconds() - looked > HUB_LOOK_SECONDS) {
            looked = progress_now_seconds();
            look(hub);
        }
        (void)pthread_mutex_lock(&hub->lock);
        serve(hub, passed_since(hub, &served));
        goes_on = !hub->ends || !all_sent(hub);
        if (!goes_on)
            (void)pthread_cond_broadcast(&hub->changed);
        (void)pthread_mutex_unlock(&hub->lock);
    }
    return NULL;
}

static void wake(const Hub *hub)
{
    const uint64_t one = 1;
    (void)!write(hub->wake, &one, sizeof one);
}

/* ---- opening and closing ---- */

static FshStatus start_thread(Hub *hub, FshError *error)
{
    const int code = thread_start(&hub->thread, run_hub, hub);
    hub->has_thread = code == 0;
    return code ? fsh_error_system(error, code, "no thread for the other hosts") : FSH_OK;
}

/* Makes a wire of each connection, or ends them. */
static FshStatus make_wires(Hub *hub, const HubMeeting *meeting, FshStatus status, FshError *error)
{
    hub->wires = status ? NULL : calloc(meeting->link_count + 1, sizeof *hub->wires);
    if (!status && !hub->wires)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the other hosts");
    hub->wire_count = hub->wires ? meeting->link_count : 0;
    for (uint64_t i = hub->wire_count; i < meeting->link_count; i++)
        (void)close(meeting->links[i].socket);
    for (size_t i = 0; i < hub->wire_count; i++) {
        FshStatus opened = hub_wire_open(&hub->wires[i], &meeting->links[i], status ? NULL : error);
        hub_tune(meeting->links[i].socket);
        status = status ? status : opened;
    }
    return status;
}

FshStatus hub_open(Hub **hub_ret, const RankPlace *place, const HubOptions *options, FshError *error)
{
    HubLink links[RANKS_MAX];
    HubMeeting meeting = {.links = links};
    Hub *hub = calloc(1, sizeof *hub);
    *hub_ret = NULL;
    if (!hub)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the other hosts");
    hub->place = *place;
    hub->options = *options;
    (void)pthread_mutex_init(&hub->lock, NULL);
    thread_condition_init(&hub->changed);
    hub->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    FshStatus status = hub->wake < 0 ? fsh_error_system(error, errno, "no eventfd")
                                     : hub_meeting_hold(&meeting, place, options, error);
    status = make_wires(hub, &meeting, status, error);
    if (!status)
        status = start_thread(hub, error);
    if (status)
        hub_close(&hub);
    *hub_ret = hub;
    return status;
}

/* Lets the thread send what is left, and ends it. A loss of this host that the thread has not seen yet is
 * told first: else the others would take this rank, which ends because of it, for what was lost. */
static void end_thread(Hub *hub)
{
    const struct timespec until = thread_deadline(LEAVE_SECONDS);
    look(hub);
    (void)pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < hub->wire_count; i++)
        hub->wires[i].tells_leave = true;
    hub->ends = true;
    wake(hub);
    while (!all_sent(hub) && pthread_cond_timedwait(&hub->changed, &hub->lock, &until) == 0)
        continue;
    for (size_t i = 0; i < hub->wire_count; i++)
        hub->wires[i].gone = hub->wires[i].gone || hub_wire_has_output(&hub->wires[i]);
    (void)pthread_mutex_unlock(&hub->lock);
    wake(hub);
    (void)pthread_join(hub->thread, NULL);
}

void hub_close(Hub **hub_ret)
{
    Hub *hub = *hub_ret;
    if (!hub)
        return;
    if (hub->has_thread)
        end_thread(hub);
    for (size_t i = 0; i < hub->wire_count; i++)
        hub_wire_close(&hub->wires[i]);
    if (hub->wake >= 0)
        (void)close(hub->wake);
    (void)pthread_cond_destroy(&hub->changed);
    (void)pthread_mutex_destroy(&hub->lock);
    free(hub->wires);
    free(hub);
    *hub_ret = NULL;
}

bool hub_left(Hub *hub, char text[HOST_RANKS_NAME_MAX])
{
    bool left = false;
    (void)pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < hub->wire_count && !left; i++) {
        left = hub->wires[i].left;
        if (left)
            (void)describe(hub, &hub->wires[i], text);
    }
    (void)pthread_mutex_unlock(&hub->lock);
    return left;
}

/* ---- together ---- */

typedef enum Meaning { MEANING_REDUCE = 1, MEANING_BROADCAST } Meaning;

/* What an operation does with what the hosts send. */
typedef struct Operation {
    Meaning meaning;
    bool sends; /* this host has bytes for the others; not rank 0's, which sends what comes out */
    void *bytes;
    size_t byte_count;
    const RankReduction *reduction; /* NULL: the bytes of the one host that has sent some */
} Operation;

static FshStatus say_lost(const Hub *hub, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_PEER, "%s", hub->loss);
}

/* Waits for a change, or for HUB_LOOK_SECONDS, and looks at this host then. The lock is held. */
static FshStatus wait_for_change(Hub *hub, FshError *error)
{
    const struct timespec until = thread_deadline(HUB_LOOK_SECONDS);
    if (!hub->lost && pthread_cond_timedwait(&hub->changed, &hub->lock, &until) == ETIMEDOUT) {
        (void)pthread_mutex_unlock(&hub->lock);
        look(hub);
        (void)pthread_mutex_lock(&hub->lock);
    }
    return hub->lost ? say_lost(hub, error) : FSH_OK;
}

/* Returns whether a message that has begun is not of this operation. */
static bool is_out_of_step(const Hub *hub, const HubSubject *subject, const Operation *operation)
{
    return subject->operation > 0 &&
           (subject->operation != hub->operation || subject->byte_count != operation->byte_count ||
            subject->meaning != (uint32_t)operation->meaning);
}

/* Looks whether a host that lives has kept this one waiting for too long. Rank 0 waits as long as ranks wait
 * for each other. The others leave it to rank 0 to name who hangs, unless a signal has come and rank 0 has
 * not done so NAME_SECONDS later. The lock is held. */
static void mind_lateness(Hub *hub, const HubWire *wire, double waited)
{
    const bool is_first = hub->place.rank == 0;
    char what[128];
    int signal_number = 0;
    const double most = hub->options.most_late ? hub->options.most_late(hub->options.context, &signal_number)
                                               : COMMUNICATOR_PATIENCE_SECONDS;
    if (waited <= most + (is_first ? 0 : NAME_SECONDS) || (!is_first && !signal_number))
        return;
    (void)snprintf(what, sizeof what, "has %s for %.0f s%s",
                   is_first ? "kept the others waiting" : "not answered", waited,
                   signal_number ? ", and a signal ends the run without it" : ": its host lives, but hangs");
    lose_host(hub, wire, what, signal_number);
}

/* Waits for a message of an operation. The lock is held. */
static FshStatus await_message(Hub *hub, const HubWire *wire, const Operation *operation,
                               HubSubject *subject_ret, FshError *error)
{
    double waited = 0, last = progress_now_seconds();
    FshStatus status = hub->lost ? say_lost(hub, error) : FSH_OK;
    while (!status) {
        const bool whole = hub_wire_has(wire, subject_ret);
        if (is_out_of_step(hub, subject_ret, operation))
            lose_host(hub, wire, "does something else than this one: the hosts are out of step", 0);
        else if (whole)
            return FSH_OK;
        else if (wire->left)
            lose_host(hub, wire, "has ended", 0);
        else
            mind_lateness(hub, wire, waited);
        status = wait_for_change(hub, error);
        waited += passed_since(hub, &last);
    }
    return status;
}

/* Puts out a message once the one before it is sent. The lock is held. */
static FshStatus put(Hub *hub, HubWire *wire, const Operation *operation, bool sends, FshError *error)
{
    const HubSubject subject = {.operation = hub->operation,
                                .meaning = (uint32_t)operation->meaning,
                                .byte_count = (uint32_t)operation->byte_count,
                                .has_bytes = sends};
    FshStatus status = hub->lost ? say_lost(hub, error) : FSH_OK;
    while (!status && !hub_wire_sent(wire))
        status = wait_for_change(hub, error);
    if (!status)
        hub_wire_put(wire, subject, operation->bytes);
    return status;
}

/* Takes the messages of all hosts in their order. */
static FshStatus collect(Hub *hub, const Operation *operation, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < hub->wire_count && !status; i++) {
        HubWire *wire = &hub->wires[i];
        HubSubject subject;
        status = await_message(hub, wire, operation, &subject, error);
        if (!status && operation->reduction)
            operation->reduction->combine(operation->bytes, wire->in, 0,
                                          operation->byte_count / operation->reduction->element_bytes);
        else if (!status && subject.has_bytes)
            memcpy(operation->bytes, wire->in, operation->byte_count);
        if (!status)
            hub_wire_take(wire);
    }
    return status;
}

static FshStatus operate_as_first(Hub *hub, const Operation *operation, FshError *error)
{
    FshStatus status = collect(hub, operation, error);
    for (size_t i = 0; i < hub->wire_count && !status; i++)
        status = put(hub, &hub->wires[i], operation, true, error);
    wake(hub);
    return status;
}

static FshStatus operate_as_other(Hub *hub, const Operation *operation, FshError *error)
{
    HubWire *first = hub->wires;
    HubSubject subject;
    FshStatus status = put(hub, first, operation, operation->sends, error);
    wake(hub);
    if (!status)
        status = await_message(hub, first, operation, &subject, error);
    if (status)
        return status;
    if (subject.has_bytes)
        memcpy(operation->bytes, first->in, operation->byte_count);
    hub_wire_take(first);
    return FSH_OK;
}

static FshStatus operate(Hub *hub, const Operation *operation, FshError *error)
{
    if (operation->byte_count > HUB_PIECE_BYTES)
        return fsh_error_set(error, FSH_ERR_USAGE, "hub: %zu bytes in one piece", operation->byte_count);
    (void)pthread_mutex_lock(&hub->lock);
    hub->operation++;
    FshStatus status = hub->place.rank == 0 ? operate_as_first(hub, operation, error)
                                            : operate_as_other(hub, operation, error);
    (void)pthread_mutex_unlock(&hub->lock);
    return status;
}

FshStatus hub_reduce(Hub *hub, void *values, size_t byte_count, const RankReduction *reduction,
                     FshError *error)
{
    const Operation operation = {.meaning = MEANING_REDUCE,
                                 .sends = true,
                                 .bytes = values,
                                 .byte_count = byte_count,
                                 .reduction = reduction};
    return operate(hub, &operation, error);
}

FshStatus hub_broadcast(Hub *hub, bool is_mine, void *bytes, size_t byte_count, FshError *error)
{
    const Operation operation = {
        .meaning = MEANING_BROADCAST, .sends = is_mine, .bytes = bytes, .byte_count = byte_count};
    return operate(hub, &operation, error);
}
