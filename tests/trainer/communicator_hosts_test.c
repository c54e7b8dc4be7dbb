/* Ranks on several hosts, as many on each as its launcher has started there: sums, broadcasts and gathers
 * over all of them, and one loss for all. The hosts are processes of this machine. */
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/ranks/communicator.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"

enum { HOSTS_MAX = 3, RANKS_OF_TEST_MAX = 8, MANY = 300000 }; /* floats: more than a piece */

/* Starts the ranks of hosts that have so many each; 0 ends the list. Returns their number. */
static uint64_t start_hosts(const uint64_t *counts, pid_t *processes, RankWork work)
{
    const uint16_t port = test_free_port();
    uint64_t world = 0, rank = 0;
    for (size_t host = 0; host < HOSTS_MAX && counts[host]; host++)
        world += counts[host];
    for (size_t host = 0; host < HOSTS_MAX && counts[host]; host++)
        for (uint64_t local = 0; local < counts[host]; local++, rank++) {
            RankPlace place = {.rank = rank,
                               .world_size = world,
                               .local_rank = local,
                               .local_world = counts[host],
                               .launcher = "test",
                               .address = "127.0.0.1",
                               .port = port};
            (void)snprintf(place.job, sizeof place.job, "test-%ld-%u-%zu", (long)getpid(), (unsigned)port,
                           host);
            processes[rank] = rank_process_start(&place, work);
        }
    return world;
}

/* Checks a gather and a broadcast from each rank. */
static int exchange_bytes(Communicator *communicator, uint64_t rank, uint64_t world)
{
    uint64_t all[RANKS_OF_TEST_MAX];
    const uint64_t mine = 100 + rank;
    int bad = communicator_gather(communicator, &mine, sizeof mine, all, NULL);
    for (uint64_t other = 0; other < world && !bad; other++) {
        uint64_t number = rank == other ? 7 * other : 0;
        bad = all[other] != 100 + other ||
              communicator_broadcast(communicator, other, &number, sizeof number, NULL) ||
              number != 7 * other;
    }
    return bad;
}

static int exchange(const RankPlace *place)
{
    Communicator *communicator = NULL;
    const uint64_t rank = place->rank, world = place->world_size;
    const double of_ranks = (double)(world * (world - 1)) / 2;
    double sum = (double)rank;
    uint64_t most[2] = {rank, 100 - rank};
    float *values = rank_values_new(MANY, rank);
    int bad = !values || communicator_open(&communicator, place, NULL, NULL) ||
              communicator_sum_f64(communicator, &sum, 1, NULL) ||
              communicator_max_u64(communicator, most, 2, NULL) || rank_process_meet(communicator, NULL) ||
              communicator_mean_f32(communicator, values, MANY, NULL) ||
              exchange_bytes(communicator, rank, world) || sum != of_ranks || most[0] != world - 1 ||
              most[1] != 100 || !rank_values_are_means(values, MANY, world);
    communicator_close(&communicator);
    free(values);
    return bad;
}

TEST(test_hosts_may_have_any_number_of_ranks)
{
    static const uint64_t hosts[][HOSTS_MAX] = {{1, 1}, {2, 1}, {1, 3}, {2, 2}, {1, 2, 1}};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        pid_t processes[RANKS_OF_TEST_MAX];
        const uint64_t world = start_hosts(hosts[i], processes, exchange);
        for (uint64_t rank = 0; rank < world; rank++)
            if (rank_process_end(processes[rank]) != 0)
                fail_msg("rank %d of hosts %zu", (int)rank, i);
    }
}

/* Rank 3 ends at once. The others work on until they are told, all with the same words. */
static int lose_last(const RankPlace *place)
{
    Communicator *communicator = NULL;
    FshError error = {0};
    FshStatus status = communicator_open(&communicator, place, NULL, &error);
    if (status)
        return 2;
    if (place->rank == 3)
        (void)raise(SIGKILL);
    while (!status)
        status = rank_process_meet(communicator, &error);
    const int bad = status != FSH_ERR_PEER || !strstr(error.message, "rank 3 of 4 (host ") ||
                    !strstr(error.message, "has ended") || !communicator_is_broken(communicator) ||
                    communicator_check(communicator, NULL) != FSH_ERR_PEER;
    communicator_close(&communicator);
    return bad;
}

TEST(test_a_rank_that_is_lost_is_named_on_all_hosts)
{
    static const uint64_t hosts[HOSTS_MAX] = {2, 2};
    pid_t processes[RANKS_OF_TEST_MAX];
    const double start = progress_now_seconds();
    (void)start_hosts(hosts, processes, lose_last);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(rank_process_end(processes[rank]), rank == 3 ? 128 + SIGKILL : 0);
    assert_true(progress_now_seconds() - start < 10);
}

/* ---- signals ---- */

/* Waits for another host that lives and hangs, after two signals. */
static int wait_for_the_hung(const RankPlace *place, uint64_t hung, const char *what)
{
    Communicator *communicator = NULL;
    FshError error = {0};
    char name[64];
    (void)snprintf(name, sizeof name, "rank %d of 2 (host ", (int)hung);
    interrupt_install();
    FshStatus status = communicator_open(&communicator, place, NULL, &error);
    if (status)
        return 1;
    const double start = progress_now_seconds();
    if (place->rank == hung)
        while (!communicator_is_broken(communicator) && progress_now_seconds() - start < 60)
            sleep_seconds(0.01);
    else
        for (int i = 0; i < 2; i++)
            (void)raise(SIGTERM);
    status = rank_process_meet(communicator, &error);
    const bool told = strstr(error.message, name) && strstr(error.message, what) &&
                      strstr(error.message, "a signal ends the run without it");
    const int bad = status != FSH_ERR_PEER || communicator_lost_to(communicator) != SIGTERM || !told ||
                    progress_now_seconds() - start > 50;
    communicator_close(&communicator);
    return bad;
}

static int wait_for_second(const RankPlace *place)
{
    return wait_for_the_hung(place, 1, "has kept the others waiting for ");
}

static int wait_for_first(const RankPlace *place)
{
    return wait_for_the_hung(place, 0, "has not answered for ");
}

TEST(test_a_second_signal_leaves_a_host_that_hangs_behind)
{
    static const uint64_t hosts[HOSTS_MAX] = {1, 1};
    pid_t one[2], other[2];
    (void)start_hosts(hosts, one, wait_for_second);
    (void)start_hosts(hosts, other, wait_for_first);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(rank_process_end(one[rank]), 0);
        assert_int_equal(rank_process_end(other[rank]), 0);
    }
}

/* ---- meetings that fail ---- */

/* The hosts do not agree on how many ranks there are. */
static int meet_a_misfit(const RankPlace *place)
{
    RankPlace own = *place;
    Communicator *communicator = NULL;
    FshError error = {0};
    own.world_size = place->rank < 2 ? 4 : 5;
    const FshStatus status = communicator_open(&communicator, &own, NULL, &error);
    communicator_close(&communicator);
    return status != FSH_ERR_USAGE ||
           (strcmp(error.message, ranks_told_elsewhere) == 0) != (place->local_rank > 0);
}

TEST(test_all_ranks_of_a_host_end_as_its_first_does)
{
    static const uint64_t hosts[HOSTS_MAX] = {2, 2};
    pid_t processes[RANKS_OF_TEST_MAX];
    (void)start_hosts(hosts, processes, meet_a_misfit);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(rank_process_end(processes[rank]), 0);
}

/* Is told by the first rank that the other host is waited for. */
static void interrupt_then(void *context, const char *text)
{
    (void)context;
    if (strstr(text, "ranks 2 to 3 of 4 are waited for"))
        (void)raise(SIGTERM);
}

static int meet_nobody(const RankPlace *place)
{
    const CommunicatorOptions options = {.hint = {.most_seconds = 30, .tell = interrupt_then}};
    Communicator *communicator = NULL;
    if (place->rank > 1)
        return 0;
    interrupt_install();
    const FshStatus status = communicator_open(&communicator, place, &options, NULL);
    communicator_close(&communicator);
    return status != FSH_ERR_INTERRUPTED || interrupt_signal() != SIGTERM;
}

TEST(test_all_ranks_of_a_host_end_with_the_signal_of_its_first)
{
    static const uint64_t hosts[HOSTS_MAX] = {2, 2};
    pid_t processes[RANKS_OF_TEST_MAX];
    (void)start_hosts(hosts, processes, meet_nobody);
    for (int rank = 0; rank < 4; rank++)
        assert_int_equal(rank_process_end(processes[rank]), 0);
}
