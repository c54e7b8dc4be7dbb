/* What a rank ends with when another one is lost. */
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/session/ranks_agree.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/interrupt.h"

/* Returns whether a failure with that status ends with `wanted`, and tells of the lost rank. */
static bool explains(Communicator *communicator, FshStatus failed, FshStatus wanted)
{
    FshError error = {0};
    (void)fsh_error_set(&error, failed, "its own message");
    return ranks_explain(communicator, failed, &error) == wanted && error.status == wanted &&
           strstr(error.message, "rank 1 of 2 (host ") && strstr(error.message, "; --resume auto goes on");
}

/* Loses rank 1, which is killed. A failure of a library or of the system is a consequence; the launcher is to
 * hear of the cause. */
static int lose_one(const RankPlace *place)
{
    Communicator *communicator = NULL;
    FshError error = {0};
    if (communicator_open(&communicator, place, NULL, NULL) ||
        ranks_explain(communicator, FSH_ERR_LIBRARY, &error) != FSH_ERR_LIBRARY || *error.message)
        return 1;
    if (rank_process_meet(communicator, NULL))
        return 2;
    if (place->rank == 1)
        (void)raise(SIGKILL);
    const int bad = rank_process_meet(communicator, NULL) != FSH_ERR_PEER ||
                    !explains(communicator, FSH_ERR_LIBRARY, FSH_ERR_PEER) ||
                    !explains(communicator, FSH_ERR_SYSTEM, FSH_ERR_PEER) ||
                    !explains(communicator, FSH_ERR_PEER, FSH_ERR_PEER) ||
                    !explains(communicator, FSH_ERR_NO_SPACE, FSH_ERR_NO_SPACE) || interrupt_signal();
    communicator_close(&communicator);
    return bad ? 3 : 0;
}

TEST(test_a_lost_rank_is_the_cause_of_what_a_library_says)
{
    pid_t children[2];
    rank_processes_start(children, 2, "cause", lose_one);
    assert_int_equal(rank_process_end(children[0]), 0);
    assert_int_equal(rank_process_end(children[1]), 128 + SIGKILL);
}

/* Gives rank 1 up, which stands still, because of a signal to rank 0: that is how both end. */
static int stop_one(const RankPlace *place)
{
    Communicator *communicator = NULL;
    const CommunicatorOptions options = {.timeout_seconds = 2};
    if (communicator_open(&communicator, place, &options, NULL) || rank_process_meet(communicator, NULL))
        return 1;
    if (place->rank == 1)
        (void)raise(SIGSTOP);
    else
        interrupt_simulate(SIGTERM);
    const int bad = rank_process_meet(communicator, NULL) != FSH_ERR_PEER ||
                    !explains(communicator, FSH_ERR_PEER, FSH_ERR_INTERRUPTED) ||
                    interrupt_signal() != SIGTERM;
    communicator_close(&communicator);
    return bad ? 2 : 0;
}

TEST(test_a_signal_that_has_ended_the_wait_is_that_of_all)
{
    pid_t children[2];
    rank_processes_start(children, 2, "all", stop_one);
    rank_process_stopped(children[1]);
    assert_int_equal(rank_process_end(children[0]), 0);
    assert_int_equal(kill(children[1], SIGCONT), 0);
    assert_int_equal(rank_process_end(children[1]), 0);
}
