/* The number of workers, steered on simulated feeds: it comes within 3 % of the best, and stays there. */
#include "trainer/data/worker_control.h"

#include <math.h>

#include "tests/support/support.h"

/* A consumer, workers and cores. */
typedef struct Feed {
    double cores;
    double take;        /* seconds of the consumer for a sample; with `shares` on all cores together */
    double make;        /* seconds of a worker for a sample */
    double most_makers; /* disk or memory gives no more than so many workers can use; 0: no limit */
    bool shares;        /* consumer and workers use the same cores (training on the CPU) */
    double crowd;       /* part of the consumer's speed that each worker costs which takes part */
} Feed;

/* Returns the samples a second with so many workers. */
static double rate_of(const Feed *feed, int workers)
{
    const double makers = feed->most_makers > 0 ? fmin(workers, feed->most_makers) : workers,
                 making = fmin(makers, feed->cores) / feed->make,
                 taking = (1 - feed->crowd * workers) / feed->take;
    if (!feed->shares)
        return fmin(making, taking);
    /* what workers take of the cores is missing for the consumer, and no core rests while one of both has
     * work */
    return fmin(making, feed->cores / (feed->cores * feed->take + feed->make)) * (1 - feed->crowd * workers);
}

static double best_rate(const Feed *feed, int most)
{
    double best = 0;
    for (int workers = 1; workers <= most; workers++)
        best = fmax(best, rate_of(feed, workers));
    return best;
}

/* Returns a number in -1..1 that follows from the last one. */
static double noise(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return (double)(*state >> 8) / (1 << 23) - 1;
}

static WorkerWindow window_of(const Feed *feed, int workers, double disturbed)
{
    const double rate = rate_of(feed, workers) * (1 + disturbed), seconds = 0.1;
    const double consumer_works = fmin(1, rate * feed->take), workers_work = fmin(workers, rate * feed->make);
    return (WorkerWindow){.seconds = seconds,
                          .consumer_waited = seconds * (1 - consumer_works),
                          .workers_waited = seconds * (workers - workers_work),
                          .longest_pause = seconds / 50,
                          .samples = (uint64_t)nearbyint(rate * seconds)};
}

/* Runs so many windows, and returns the mean rate of the last half. */
static double run(const Feed *feed, WorkerControl *control, int windows, double noisy)
{
    uint32_t state = 1;
    double sum = 0;
    for (int i = 0; i < windows; i++) {
        const WorkerWindow window = window_of(feed, control->active, noisy * noise(&state));
        sum += i < windows / 2 ? 0 : rate_of(feed, control->active);
        (void)worker_control_step(control, &window);
        assert_in_range(control->active, 1, control->most);
    }
    return sum / (windows - windows / 2); /* NOLINT(bugprone-integer-division): windows are whole */
}

static const struct {
    const char *what;
    Feed feed;
    int start, most;
} cases[] = {
    {"a GPU faster than all cores decode", {16, 10e-6, 300e-6, 0, false, 0}, 8, 16},
    {"resnet18 at 128 pixels: 13 of 16 cores", {16, 15.3e-6, 200e-6, 0, false, 0}, 8, 16},
    {"resnet50: two of 16 cores are enough", {16, 57e-6, 100e-6, 0, false, 0}, 15, 16},
    {"recipes: wake-ups of sleeping workers cost", {16, 0.27e-6, 0.3e-6, 0, false, 0.004}, 15, 16},
    {"two cores, a fast GPU", {2, 20e-6, 100e-6, 0, false, 0}, 1, 2},
    {"one worker at most", {1, 20e-6, 100e-6, 0, false, 0}, 1, 1},
    {"a disk that feeds three", {16, 10e-6, 300e-6, 3, false, 0.001}, 15, 16},
    {"memory that feeds six", {8, 10e-6, 300e-6, 6, false, 0}, 4, 8},
    {"a CPU that trains slowly", {8, 2e-3, 200e-6, 0, true, 0}, 4, 8},
    {"a CPU as fast as its decoders", {2, 20e-6, 30e-6, 0, true, 0.01}, 1, 2},
    {"eight cores that decode more than they train", {8, 2e-6, 60e-6, 0, true, 0.001}, 4, 8},
    {"128 cores for one GPU", {128, 15e-6, 200e-6, 0, false, 0}, 127, 128},
};

TEST(test_the_number_of_workers_comes_near_the_best_on_every_feed)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int noisy = 0; noisy < 2; noisy++) {
            WorkerControl control = worker_control_start(cases[i].start, cases[i].most);
            const double rate = run(&cases[i].feed, &control, 200, noisy ? 0.015 : 0),
                         best = best_rate(&cases[i].feed, cases[i].most);
            if (rate < 0.97 * best)
                fail_msg("%s%s: %.0f of %.0f samples/s with %d workers", cases[i].what,
                         noisy ? ", noisy" : "", rate, best, control.active);
        }
}

TEST(test_a_loader_with_too_few_workers_has_enough_within_a_second)
{
    const Feed feed = {16, 15.3e-6, 200e-6, 0, false, 0};
    WorkerControl control = worker_control_start(1, 16);
    (void)run(&feed, &control, 10, 0);
    assert_true(rate_of(&feed, control.active) > 0.97 * best_rate(&feed, 16));
}

TEST(test_workers_that_nobody_waits_for_rest)
{
    const Feed feed = {16, 57e-6, 100e-6, 0, false, 0};
    WorkerControl control = worker_control_start(15, 16);
    (void)run(&feed, &control, 20, 0);
    assert_in_range(control.active, 2, 5);
}

/* Changes that win nothing are tried ever more seldom. */
TEST(test_changes_that_win_nothing_become_rare)
{
    const Feed feed = {16, 10e-6, 300e-6, 3, false, 0.01};
    WorkerControl control = worker_control_start(3, 16);
    int changes = 0;
    for (int i = 0; i < 4000; i++) {
        const WorkerWindow window = window_of(&feed, control.active, 0);
        changes += worker_control_step(&control, &window);
    }
    assert_in_range(changes, 2, 24);
    assert_int_equal(control.active, 3);
}

TEST(test_a_pause_and_a_restart_change_nothing)
{
    const WorkerWindow starving = {.seconds = 0.1, .consumer_waited = 0.09, .samples = 100},
                       paused = {.seconds = 5, .workers_waited = 40, .longest_pause = 4.9, .samples = 1000};
    WorkerControl control = worker_control_start(8, 16);
    assert_false(worker_control_step(&control, &starving)); /* the ring was being filled */
    for (int i = 0; i < 5; i++)
        assert_false(worker_control_step(&control, &paused));
    assert_int_equal(control.active, 8);
    worker_control_restart(&control);
    assert_false(worker_control_step(&control, &starving));
    assert_true(worker_control_step(&control, &starving));
    assert_int_equal(control.active, 16);
}

TEST(test_a_given_number_of_workers_stays)
{
    const Feed feeds[] = {{16, 10e-6, 300e-6, 0, false, 0}};
    WorkerControl control = worker_control_start(5, 5);
    (void)run(&feeds[0], &control, 100, 0);
    assert_int_equal(control.active, 5);
}
