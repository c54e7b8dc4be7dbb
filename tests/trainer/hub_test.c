/* Hosts that have met over TCP: what they combine, and what each hears when one of them goes. The hosts are
 * processes of this machine. */
#include "tests/support/support.h"
#include "tests/trainer/hub_hosts.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/interrupt.h"
#include "common/progress.h"

/* ---- together ---- */

TEST(test_hosts_combine_what_they_have)
{
    begin();
    for (uint64_t hosts = 2; hosts <= HOSTS_MAX; hosts++)
        run_hosts(hosts, combine);
}

/* Adds values whose sum depends on the order: 1 is lost beside 1e8 in f32, unless 1e8 - 1e8 comes first. */
static int add_in_order(const RankPlace *place)
{
    static const float of_ranks[] = {1e8F, -1e8F, 1};
    float value = of_ranks[place->rank];
    Hub *hub = open_hub(place);
    const int bad = !hub || hub_reduce(hub, &value, sizeof value, &sum_f32, NULL) || value != 1;
    hub_close(&hub);
    return bad;
}

TEST(test_hosts_are_added_in_the_order_of_their_ranks)
{
    begin();
    for (int i = 0; i < 5; i++)
        run_hosts(3, add_in_order);
}

static int differ(const RankPlace *place)
{
    char bytes[16] = {0};
    Hub *hub = open_hub(place);
    FshError error = {0};
    const FshStatus status =
        hub ? hub_broadcast(hub, place->rank == 0, bytes, place->rank == 0 ? 8 : 16, &error) : FSH_OK;
    (void)snprintf(report->message[place->rank], sizeof report->message[0], "%s", error.message);
    hub_close(&hub);
    return status != FSH_ERR_PEER;
}

TEST(test_hosts_that_do_different_things_are_told)
{
    begin();
    run_hosts(2, differ);
    assert_contains(report->message[1], "out of step");
    assert_contains(report->message[0], "out of step");
}

/* ---- ends ---- */

TEST(test_all_hosts_hear_of_one_that_is_killed)
{
    for (int victim = 0; victim < 3; victim++) {
        pid_t processes[3];
        char name[64];
        begin();
        start_hosts(processes, 3, test_free_port(), work_on);
        wait_until_ready(3);
        (void)kill(processes[victim], SIGKILL);
        const double start = progress_now_seconds();
        (void)snprintf(name, sizeof name, "rank %d of 3 (host ", victim);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(rank_process_end(processes[i]), i == victim ? 128 + SIGKILL : 0);
            if (i != victim) {
                expect_message(i, FSH_ERR_PEER, name);
                assert_contains(report->message[i], "has ended");
            }
        }
        assert_true(progress_now_seconds() - start < 5);
    }
}

TEST(test_all_hosts_hear_of_one_that_is_frozen)
{
    pid_t processes[3];
    begin();
    options.timeout_seconds = 2;
    start_hosts(processes, 3, test_free_port(), work_on);
    wait_until_ready(3);
    (void)kill(processes[1], SIGSTOP);
    assert_int_equal(rank_process_end(processes[0]), 0);
    assert_int_equal(rank_process_end(processes[2]), 0);
    (void)kill(processes[1], SIGKILL);
    (void)rank_process_end(processes[1]);
    expect_message(0, FSH_ERR_PEER, "rank 1 of 3 (host ");
    expect_message(0, FSH_ERR_PEER, "has not been heard of for 2 s");
    expect_message(2, FSH_ERR_PEER, "has not been heard of for 2 s");
}

/* Combines large values with the others until the test has set lost[0], and then some more. */
static int combine_on(const RankPlace *place)
{
    enum { BYTES = HUB_PIECE_BYTES, AFTER = 20 };
    uint64_t *values = calloc(1, BYTES);
    Hub *hub = open_hub(place);
    FshError error = {0};
    FshStatus status = hub && values ? FSH_OK : FSH_ERR_USAGE;
    uint64_t done = 0;
    for (int after = 0; !status && after<AFTER; after += done> 0) {
        done = report->lost[0];
        status = hub_reduce(hub, values, BYTES, &max_u64, &error);
        if (!status)
            status = hub_broadcast(hub, place->rank == 0, &done, sizeof done, &error);
    }
    (void)snprintf(report->message[place->rank], sizeof report->message[0], "%s", error.message);
    hub_close(&hub);
    free(values);
    return status != FSH_OK;
}

/* As a batch system suspends a job. One host goes on earlier than the other. */
TEST(test_hosts_that_were_stopped_together_go_on)
{
    pid_t processes[2];
    begin();
    options.timeout_seconds = 2;
    start_hosts(processes, 2, test_free_port(), combine_on);
    wait_until_ready(2);
    for (int i = 0; i < 2; i++)
        (void)kill(processes[i], SIGSTOP);
    sleep_seconds(3);
    for (int i = 0; i < 2; i++) {
        (void)kill(processes[i], SIGCONT);
        sleep_seconds(0.3);
    }
    report->lost[0] = true;
    for (int i = 0; i < 2; i++)
        if (rank_process_end(processes[i]) != 0)
            fail_msg("host %d: %s", i, report->message[i]);
}

static int meet_after_a_rest(const RankPlace *place)
{
    options.timeout_seconds = place->rank == 0 ? 0.7 : 60;
    Hub *hub = open_hub(place);
    FshError error = {0};
    sleep_seconds(2);
    uint64_t value = 0;
    const int bad = !hub || hub_reduce(hub, &value, sizeof value, &max_u64, &error) != FSH_OK;
    if (error.message[0])
        (void)snprintf(report->message[place->rank], sizeof report->message[0], "%s", error.message);
    hub_close(&hub);
    return bad;
}

TEST(test_a_host_with_a_short_timeout_hears_one_with_a_long_one)
{
    begin();
    run_hosts(2, meet_after_a_rest);
}

static FshStatus look_at_report(void *context, int *signal_ret, FshError *error)
{
    (void)context;
    *signal_ret = report->lost[2] ? SIGTERM : 0;
    return report->lost[2] ? fsh_error_set(error, FSH_ERR_PEER, "rank 5 of 9 has fallen") : FSH_OK;
}

static void note_signal(void *context, const char *text, int signal_number)
{
    (void)text;
    *(int *)context = signal_number;
}

static int work_and_look(const RankPlace *place)
{
    if (place->rank == 2)
        options.look = look_at_report;
    else
        options.lose = note_signal;
    options.context = &report->signal_number[place->rank];
    return work_on(place);
}

TEST(test_what_one_host_has_lost_all_are_told)
{
    pid_t processes[3];
    begin();
    start_hosts(processes, 3, test_free_port(), work_and_look);
    wait_until_ready(3);
    report->lost[2] = true;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rank_process_end(processes[i]), 0);
        expect_message(i, FSH_ERR_PEER, "rank 5 of 9 has fallen");
        assert_int_equal(report->signal_number[i], i < 2 ? SIGTERM : 0);
    }
}

/* Does nothing until the loss is told: a long step, or a wait for a GPU. */
static Hub *wait_for_loss(const RankPlace *place)
{
    options.lose = note_loss;
    Hub *hub = open_hub(place);
    for (int turn = 0; turn < 3000 && !report->lost[0]; turn++)
        sleep_seconds(0.01);
    return hub;
}

static int work_alone(const RankPlace *place)
{
    char name[HOST_RANKS_NAME_MAX];
    Hub *hub = wait_for_loss(place);
    const int bad = !report->lost[0] || hub_left(hub, name);
    hub_close(&hub);
    return bad;
}

TEST(test_a_host_hears_of_a_loss_while_it_waits_for_nobody)
{
    const uint16_t port = test_free_port();
    begin();
    const RankPlace first = host_place(0, 1, 2, port), second = host_place(1, 1, 2, port);
    const pid_t alone = rank_process_start(&first, work_alone), victim = rank_process_start(&second, work_on);
    wait_until_ready(2);
    (void)kill(victim, SIGKILL);
    (void)rank_process_end(victim);
    assert_int_equal(rank_process_end(alone), 0);
    assert_contains(report->told, "rank 1 of 2 (host ");
}

/* Leaves as soon as one of its ranks has fallen, before it looked. */
static int lose_and_leave(const RankPlace *place)
{
    options.look = look_at_report;
    Hub *hub = open_hub(place);
    const int bad = !hub;
    sleep_seconds(0.5);
    report->lost[2] = true;
    hub_close(&hub);
    return bad;
}

static int hear(const RankPlace *place)
{
    Hub *hub = wait_for_loss(place);
    hub_close(&hub);
    return !report->lost[0];
}

TEST(test_a_host_that_leaves_tells_first_what_it_has_lost)
{
    const uint16_t port = test_free_port();
    begin();
    const RankPlace first = host_place(0, 1, 2, port), second = host_place(1, 1, 2, port);
    const pid_t hearing = rank_process_start(&first, hear),
                leaving = rank_process_start(&second, lose_and_leave);
    assert_int_equal(rank_process_end(leaving), 0);
    assert_int_equal(rank_process_end(hearing), 0);
    assert_contains(report->told, "rank 5 of 9 has fallen");
}

/* The second host leaves at once; the first hears of no loss until it waits for it. */
static int leave_in_order(const RankPlace *place)
{
    char name[HOST_RANKS_NAME_MAX] = "";
    uint64_t value = 0;
    FshError error = {0};
    Hub *hub = open_hub(place);
    if (place->rank == 1 || !hub) {
        hub_close(&hub);
        return 0;
    }
    for (int turn = 0; turn < 3000 && !hub_left(hub, name); turn++)
        sleep_seconds(0.01);
    sleep_seconds(0.3);
    const int bad = report->lost[0] || !strstr(name, "rank 1 of 2 (host ") ||
                    hub_reduce(hub, &value, sizeof value, &max_u64, &error) != FSH_ERR_PEER ||
                    !strstr(error.message, "has ended");
    hub_close(&hub);
    return bad;
}

TEST(test_leaving_is_no_loss_until_somebody_waits)
{
    begin();
    options.lose = note_loss;
    run_hosts(2, leave_in_order);
}
