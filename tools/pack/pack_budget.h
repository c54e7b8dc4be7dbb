/* pack_budget.h - a bound in bytes on what threads have in hand, for pool_run_ordered: its window counts
 * slots, and what a slot holds may be a hundred bytes or a hundred million.
 *
 *   work(item):    budget_take(&budget, item, bytes); … on failure: budget_open(&budget);
 *   deliver(item): … budget_give(&budget, item, bytes); on failure: budget_open(&budget);
 *
 * An item waits until its bytes fit beside those taken. The one that is to be delivered next never waits,
 * however large: the others wait for it. So at most `most` bytes are in hand, and one item.
 *
 * Threads: all may be called from any. */
#ifndef FSHARD_PACK_BUDGET_H
#define FSHARD_PACK_BUDGET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Budget {
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t given;
    uint64_t most, taken; /* bytes */
    uint64_t head;        /* the item to be delivered next */
    bool open;            /* nobody waits any more */
} Budget;

void budget_init(Budget *budget, uint64_t most_bytes);
void budget_destroy(Budget *budget);

/* Waits until there is room for an item's bytes. Items are taken in ascending order, as the pool hands them
 * out, and each is given back once, in the same order. */
void budget_take(Budget *budget, uint64_t item, uint64_t bytes);
void budget_give(Budget *budget, uint64_t item, uint64_t bytes);

/* Lets all who wait go on: after a failure, items after the failed one are never delivered. */
void budget_open(Budget *budget);

#endif
