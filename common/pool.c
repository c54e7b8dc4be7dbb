#include "common/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"

/* The failure of the lowest item; the owner's lock guards it.
 *
 * Items are handed out in ascending order, and one that was handed out is always finished. So when item k
 * fails, all items below k are done or under way, and the lowest failure is the same whatever the number of
 * threads and their speed. */
typedef struct Failure {
    uint64_t item; /* UINT64_MAX: none */
    FshStatus status;
    FshError error;
} Failure;

static void note_failure(Failure *failure, uint64_t item, FshStatus status, const FshError *error)
{
    if (item >= failure->item)
        return;
    failure->item = item;
    failure->status = status;
    failure->error = *error;
    if (error->status != status) /* the callback left no message */
        (void)fsh_error_set(&failure->error, status, "item %llu: %s", (unsigned long long)item,
                            fsh_strerror(status));
}

static FshStatus report(const Failure *failure, bool interrupted, FshError *error)
{
    if (failure->item != UINT64_MAX) {
        if (error)
            *error = failure->error;
        return failure->status;
    }
    if (interrupted)
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
    return FSH_OK;
}

/* Runs body on the calling thread and on threads - 1 others, or fewer if the system grants no more. OpenMP's
 * threads are not used: GNU's wait for each other and for the next parallel region by spinning for some 10
 * ms, which is a quarter of the time of packing 300 photographs and takes cores from other programs. */
static void run_threads(int threads, void *(*body)(void *run), void *run)
{
    size_t started = 0, wanted = (size_t)threads - 1;
    pthread_t *others = wanted ? calloc(wanted, sizeof *others) : NULL;
    while (others && started < wanted && pthread_create(&others[started], NULL, body, run) == 0)
        started++;
    (void)body(run);
    while (started)
        (void)pthread_join(others[--started], NULL);
    free(others);
}

static int threads_for(int jobs, uint64_t count)
{
    if (jobs < 1)
        return 1;
    return count < (uint64_t)jobs ? (count ? (int)count : 1) : jobs;
}

/* ---- no order ---- */

typedef struct Run {
    uint64_t count;
    PoolWork work;
    void *context;
    _Atomic uint64_t next_item;
    atomic_int next_thread;
    atomic_bool stopped, interrupted;
    pthread_mutex_t lock; /* guards failure */
    Failure failure;
} Run;

static void *run_items(void *context)
{
    Run *run = context;
    int thread = atomic_fetch_add(&run->next_thread, 1);
    /* `stopped` is checked before an item is taken, never after: see Failure. */
    while (!atomic_load_explicit(&run->stopped, memory_order_relaxed)) {
        if (interrupt_requested() && atomic_load(&run->next_item) < run->count) {
            atomic_store(&run->interrupted, true);
            break;
        }
        uint64_t item = atomic_fetch_add(&run->next_item, 1);
        if (item >= run->count)
            break;
        FshError error = {0};
        FshStatus status = run->work(item, thread, run->context, &error);
        if (status) {
            (void)pthread_mutex_lock(&run->lock);
            note_failure(&run->failure, item, status, &error);
            (void)pthread_mutex_unlock(&run->lock);
            atomic_store(&run->stopped, true);
        }
    }
    return NULL;
}

FshStatus pool_run(int jobs, uint64_t count, PoolWork work, void *context, FshError *error)
{
    Run run = {.count = count,
               .work = work,
               .context = context,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .failure = {.item = UINT64_MAX}};
    run_threads(threads_for(jobs, count), run_items, &run);
    (void)pthread_mutex_destroy(&run.lock);
    return report(&run.failure, atomic_load(&run.interrupted), error);
}

/* ---- delivered in order ----
 *
 * Each of the items head..next-1 owns the slot item % window. An idle thread looks, under the lock, for the
 * first of: the head to deliver, a reason to leave, an item to take and work on. It waits only while another
 * thread takes, or while every slot is used; in the second case another thread has the head, and will deliver
 * it or find it delivered, and free its slot. A thread that makes a take possible, by ending its own or by
 * freeing a slot, wakes one that waits: so there is always a thread that makes progress, with any number of
 * threads and slots. */

typedef struct OrderedRun {
    const PoolStream *stream; /* take may be NULL: items 0..count-1, with empty slots */
    size_t window, slot_stride;
    unsigned char *slots;

    pthread_mutex_t lock; /* guards everything below; not held while a callback runs */
    pthread_cond_t changed;
    int next_thread;
    uint64_t count;  /* of items; UINT64_MAX until take has found the end */
    uint64_t head;   /* next to deliver */
    uint64_t next;   /* next to take; those below are done or under way */
    bool *ready;     /* [window]: worked on, not delivered */
    bool taking;     /* a thread is taking the item `next` */
    bool delivering; /* a thread is delivering the head */
    bool stopped;    /* hand out no more */
    bool interrupted;
    Failure failure;
} OrderedRun;

static void *slot_of(const OrderedRun *run, uint64_t item)
{
    return run->slots + (size_t)(item % run->window) * run->slot_stride;
}

static bool may_deliver(const OrderedRun *run)
{
    return !run->delivering && run->head < run->next && run->head < run->failure.item &&
           run->ready[run->head % run->window];
}

static bool may_hand_out(OrderedRun *run)
{
    if (run->next == run->count)
        return false;
    if (!run->stopped && interrupt_requested())
        run->stopped = run->interrupted = true;
    return !run->stopped;
}

static bool may_take(const OrderedRun *run)
{
    return !run->taking && run->next - run->head < run->window;
}

/* The functions below are entered and left with the lock held, and release it for the callback. */

static void wake(OrderedRun *run)
{
    if (!may_hand_out(run))
        (void)pthread_cond_broadcast(&run->changed); /* the waiting threads may leave */
    else if (may_take(run))
        (void)pthread_cond_signal(&run->changed);
}

static void stop(OrderedRun *run, uint64_t item, FshStatus status, const FshError *error)
{
    note_failure(&run->failure, item, status, error);
    run->stopped = true;
}

static void deliver_head(OrderedRun *run)
{
    uint64_t item = run->head;
    FshError error = {0};
    run->delivering = true;
    (void)pthread_mutex_unlock(&run->lock);
    FshStatus status = run->stream->deliver(item, slot_of(run, item), run->stream->context, &error);
    (void)pthread_mutex_lock(&run->lock);
    run->delivering = false;
    if (status) {
        stop(run, item, status, &error);
    } else {
        run->ready[item % run->window] = false;
        run->head++;
    }
    wake(run);
}

/* Takes the item `next`, and advances next. Returns true if this thread has it. */
static bool take_next(OrderedRun *run)
{
    uint64_t item = run->next;
    FshError error = {0};
    FshStatus status = FSH_OK;
    bool end = false;
    if (run->stream->take) {
        run->taking = true;
        (void)pthread_mutex_unlock(&run->lock);
        status = run->stream->take(item, slot_of(run, item), &end, run->stream->context, &error);
        (void)pthread_mutex_lock(&run->lock);
        run->taking = false;
    }
    if (status)
        stop(run, item, status, &error);
    else if (end)
        run->count = item;
    else
        run->next++;
    wake(run);
    return !status && !end;
}

/* Works on an item that was taken, even if the run has stopped meanwhile: see Failure. */
static void work_on(OrderedRun *run, uint64_t item, int thread)
{
    FshError error = {0};
    (void)pthread_mutex_unlock(&run->lock);
    FshStatus status = run->stream->work(item, thread, slot_of(run, item), run->stream->context, &error);
    (void)pthread_mutex_lock(&run->lock);
    run->ready[item % run->window] = true;
    if (status) {
        stop(run, item, status, &error);
        wake(run);
    }
}

static void *run_ordered_items(void *context)
{
    OrderedRun *run = context;
    (void)pthread_mutex_lock(&run->lock);
    int thread = run->next_thread++;
    for (;;) {
        uint64_t item = run->next;
        if (may_deliver(run))
            deliver_head(run);
        else if (!may_hand_out(run))
            break; /* items under way are delivered by their threads */
        else if (!may_take(run))
            (void)pthread_cond_wait(&run->changed, &run->lock);
        else if (take_next(run))
            work_on(run, item, thread);
    }
    (void)pthread_mutex_unlock(&run->lock);
    return NULL;
}

static FshStatus run_in_order(int threads, const PoolStream *stream, uint64_t count, FshError *error)
{
    enum { SLOT_ALIGNMENT = 64 }; /* two threads write neighbouring slots */
    FshStatus status = FSH_OK;
    size_t window = stream->window ? stream->window : 4 * (size_t)threads;
    if (window > count)
        window = count ? (size_t)count : 1;

    OrderedRun run = {.stream = stream,
                      .count = count,
                      .window = window,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER,
                      .failure = {.item = UINT64_MAX}};
    if (stream->slot_bytes <= SIZE_MAX / 2) {
        run.slot_stride = (stream->slot_bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
        if (!run.slot_stride)
            run.slot_stride = SLOT_ALIGNMENT;
        if (window <= SIZE_MAX / 2 / run.slot_stride)
            run.slots = aligned_alloc(SLOT_ALIGNMENT, window * run.slot_stride);
    }
    if (run.slots) /* window was checked */
        run.ready = calloc(window, sizeof *run.ready);
    if (!run.slots || !run.ready) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu slots of %zu bytes", window,
                               stream->slot_bytes);
        goto done;
    }
    memset(run.slots, 0, window * run.slot_stride);
    run_threads(threads, run_ordered_items, &run);
    for (size_t i = 0; stream->slot_free && i < window; i++)
        stream->slot_free(run.slots + i * run.slot_stride);
    /* A signal that came while the end was found has interrupted nothing. */
    status = report(&run.failure, run.interrupted && run.next != run.count, error);
done:
    (void)pthread_cond_destroy(&run.changed);
    (void)pthread_mutex_destroy(&run.lock);
    free(run.ready);
    free(run.slots);
    return status;
}

FshStatus pool_run_ordered(int jobs, uint64_t count, size_t window, size_t slot_bytes, PoolOrderedWork work,
                           PoolDeliver deliver, void (*slot_free)(void *slot), void *context, FshError *error)
{
    const PoolStream stream = {.work = work,
                               .deliver = deliver,
                               .slot_free = slot_free,
                               .window = window,
                               .slot_bytes = slot_bytes,
                               .context = context};
    return run_in_order(threads_for(jobs, count), &stream, count, error);
}

FshStatus pool_run_stream(int jobs, const PoolStream *stream, FshError *error)
{
    return run_in_order(threads_for(jobs, UINT64_MAX), stream, UINT64_MAX, error);
}
