/* fpack: the bound on bytes in hand, under the pool that it is for. */
#include <stdatomic.h>

#include "common/pool.h"
#include "common/random.h"
#include "tests/support/support.h"
#include "tools/pack/pack_budget.h"

enum { ITEMS = 2000, MOST = 1000, LARGEST = 700 };

typedef struct Trial {
    Budget budget;
    _Atomic uint64_t in_hand, most_in_hand;
    uint64_t delivered, work_fails_at, deliver_fails_at;
} Trial;

static uint64_t bytes_of(uint64_t item)
{
    return random_stream(item, 1) % LARGEST +
           (item % 97 == 0 ? MOST : 0); /* some are larger than all that may be taken */
}

static FshStatus work(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    (void)thread;
    (void)slot;
    Trial *trial = context;
    budget_take(&trial->budget, item, bytes_of(item));
    uint64_t now = atomic_fetch_add(&trial->in_hand, bytes_of(item)) + bytes_of(item);
    uint64_t most = atomic_load(&trial->most_in_hand);
    while (now > most && !atomic_compare_exchange_weak(&trial->most_in_hand, &most, now))
        ;
    if (item != trial->work_fails_at)
        return FSH_OK;
    sleep_seconds(0.001); /* the others come to wait */
    budget_open(&trial->budget);
    return fsh_error_set(error, FSH_ERR_MEMORY, "work");
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    (void)slot;
    Trial *trial = context;
    assert_int_equal(item, trial->delivered);
    if (item == trial->deliver_fails_at) {
        sleep_seconds(0.001);
        budget_open(&trial->budget);
        return fsh_error_set(error, FSH_ERR_NO_SPACE, "deliver");
    }
    trial->delivered++;
    (void)atomic_fetch_sub(&trial->in_hand, bytes_of(item));
    budget_give(&trial->budget, item, bytes_of(item));
    return FSH_OK;
}

static FshStatus run(Trial *trial, int jobs)
{
    FshError error = {0};
    budget_init(&trial->budget, MOST);
    FshStatus status = pool_run_ordered(jobs, ITEMS, 0, 64, work, deliver, NULL, trial, &error);
    budget_destroy(&trial->budget);
    return status;
}

TEST(test_no_more_is_in_hand_than_the_bound_and_one_item)
{
    for (int jobs = 1; jobs <= 8; jobs++) {
        Trial trial = {.work_fails_at = UINT64_MAX, .deliver_fails_at = UINT64_MAX};
        assert_int_equal(run(&trial, jobs), FSH_OK);
        assert_int_equal(trial.delivered, ITEMS);
        assert_in_range(atomic_load(&trial.most_in_hand), LARGEST, 2 * MOST + LARGEST);
    }
}

/* What waits after a failure would wait for ever. */
TEST(test_a_failure_holds_nobody_up)
{
    for (uint64_t item = 0; item < 60; item++) {
        Trial trial = {.work_fails_at = item, .deliver_fails_at = UINT64_MAX};
        assert_int_equal(run(&trial, 4), FSH_ERR_MEMORY);
        assert_int_equal(trial.delivered, item);
        trial = (Trial){.work_fails_at = UINT64_MAX, .deliver_fails_at = item};
        assert_int_equal(run(&trial, 4), FSH_ERR_NO_SPACE);
        assert_int_equal(trial.delivered, item);
    }
}
