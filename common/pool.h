/* pool.h - one task for each item, over OpenMP threads, with results in order where they must be.
 *
 * pool_run: items 0..count-1 are handed out one at a time to `jobs` threads; no order is promised.
 * pool_run_ordered: work() runs on any thread and fills its slot; deliver() is called for 0, 1, 2, … in this order, one
 * call at a time. At most `window` slots exist, so memory is bounded by jobs and not by count. This is how fpack
 * writes the same bytes whatever the number of threads.
 *
 * All stop early when interrupt_requested(), returning FSH_ERR_INTERRUPTED, or when a callback fails. The first
 * failure's message is the one returned. An item that fails in the user's sense (a bad image) is no failure here: the
 * callback notes it and returns FSH_OK. */
#ifndef FSHARD_COMMON_POOL_H
#define FSHARD_COMMON_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

/* thread: 0..jobs-1, so that each thread can have its own decoder. */
typedef FshStatus (*PoolWork)(uint64_t item, int thread, void *context, FshError *error);

FshStatus pool_run(int jobs, uint64_t count, PoolWork work, void *context, FshError *error);

/* slot: the memory of this item, slot_bytes long, zeroed once at the start and reused by later items without clearing,
 * so that buffers in it live on. */
typedef FshStatus (*PoolOrderedWork)(uint64_t item, int thread, void *slot, void *context, FshError *error);
typedef FshStatus (*PoolDeliver)(uint64_t item, void *slot, void *context, FshError *error);

/* window: slots, at least jobs; 0 chooses 4 * jobs. slot_free is called on each slot at the end; may be NULL. */
FshStatus pool_run_ordered(int jobs, uint64_t count, size_t window, size_t slot_bytes, PoolOrderedWork work,
                           PoolDeliver deliver, void (*slot_free)(void *slot), void *context, FshError *error);

#endif
