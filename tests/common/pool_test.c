#include "common/pool.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "common/random.h"
#include "tests/support/support.h"

enum { ITEMS_MAX = 400, NEVER = ITEMS_MAX + 1 };

/* What a run is told to do, and what it did. */
typedef struct Trial {
    uint64_t fail_at, deliver_fail_at, interrupt_at; /* NEVER: not */
    uint64_t take_fail_at, end_at;                   /* of a stream; interrupt_take_at: while it is taken */
    uint64_t interrupt_take_at;
    /* Plain: take and deliver promise one call at a time each, each seeing the one before. */
    uint64_t taken, takes;
    uint64_t delivered, sum;
    atomic_int worked[ITEMS_MAX];
    atomic_int by_thread[16];
    atomic_int working_now, working_most, taking_now, delivering_now;
    atomic_int freed, delivered_before_take;
    bool sleepy; /* each item takes another while */
    atomic_bool out_of_order, overlapping, wrong_slot, ended, taken_after_the_end;
} Trial;

/* What a slot keeps from item to item. */
typedef struct Slot {
    uint64_t value;
    uint64_t uses;
    char *buffer; /* allocated once, freed by free_slot */
} Slot;

static void init_trial(Trial *trial)
{
    memset(trial, 0, sizeof *trial);
    trial->fail_at = trial->deliver_fail_at = trial->interrupt_at = NEVER;
    trial->take_fail_at = trial->end_at = trial->interrupt_take_at = NEVER;
}

static void nap(uint64_t item, uint64_t salt)
{
    sleep_seconds((double)(random_stream(item, salt) % 200) * 1e-6);
}

static FshStatus do_item(Trial *trial, uint64_t item, int thread, FshError *error)
{
    int now = atomic_fetch_add(&trial->working_now, 1) + 1;
    int most = atomic_load(&trial->working_most);
    while (now > most && !atomic_compare_exchange_weak(&trial->working_most, &most, now))
        ;
    atomic_fetch_add(&trial->worked[item], 1);
    atomic_fetch_add(&trial->by_thread[thread], 1);
    if (trial->sleepy)
        nap(item, 1);
    if (item == trial->interrupt_at)
        interrupt_simulate(SIGINT);
    atomic_fetch_sub(&trial->working_now, 1);
    if (item >= trial->fail_at) /* and those after it: the lowest must win */
        return fsh_error_set(error, FSH_ERR_CORRUPT, "item %llu is bad", (unsigned long long)item);
    return FSH_OK;
}

static FshStatus work(uint64_t item, int thread, void *context, FshError *error)
{
    return do_item(context, item, thread, error);
}

static FshStatus ordered_work(uint64_t item, int thread, void *memory, void *context, FshError *error)
{
    Slot *slot = memory;
    slot->value = item * item;
    slot->uses++;
    if (!slot->buffer)
        slot->buffer = malloc(16);
    return do_item(context, item, thread, error);
}

static FshStatus deliver(uint64_t item, void *memory, void *context, FshError *error)
{
    Trial *trial = context;
    const Slot *slot = memory;
    if (atomic_fetch_add(&trial->delivering_now, 1))
        trial->overlapping = true;
    trial->out_of_order = trial->out_of_order || item != trial->delivered;
    trial->wrong_slot = trial->wrong_slot || slot->value != item * item;
    if (trial->sleepy)
        nap(item, 2);
    atomic_fetch_sub(&trial->delivering_now, 1);
    if (item == trial->deliver_fail_at)
        return fsh_error_set(error, FSH_ERR_NO_SPACE, "cannot deliver %llu", (unsigned long long)item);
    trial->delivered++;
    trial->sum += slot->value;
    return FSH_OK;
}

static _Thread_local Trial *freeing;

static void free_slot(void *memory)
{
    Slot *slot = memory;
    free(slot->buffer);
    atomic_fetch_add(&freeing->freed, 1);
}

static FshStatus run_ordered(Trial *trial, int jobs, uint64_t count, size_t window, FshError *error)
{
    freeing = trial;
    return pool_run_ordered(jobs, count, window, sizeof(Slot), ordered_work, deliver, free_slot, trial,
                            error);
}

TEST(test_every_item_is_worked_on_once)
{
    static const int jobs[] = {1, 2, 3, 8, 16};
    static const uint64_t counts[] = {0, 1, 2, 7, 100};
    for (size_t i = 0; i < 25; i++) {
        Trial trial;
        FshError error = {0};
        init_trial(&trial);
        trial.sleepy = i % 2;
        uint64_t count = counts[i % 5];
        assert_ok(pool_run(jobs[i / 5], count, work, &trial, &error), &error);
        for (uint64_t item = 0; item < ITEMS_MAX; item++)
            assert_int_equal(trial.worked[item], item < count);
        int by_threads = 0;
        for (int thread = 0; thread < jobs[i / 5]; thread++)
            by_threads += trial.by_thread[thread];
        assert_int_equal(by_threads, count);
        assert_true(trial.working_most <= jobs[i / 5]);
    }
}

TEST(test_threads_work_at_the_same_time)
{
    Trial trial;
    init_trial(&trial);
    trial.sleepy = true;
    assert_int_equal(pool_run(8, 200, work, &trial, NULL), FSH_OK);
    assert_true(trial.working_most > 1);
    init_trial(&trial);
    trial.sleepy = true;
    assert_int_equal(run_ordered(&trial, 8, 200, 0, NULL), FSH_OK);
    assert_true(trial.working_most > 1);
}

TEST(test_the_lowest_failure_is_returned)
{
    for (uint64_t i = 0; i < 60; i++) {
        Trial trial;
        FshError error = {0};
        char expected[64];
        uint64_t fail_at = random_stream(i, 3) % 50;
        (void)snprintf(expected, sizeof expected, "item %llu is bad", (unsigned long long)fail_at);
        init_trial(&trial);
        trial.sleepy = true;
        trial.fail_at = fail_at;
        assert_int_equal(pool_run((int)(1 + i % 9), ITEMS_MAX, work, &trial, &error), FSH_ERR_CORRUPT);
        assert_int_equal(error.status, FSH_ERR_CORRUPT);
        assert_string_equal(error.message, expected);
        for (uint64_t item = 0; item <= fail_at; item++)
            assert_int_equal(trial.worked[item], 1);
        assert_int_equal(trial.worked[ITEMS_MAX - 1], 0); /* it stopped */
    }
}

/* ---- streams ---- */

static FshStatus take(uint64_t item, void *memory, bool *end_ret, void *context, FshError *error)
{
    Trial *trial = context;
    Slot *slot = memory;
    if (atomic_fetch_add(&trial->taking_now, 1))
        trial->overlapping = true;
    trial->takes++;
    trial->out_of_order = trial->out_of_order || item != trial->taken;
    trial->taken_after_the_end = trial->taken_after_the_end || trial->ended;
    if (trial->sleepy)
        nap(item, 3);
    if (item == trial->interrupt_take_at) {
        interrupt_simulate(SIGINT);
        sleep_seconds(0.005); /* the others see it before the take is done */
    }
    atomic_fetch_sub(&trial->taking_now, 1);
    if (item == trial->take_fail_at)
        return fsh_error_set(error, FSH_ERR_LIBRARY, "cannot take %llu", (unsigned long long)item);
    if (item == trial->end_at) {
        trial->ended = true;
        *end_ret = true;
        return FSH_OK;
    }
    slot->value = item + 1;
    trial->taken++;
    return FSH_OK;
}

/* Works on an item as ordered_work does, and notes where take has not filled the slot. */
static FshStatus stream_work(uint64_t item, int thread, void *memory, void *context, FshError *error)
{
    Trial *trial = context;
    Slot *slot = memory;
    if (slot->value != item + 1)
        trial->wrong_slot = true; /* a race only when the test fails */
    return ordered_work(item, thread, memory, context, error);
}

static FshStatus run_stream(Trial *trial, int jobs, size_t window, FshError *error)
{
    freeing = trial;
    const PoolStream stream = {.take = take,
                               .work = stream_work,
                               .deliver = deliver,
                               .slot_free = free_slot,
                               .window = window,
                               .slot_bytes = sizeof(Slot),
                               .context = trial};
    return pool_run_stream(jobs, &stream, error);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* As delivery_is_in_order, with an end that is found on the way, and three callbacks that can fail. */
TEST(test_a_stream_is_taken_and_delivered_in_order_whatever_the_timing)
{
    Random random;
    random_start(&random, 2027, 0);
    for (int round = 0; round < 600; round++) {
        Trial trial;
        FshError error = {0};
        init_trial(&trial);
        int jobs = 1 + (int)random_below(&random, 12);
        uint64_t window = random_below(&random, 30);
        trial.end_at = random_below(&random, 60);
        trial.sleepy = random_below(&random, 4) != 0;
        if (random_below(&random, 3) == 0)
            trial.fail_at = random_below(&random, 60);
        if (random_below(&random, 3) == 0)
            trial.take_fail_at = random_below(&random, 60);
        if (random_below(&random, 3) == 0)
            trial.deliver_fail_at = random_below(&random, 60);
        uint64_t end = least(least(trial.fail_at, trial.take_fail_at), trial.deliver_fail_at);

        FshStatus status = run_stream(&trial, jobs, window, &error);
        assert_false(trial.out_of_order || trial.overlapping || trial.wrong_slot ||
                     trial.taken_after_the_end);
        /* A take fails at the end's item too, where it would have found the end. */
        if (end < trial.end_at || (end == trial.end_at && end == trial.take_fail_at)) {
            FshStatus expected_status = FSH_ERR_LIBRARY;
            const char *form = "cannot take %llu";
            if (end != trial.take_fail_at) {
                bool by_work = end == trial.fail_at;
                expected_status = by_work ? FSH_ERR_CORRUPT : FSH_ERR_NO_SPACE;
                form = by_work ? "item %llu is bad" : "cannot deliver %llu";
            }
            char expected[64];
            (void)snprintf(expected, sizeof expected, form, (unsigned long long)end);
            assert_int_equal(status, expected_status);
            assert_string_equal(error.message, expected);
            assert_int_equal(trial.delivered, end);
        } else {
            assert_ok(status, &error);
            assert_int_equal(trial.delivered, trial.end_at);
            assert_int_equal(trial.takes, trial.end_at + 1);
        }
        for (uint64_t item = 0; item < ITEMS_MAX; item++)
            assert_int_equal(trial.worked[item], item < trial.taken); /* what was taken is worked on */
        assert_int_equal(trial.freed, window ? window : 4 * (uint64_t)jobs);
    }
}

TEST(test_an_interrupted_stream_delivers_all_that_was_taken)
{
    for (uint64_t i = 0; i < 60; i++) {
        Trial trial;
        FshError error = {0};
        init_trial(&trial);
        trial.sleepy = true;
        trial.end_at = 150;
        if (i % 2)
            trial.interrupt_at = random_stream(i, 5) % 100;
        else
            trial.interrupt_take_at = random_stream(i, 5) % 100;
        FshStatus status = run_stream(&trial, (int)(1 + i % 7), i % 9, &error);
        interrupt_simulate(0);
        assert_int_equal(status, FSH_ERR_INTERRUPTED);
        assert_contains(error.message, "interrupted");
        assert_true(trial.taken > least(trial.interrupt_at, trial.interrupt_take_at) && trial.taken < 150);
        assert_int_equal(trial.delivered, trial.taken);
        for (uint64_t item = 0; item < ITEMS_MAX; item++)
            assert_int_equal(trial.worked[item], item < trial.taken);
    }
}

TEST(test_a_signal_that_comes_as_the_end_is_found_cuts_nothing_off)
{
    for (int jobs = 1; jobs < 6; jobs++) {
        Trial trial;
        FshError error = {0};
        init_trial(&trial);
        trial.sleepy = true;
        trial.end_at = trial.interrupt_take_at = 30;
        FshStatus status = run_stream(&trial, jobs, 0, &error);
        interrupt_simulate(0);
        assert_ok(status, &error);
        assert_int_equal(trial.delivered, 30);
    }
}

/* Takes an item, or sets *end_ret, as `take` does. Item 12 comes late, as from a listing over a network;
 * meanwhile the others work and deliver. */
static FshStatus slow_take(uint64_t item, void *memory, bool *end_ret, void *context, FshError *error)
{
    Trial *trial = context;
    for (int waited = 0; item == 12 && trial->delivered_before_take < 12 && waited < 2000; waited++)
        sleep_seconds(0.005);
    return take(item, memory, end_ret, context, error);
}

static FshStatus counted_deliver(uint64_t item, void *memory, void *context, FshError *error)
{
    Trial *trial = context;
    FshStatus status = deliver(item, memory, context, error);
    atomic_fetch_add(&trial->delivered_before_take, 1);
    return status;
}

TEST(test_a_slow_take_does_not_hold_delivery_back)
{
    Trial trial;
    init_trial(&trial);
    trial.end_at = 20;
    freeing = &trial;
    const PoolStream stream = {.take = slow_take,
                               .work = stream_work,
                               .deliver = counted_deliver,
                               .slot_free = free_slot,
                               .slot_bytes = sizeof(Slot),
                               .context = &trial};
    double start = progress_now_seconds();
    assert_int_equal(pool_run_stream(3, &stream, NULL), FSH_OK);
    assert_true(progress_now_seconds() - start < 9); /* take 12 gives up after 10 seconds */
    assert_int_equal(trial.delivered, 20);
}

static FshStatus fail_silently(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    (void)context;
    (void)error;
    return item == 4 ? FSH_ERR_MISMATCH : FSH_OK;
}

TEST(test_a_failure_without_a_message_gets_one)
{
    FshError error = {0};
    assert_int_equal(pool_run(2, 10, fail_silently, NULL, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "item 4: does not fit the job");
}

/* Many shapes: threads, slots, sizes, failures of either callback, all with random sleeps. */
TEST(test_delivery_is_in_order_whatever_the_timing)
{
    Random random;
    random_start(&random, 2026, 0);
    for (int round = 0; round < 400; round++) {
        Trial trial;
        FshError error = {0};
        init_trial(&trial);
        int jobs = 1 + (int)random_below(&random, 12);
        uint64_t count = random_below(&random, 60), window = random_below(&random, 30);
        trial.sleepy = random_below(&random, 4) != 0;
        if (random_below(&random, 3) == 0)
            trial.fail_at = random_below(&random, 60);
        if (random_below(&random, 3) == 0)
            trial.deliver_fail_at = random_below(&random, 60);
        uint64_t end = trial.fail_at <= trial.deliver_fail_at ? trial.fail_at : trial.deliver_fail_at;

        FshStatus status = run_ordered(&trial, jobs, count, window, &error);
        assert_false(trial.out_of_order || trial.overlapping || trial.wrong_slot);
        if (end < count) {
            bool by_work = end == trial.fail_at;
            char expected[64];
            (void)snprintf(expected, sizeof expected, by_work ? "item %llu is bad" : "cannot deliver %llu",
                           (unsigned long long)end);
            assert_int_equal(status, by_work ? FSH_ERR_CORRUPT : FSH_ERR_NO_SPACE);
            assert_string_equal(error.message, expected);
            assert_int_equal(trial.delivered, end);
        } else {
            assert_ok(status, &error);
            assert_int_equal(trial.delivered, count);
        }
        for (uint64_t item = 0; item < ITEMS_MAX; item++)
            assert_true(trial.worked[item] <= (item < count));
        for (uint64_t item = 0; item < trial.delivered; item++)
            assert_int_equal(trial.worked[item], 1);
    }
}

TEST(test_slots_are_bounded_and_freed_once)
{
    Trial trial;
    init_trial(&trial);
    trial.sleepy = true;
    assert_int_equal(run_ordered(&trial, 4, 300, 5, NULL), FSH_OK);
    assert_int_equal(trial.freed, 5);
    init_trial(&trial);
    assert_int_equal(run_ordered(&trial, 4, 300, 0, NULL), FSH_OK);
    assert_int_equal(trial.freed, 16);
    init_trial(&trial);
    trial.fail_at = 3;
    assert_int_equal(run_ordered(&trial, 4, 300, 8, NULL), FSH_ERR_CORRUPT);
    assert_int_equal(trial.freed, 8);
    init_trial(&trial);
    FshError error = {0};
    assert_int_equal(pool_run_ordered(2, 5, 4, SIZE_MAX - 3, ordered_work, deliver, NULL, &trial, &error),
                     FSH_ERR_MEMORY);
    assert_int_equal(
        pool_run_ordered(2, UINT64_MAX, SIZE_MAX / 32, 64, ordered_work, deliver, NULL, &trial, &error),
        FSH_ERR_MEMORY);
    assert_int_equal(trial.worked[0], 0);
}

/* Works on an item as ordered_work does, slowly on every 20th. The other items fill the window after the slow
 * one, and no slot may be used again before its item is delivered. */
static FshStatus slow_head(uint64_t item, int thread, void *memory, void *context, FshError *error)
{
    Trial *trial = context;
    if (item % 20 == 0)
        sleep_seconds(0.01);
    FshStatus status = ordered_work(item, thread, memory, context, error);
    for (size_t i = 0; item == 0 && i < 16; i++)
        atomic_store(&trial->by_thread[i], 0); /* from here on it tells who went on after the first wait */
    return status;
}

TEST(test_a_slow_item_holds_the_others_back_without_loss)
{
    for (size_t window = 1; window < 12; window++) {
        Trial trial;
        init_trial(&trial);
        trial.sleepy = true;
        freeing = &trial;
        assert_int_equal(
            pool_run_ordered(6, 80, window, sizeof(Slot), slow_head, deliver, free_slot, &trial, NULL),
            FSH_OK);
        assert_false(trial.out_of_order || trial.wrong_slot);
        assert_int_equal(trial.delivered, 80);
        size_t threads = 0;
        for (size_t i = 0; i < 16; i++)
            threads += trial.by_thread[i] > 0;
        if (window > 2)
            assert_true(threads > 1); /* those who waited were woken */
    }
}

TEST(test_an_interrupt_stops_and_delivers_what_was_in_hand)
{
    for (uint64_t i = 0; i < 40; i++) {
        Trial trial;
        FshError error = {0};
        init_trial(&trial);
        trial.sleepy = true;
        trial.interrupt_at = random_stream(i, 4) % 100;
        FshStatus status = i % 2 ? pool_run((int)(1 + i % 7), ITEMS_MAX, work, &trial, &error)
                                 : run_ordered(&trial, (int)(1 + i % 7), ITEMS_MAX, i % 9, &error);
        interrupt_simulate(0);
        assert_int_equal(status, FSH_ERR_INTERRUPTED);
        assert_string_equal(error.message, "interrupted"); /* how to go on is the program's to say */
        uint64_t worked = 0;
        while (worked < ITEMS_MAX && trial.worked[worked])
            worked++;
        assert_true(worked > trial.interrupt_at && worked < ITEMS_MAX);
        for (uint64_t item = worked; item < ITEMS_MAX; item++)
            assert_int_equal(trial.worked[item], 0);
        if (i % 2 == 0)
            assert_int_equal(trial.delivered, worked);
    }
}

TEST(test_an_interrupt_before_the_start_runs_nothing)
{
    Trial trial;
    init_trial(&trial);
    interrupt_simulate(SIGTERM);
    FshStatus plain = pool_run(3, 10, work, &trial, NULL), ordered = run_ordered(&trial, 3, 10, 0, NULL);
    FshStatus nothing = pool_run(3, 0, work, &trial, NULL);
    int signal_seen = interrupt_signal();
    interrupt_simulate(0);
    assert_int_equal(plain, FSH_ERR_INTERRUPTED);
    assert_int_equal(ordered, FSH_ERR_INTERRUPTED);
    assert_int_equal(nothing, FSH_OK);
    assert_int_equal(signal_seen, SIGTERM);
    assert_int_equal(trial.worked[0], 0);
    assert_int_equal(trial.delivered, 0);
}

static FshStatus nested(uint64_t item, int thread, void *context, FshError *error)
{
    (void)item;
    (void)thread;
    Trial *trials = context;
    return run_ordered(&trials[item], 4, 20, 0, error);
}

TEST(test_a_pool_inside_of_a_pool_still_finishes)
{
    static Trial trials[6];
    FshError error = {0};
    for (size_t i = 0; i < 6; i++)
        init_trial(&trials[i]);
    assert_ok(pool_run(3, 6, nested, trials, &error), &error);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(trials[i].delivered, 20);
}
