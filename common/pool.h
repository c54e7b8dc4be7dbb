/* pool.h - one task for each item, over threads, with results in order where they must be.
 *
 * pool_run: items 0..count-1 are handed out one at a time to `jobs` threads; no order is promised.
 * pool_run_ordered: work() runs on any thread and fills its slot; deliver() is called for 0, 1, 2, … in this
 * order, one call at a time. At most `window` slots exist, so memory is bounded by jobs and not by count.
 * This is how fpack writes the same bytes whatever the number of threads.
 * pool_run_stream: the same where nobody knows how many items there are (a walk, a tar): take() gives item
 * 0, 1, 2, … one call at a time, work() runs on any thread, deliver() in order, one call at a time. The
 * thread that takes an item works on it. take() and deliver() may run at the same time, on two threads.
 *
 * All stop handing out items when interrupt_requested(), returning FSH_ERR_INTERRUPTED unless all were
 * handed out (its message says no more than "interrupted": how to go on is the program's to say), or when a
 * callback fails. Items in hand are finished, and, where there is an order, those below the
 * failed one delivered. Of several failures that of the lowest item is returned: status and message do not
 * depend on the number of threads. An item that fails in the user's sense (a bad image) is no failure here:
 * the callback notes it and returns FSH_OK.
 *
 * Memory that one callback wrote is seen by those after it: work by its deliver, deliver by the next deliver,
 * and all by the caller. Works on fewer threads too, where the system grants fewer. A pool inside of another
 * has threads of its own. */
#ifndef FSHARD_COMMON_POOL_H
#define FSHARD_COMMON_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* thread: 0..jobs-1, so that each thread can have its own decoder. */
typedef FshStatus (*PoolWork)(uint64_t item, int thread, void *context, FshError *error);

FshStatus pool_run(int jobs, uint64_t count, PoolWork work, void *context, FshError *error);

/* slot: the memory of this item, slot_bytes long, zeroed once at the start and reused by later items without
 * clearing, so that buffers in it live on. */
typedef FshStatus (*PoolOrderedWork)(uint64_t item, int thread, void *slot, void *context, FshError *error);
typedef FshStatus (*PoolDeliver)(uint64_t item, void *slot, void *context, FshError *error);

/* window: slots; fewer than jobs leave threads idle; 0 chooses 4 * jobs. slot_free is called on each slot at
 * the end, on failure too; may be NULL. Slots are 64-byte aligned. */
FshStatus pool_run_ordered(int jobs, uint64_t count, size_t window, size_t slot_bytes, PoolOrderedWork work,
                           PoolDeliver deliver, void (*slot_free)(void *slot), void *context,
                           FshError *error);

/* Fills the slot with the beginnings of the item, or sets *end_ret: there is none, and take is not called
 * again. */
typedef FshStatus (*PoolTake)(uint64_t item, void *slot, bool *end_ret, void *context, FshError *error);

typedef struct PoolStream {
    PoolTake take; /* not NULL; nor are the next two */
    PoolOrderedWork work;
    PoolDeliver deliver;
    void (*slot_free)(void *slot); /* may be NULL */
    size_t window, slot_bytes;     /* as pool_run_ordered's */
    void *context;
} PoolStream;

/* An item whose take failed counts as failed: those below it are delivered. One that was taken is always
 * worked on, and delivered unless an item up to it failed: who counts in take may count on that. A signal
 * that comes as take finds the end has cut nothing off, and is no failure. About 0.1 microseconds an item on
 * one thread. */
FshStatus pool_run_stream(int jobs, const PoolStream *stream, FshError *error);

#endif
