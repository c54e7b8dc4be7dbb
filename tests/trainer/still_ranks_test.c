/* Ranks that stand still: a stopped process is lost, a slow one is waited for, and a signal is heeded
 * meanwhile. */
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/ranks/communicator.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"

enum { WORLD = 3 };

static Communicator *open_with(const RankPlace *place, double timeout_seconds)
{
    Communicator *communicator = NULL;
    const CommunicatorOptions options = {.timeout_seconds = timeout_seconds};
    interrupt_install();
    return communicator_open(&communicator, place, &options, NULL) || rank_process_meet(communicator, NULL)
               ? NULL
               : communicator;
}

/* ---- a rank that is stopped ---- */

static int wait_for_the_stopped(const RankPlace *place)
{
    FshError error = {0}, later = {0};
    Communicator *communicator = open_with(place, 2);
    if (!communicator)
        return 1;
    if (place->rank == 1)
        (void)raise(SIGSTOP);
    const double start = progress_now_seconds();
    if (rank_process_meet(communicator, &error) != FSH_ERR_PEER || progress_now_seconds() - start > 20)
        return 2;
    if (!strstr(error.message, "rank 1 of 3 (host ") || !strstr(error.message, "has not moved for 2 s"))
        return 3;
    if (!communicator_is_broken(communicator) || communicator_lost_to(communicator) ||
        communicator_check(communicator, &later) != FSH_ERR_PEER || strcmp(error.message, later.message) != 0)
        return 4;
    communicator_close(&communicator);
    return 0;
}

/* Runs the work, in which rank 1 stops itself, and is let go on when the others have ended. */
static void lose_the_stopped(const char *what, RankWork work)
{
    pid_t children[WORLD];
    rank_processes_start(children, WORLD, what, work);
    rank_process_stopped(children[1]);
    assert_int_equal(rank_process_end(children[0]), 0);
    assert_int_equal(rank_process_end(children[2]), 0);
    assert_int_equal(kill(children[1], SIGCONT), 0);
    assert_int_equal(rank_process_end(children[1]), 0);
}

/* It hears of that itself when it goes on. */
TEST(test_a_stopped_rank_is_lost)
{
    lose_the_stopped("stopped", wait_for_the_stopped);
}

/* Looks from a thread's place, without waiting, as the one that watches NCCL does. */
static int see_the_stopped(const RankPlace *place)
{
    FshError error = {0};
    Communicator *communicator = open_with(place, 2);
    if (!communicator)
        return 1;
    if (place->rank == 1)
        (void)raise(SIGSTOP);
    const double start = progress_now_seconds();
    while (communicator_check_all_there(communicator, &error) == FSH_OK &&
           progress_now_seconds() - start < 20)
        sleep_seconds(0.05);
    const int bad = !strstr(error.message, "rank 1 of 3 (host ") ||
                    !strstr(error.message, "has not moved for 2 s") || !communicator_is_broken(communicator);
    communicator_close(&communicator);
    return bad;
}

TEST(test_a_stopped_rank_is_seen_without_waiting)
{
    lose_the_stopped("seen", see_the_stopped);
}

/* ---- ranks that are only slow ---- */

static int be_slow(const RankPlace *place)
{
    Communicator *communicator = open_with(place, 2);
    if (!communicator)
        return 1;
    if (place->rank == 1)
        sleep_seconds(4);
    const int bad = rank_process_meet(communicator, NULL) != FSH_OK;
    communicator_close(&communicator);
    return bad;
}

TEST(test_a_slow_rank_is_waited_for)
{
    rank_processes_run(WORLD, "slow", be_slow);
}

static int stop_with_the_others(const RankPlace *place)
{
    Communicator *communicator = open_with(place, 2);
    if (!communicator)
        return 1;
    (void)raise(SIGSTOP);
    int bad = 0;
    for (int i = 0; i < 100 && !bad; i++) {
        bad = rank_process_meet(communicator, NULL) != FSH_OK;
        sleep_seconds(0.01);
    }
    communicator_close(&communicator);
    return bad;
}

/* As a batch system suspends a job, or a laptop is closed. The last rank goes on a second after the first. */
TEST(test_ranks_that_were_stopped_together_go_on)
{
    pid_t children[WORLD];
    rank_processes_start(children, WORLD, "together", stop_with_the_others);
    for (int rank = 0; rank < WORLD; rank++)
        rank_process_stopped(children[rank]);
    sleep_seconds(3);
    for (int rank = 0; rank < WORLD; rank++) {
        assert_int_equal(kill(children[rank], SIGCONT), 0);
        sleep_seconds(0.5);
    }
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(rank_process_end(children[rank]), 0);
}

/* ---- signals ---- */

/* Waits for rank 1, which is stopped. Returns 60 if a signal has ended that. */
static int wait_until_signalled(const RankPlace *place)
{
    FshError error = {0};
    Communicator *communicator = open_with(place, 60);
    if (!communicator)
        return 1;
    if (place->rank == 1)
        (void)raise(SIGSTOP);
    FshStatus status = rank_process_meet(communicator, &error);
    const int signal_number = communicator_lost_to(communicator);
    communicator_close(&communicator);
    if (!status)
        return 0;
    return signal_number == SIGTERM && strstr(error.message, "rank 1 of 3 (host ") &&
                   strstr(error.message, "a signal ends the run without it")
               ? 60
               : 2;
}

/* Sends so many signals to the first rank while rank 1 is stopped. Returns the seconds until it has ended;
 * the others must end as it does. */
static double seconds_until_heeded(const char *what, int signals)
{
    pid_t children[WORLD];
    rank_processes_start(children, WORLD, what, wait_until_signalled);
    rank_process_stopped(children[1]);
    const double start = progress_now_seconds();
    for (int i = 0; i < signals; i++) {
        sleep_seconds(0.3);
        assert_int_equal(kill(children[0], SIGTERM), 0);
    }
    assert_int_equal(rank_process_end(children[0]), 60);
    const double took = progress_now_seconds() - start;
    assert_int_equal(rank_process_end(children[2]), 60);
    assert_int_equal(kill(children[1], SIGCONT), 0);
    assert_int_equal(rank_process_end(children[1]), 60);
    return took;
}

TEST(test_a_signal_is_heeded_while_a_rank_is_stopped)
{
    const double once = seconds_until_heeded("signal", 1), twice = seconds_until_heeded("twice", 2);
    assert_true(once > 4 && once < 20);
    assert_true(twice < once); /* a second one is less patient */
}

/* Hangs in rank 1, which beats meanwhile. Returns 60 where two signals have ended that. */
static int wait_for_the_hung(const RankPlace *place)
{
    FshError error = {0};
    Communicator *communicator = open_with(place, 60);
    if (!communicator)
        return 1;
    while (place->rank == 1 && !communicator_is_broken(communicator))
        sleep_seconds(0.01);
    const FshStatus status = rank_process_meet(communicator, &error);
    const int signal_number = communicator_lost_to(communicator);
    communicator_close(&communicator);
    return status == FSH_ERR_PEER && signal_number == SIGTERM &&
                   strstr(error.message, "rank 1 of 3 (host ") &&
                   strstr(error.message, " has kept the others waiting for ")
               ? 60
               : 2;
}

TEST(test_a_second_signal_leaves_a_rank_that_hangs_behind)
{
    pid_t children[WORLD];
    rank_processes_start(children, WORLD, "hung", wait_for_the_hung);
    const double start = progress_now_seconds();
    sleep_seconds(0.5);
    assert_int_equal(kill(children[0], SIGTERM), 0);
    sleep_seconds(0.2);
    assert_int_equal(kill(children[0], SIGTERM), 0);
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(rank_process_end(children[rank]), 60);
    assert_true(progress_now_seconds() - start < 20);
}

/* The ranks can still stop together then. */
TEST(test_a_rank_that_goes_on_after_a_signal_is_waited_for)
{
    pid_t children[WORLD];
    rank_processes_start(children, WORLD, "goes-on", wait_until_signalled);
    rank_process_stopped(children[1]);
    assert_int_equal(kill(children[0], SIGTERM), 0);
    sleep_seconds(1);
    assert_int_equal(kill(children[1], SIGCONT), 0);
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(rank_process_end(children[rank]), 0);
}
