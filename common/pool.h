/* pool.h - runs a task for each item on several threads, with results in order if needed.
 *
 * pool_run: items 0..count-1 are handed out one at a time to `jobs` threads; no order is promised.
 * pool_run_ordered: work() runs on any thread and fills its slot; deliver() is called for 0, 1, 2, … in this
 * order, one call at a time. At most `window` slots exist, so memory is bounded by jobs and not by count.
 * This is how fpack writes the same bytes whatever the number of threads. pool_run_stream: the same for an
 * unknown number of items (a walk, a tar): take() gives item 0, 1, 2, … one call at a time, work() runs on
 * any thread, deliver() in order, one call at a time. The thread that takes an item works on it. take() and
 * deliver() may run at the same time, on two threads.
 *
 * All stop handing out items when a callback fails, or when interrupt_requested(): then they return
 * FSH_ERR_INTERRUPTED, unless all items were handed out (the message is only "interrupted"; the program says
 * how to go on). Items under way are finished, and in ordered runs those below the failed one are delivered.
 * Of several failures that of the lowest item is returned, so that status and message do not depend on the
 * number of threads. A bad input (a damaged image) is no failure here: the callback notes it and returns
 * FSH_OK.
 *
 * Writes of a callback are visible to later ones: those of work to its deliver, of deliver to the next
 * deliver, and all to the caller. If the system grants fewer threads, fewer are used. A pool within a pool
 * has threads of its own. */
#ifndef FSHARD_COMMON_POOL_H
#define FSHARD_COMMON_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* Works on an item. thread: 0..jobs-1, so that each thread can have its own decoder. */
typedef FshStatus (*PoolWork)(uint64_t item, int thread, void *context, FshError *error);

FshStatus pool_run(int jobs, uint64_t count, PoolWork work, void *context, FshError *error);

/* Works on an item. slot: its memory, slot_bytes long, zeroed once at the beginning and reused by later items
 * without clearing, so that buffers in it are kept. */
typedef FshStatus (*PoolOrderedWork)(uint64_t item, int thread, void *slot, void *context, FshError *error);
typedef FshStatus (*PoolDeliver)(uint64_t item, void *slot, void *context, FshError *error);

/* Runs the items in order. window: the number of slots; fewer than jobs leave threads idle; 0 means 4 * jobs.
 * slot_free (may be NULL) is called on each slot at the end, also on failure. Slots are 64-byte aligned. */
FshStatus pool_run_ordered(int jobs, uint64_t count, size_t window, size_t slot_bytes, PoolOrderedWork work,
                           PoolDeliver deliver, void (*slot_free)(void *slot), void *context,
                           FshError *error);

/* Fills the slot with what the item begins with, or sets *end_ret to true if there is no such item; it is
 * then not called again. */
typedef FshStatus (*PoolTake)(uint64_t item, void *slot, bool *end_ret, void *context, FshError *error);

typedef struct PoolStream {
    PoolTake take; /* take, work and deliver must not be NULL */
    PoolOrderedWork work;
    PoolDeliver deliver;
    void (*slot_free)(void *slot); /* may be NULL */
    size_t window, slot_bytes;     /* as pool_run_ordered's */
    void *context;
} PoolStream;

/* Runs the items of a stream in order. An item whose take failed counts as failed: those below it are
 * delivered. Every item that was taken is worked on, and is delivered unless an item up to it failed, so take
 * may count items. A signal that comes while take finds the end is no failure. Costs about 0.1 microseconds
 * an item on one thread. */
FshStatus pool_run_stream(int jobs, const PoolStream *stream, FshError *error);

#endif
