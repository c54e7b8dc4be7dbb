#include "common/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"

/* The failure of the lowest item, under a lock of the owner.
 *
 * Items are handed out in ascending order, and one that was handed out is always finished. So when item k
 * fails, all items below k are done or in hand, and the lowest failure is the same whatever the number of
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
    if (error->status != status) /* a callback that left no message */
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
    pthread_mutex_t lock; /* over failure */
    Failure failure;
} Run;

static void run_items(Run *run)
{
    int thread = atomic_fetch_add(&run->next_thread, 1);
    /* Stopping is looked at before an item is taken, never after: see Failure. */
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
}

FshStatus pool_run(int jobs, uint64_t count, PoolWork work, void *context, FshError *error)
{
    Run run = {.count = count,
               .work = work,
               .context = context,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .failure = {.item = UINT64_MAX}};
#pragma omp parallel num_threads(threads_for(jobs, count))
    run_items(&run);
    (void)pthread_mutex_destroy(&run.lock);
    return report(&run.failure, atomic_load(&run.interrupted), error);
}

/* ---- delivered in order ----
 *
 * Items head..next-1 each own the slot item % window. A thread that has nothing in hand looks, under the
 * lock, for the first of: the head to deliver, an item to work on, a reason to leave; it waits only while
 * every slot is taken. Then the head is in the hands of another thread, which will deliver it or find it
 * delivered, and free its slot: there is always a thread that moves, with any number of threads and slots. */

typedef struct OrderedRun {
    uint64_t count;
    size_t window, slot_stride;
    unsigned char *slots;
    PoolOrderedWork work;
    PoolDeliver deliver;
    void *context;

    pthread_mutex_t lock; /* over all below; not held while a callback runs */
    pthread_cond_t slot_freed;
    int next_thread;
    uint64_t head;   /* next to deliver */
    uint64_t next;   /* next to work on */
    bool *ready;     /* window of them: worked on, not delivered */
    bool delivering; /* a thread is at the head */
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

/* Both are entered and left with the lock held, and let it go for the callback. */
static void deliver_head(OrderedRun *run)
{
    uint64_t item = run->head;
    FshError error = {0};
    run->delivering = true;
    (void)pthread_mutex_unlock(&run->lock);
    FshStatus status = run->deliver(item, slot_of(run, item), run->context, &error);
    (void)pthread_mutex_lock(&run->lock);
    run->delivering = false;
    if (status) {
        note_failure(&run->failure, item, status, &error);
        run->stopped = true;
    } else {
        run->ready[item % run->window] = false;
        run->head++;
    }
    if (may_hand_out(run))
        (void)pthread_cond_signal(&run->slot_freed);
    else
        (void)pthread_cond_broadcast(&run->slot_freed); /* those who wait may leave */
}

static void work_on_next(OrderedRun *run, int thread)
{
    uint64_t item = run->next++;
    FshError error = {0};
    (void)pthread_mutex_unlock(&run->lock);
    FshStatus status = run->work(item, thread, slot_of(run, item), run->context, &error);
    (void)pthread_mutex_lock(&run->lock);
    run->ready[item % run->window] = true;
    if (status) {
        note_failure(&run->failure, item, status, &error);
        run->stopped = true;
        (void)pthread_cond_broadcast(&run->slot_freed);
    }
}

static void run_ordered_items(OrderedRun *run)
{
    (void)pthread_mutex_lock(&run->lock);
    int thread = run->next_thread++;
    for (;;) {
        if (may_deliver(run))
            deliver_head(run);
        else if (!may_hand_out(run))
            break; /* what is still in hand is delivered by those who have it */
        else if (run->next - run->head < run->window)
            work_on_next(run, thread);
        else
            (void)pthread_cond_wait(&run->slot_freed, &run->lock);
    }
    (void)pthread_mutex_unlock(&run->lock);
}

FshStatus pool_run_ordered(int jobs, uint64_t count, size_t window, size_t slot_bytes, PoolOrderedWork work,
                           PoolDeliver deliver, void (*slot_free)(void *slot), void *context, FshError *error)
{
    enum { SLOT_ALIGNMENT = 64 }; /* two threads write neighbouring slots */
    FshStatus status = FSH_OK;
    int threads = threads_for(jobs, count);
    if (!window)
        window = 4 * (size_t)threads;
    if (window > count)
        window = count ? (size_t)count : 1;

    OrderedRun run = {.count = count,
                      .window = window,
                      .work = work,
                      .deliver = deliver,
                      .context = context,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .slot_freed = PTHREAD_COND_INITIALIZER,
                      .failure = {.item = UINT64_MAX}};
    if (slot_bytes <= SIZE_MAX / 2) {
        run.slot_stride = (slot_bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
        if (!run.slot_stride)
            run.slot_stride = SLOT_ALIGNMENT;
        if (window <= SIZE_MAX / 2 / run.slot_stride)
            run.slots = aligned_alloc(SLOT_ALIGNMENT, window * run.slot_stride);
    }
    if (run.slots) /* so that the window is no wild number */
        run.ready = calloc(window, sizeof *run.ready);
    if (!run.slots || !run.ready) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %zu slots of %zu bytes", window,
                               slot_bytes);
        goto done;
    }
    memset(run.slots, 0, window * run.slot_stride);
#pragma omp parallel num_threads(threads)
    run_ordered_items(&run);
    for (size_t i = 0; slot_free && i < window; i++)
        slot_free(run.slots + i * run.slot_stride);
    status = report(&run.failure, run.interrupted, error);
done:
    (void)pthread_cond_destroy(&run.slot_freed);
    (void)pthread_mutex_destroy(&run.lock);
    free(run.ready);
    free(run.slots);
    return status;
}
