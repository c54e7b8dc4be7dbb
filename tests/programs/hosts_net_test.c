/* ftrain on two hosts, which are network namespaces joined by a cable (veth): each has an address of its own,
 * and the link between them can go down. Left out (77) where namespaces may not be made: they need root. */
#include "tests/programs/hosts_support.h"
#include "tests/programs/ranks_support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/progress.h"

static char spaces[2][32];

/* Runs `ip` with a line of words. Returns whether it did what was asked. */
static bool run_ip(const char *line)
{
    char words[256];
    const char *arguments[24] = {0};
    size_t count = 0;
    char *rest = NULL;
    (void)snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word && count < 23; word = strtok_r(NULL, " ", &rest))
        arguments[count++] = word;
    RunResult result = run_program_arguments(NULL, "/usr/sbin/ip", arguments);
    const bool done = result.exit_status == 0;
    run_result_free(&result);
    return done;
}

static void remove_spaces(void)
{
    char line[64];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(line, sizeof line, "netns del %s", spaces[i]);
        (void)run_ip(line);
    }
}

/* Makes two hosts, 10.99.0.1 and 10.99.0.2. Returns false if that is not allowed. */
static bool make_spaces(void)
{
    char lines[8][128];
    size_t count = 0;
    for (int i = 0; i < 2; i++)
        (void)snprintf(spaces[i], sizeof spaces[i], "fshard-%ld-%d", (long)getpid(), i);
    for (int i = 0; i < 2; i++)
        (void)snprintf(lines[count++], sizeof lines[0], "netns add %s", spaces[i]);
    (void)snprintf(lines[count++], sizeof lines[0], "-n %s link add cable type veth peer name cable netns %s",
                   spaces[0], spaces[1]);
    for (int i = 0; i < 2; i++)
        (void)snprintf(lines[count++], sizeof lines[0], "-n %s addr add 10.99.0.%d/24 dev cable", spaces[i],
                       i + 1);
    for (int i = 0; i < 2; i++)
        (void)snprintf(lines[count++], sizeof lines[0], "-n %s link set cable up", spaces[i]);
    for (size_t i = 0; i < count; i++)
        if (!run_ip(lines[i]))
            return false;
    return true;
}

int test_program_begin(void)
{
    if (access("/usr/sbin/ip", X_OK) == 0 && geteuid() == 0 && make_spaces())
        return TEST_RUN;
    (void)fprintf(stderr, "network namespaces may not be made here (they need root and ip): left out\n");
    remove_spaces();
    return TEST_SKIP_ALL;
}

int test_group_teardown(void **state)
{
    (void)state;
    remove_spaces();
    return 0;
}

static Hosts hosts_in_spaces(int each, uint16_t port)
{
    return (Hosts){
        .hosts = 2, .each = each, .address = "10.99.0.1", .port = port, .spaces = {spaces[0], spaces[1]}};
}

#define SHORT "--model", "conv8", "--epochs", "2", "--batch-size", "2"
#define LONG                                                                                                 \
    "--model", "conv8", "--batch-size", "2", "--epochs", "100000", "--lr-base", "0.01", "--val-interval",    \
        "100000", "--checkpoint-interval", "3", "--timeout", "2"

TEST_IN_FOLDER(test_two_hosts_train_over_a_network, folder)
{
    const char *shards = make_set(folder, &train_plain);
    const Hosts hosts = hosts_in_spaces(1, 4000);
    RANKS_TRAINED(2, SHORT, shards, test_path(folder, "one"));
    HOSTS_TRAINED(&hosts, SHORT, shards, test_path(folder, "two"));
    assert_same_file(folder, "one", "two", true);
}

/* The second host comes two seconds late, and sums of four are added in another order. */
TEST_IN_FOLDER(test_two_hosts_of_two_ranks_train_over_a_network_as_one_host, folder)
{
    const DatasetSpec pairs = rank_pairs(25, 5);
    const char *shards = make_set(folder, &pairs), *out = test_path(folder, "two");
    const Hosts hosts = hosts_in_spaces(2, 4400);
    const char *const arguments[] = {RANKS_UNET("2"), "--batch-size", "2", shards, out, NULL};
    RunningProgram running[4];
    RANKS_TRAINED(4, RANKS_UNET("2"), "--batch-size", "2", shards, test_path(folder, "one"));
    for (int rank = 0; rank < 4; rank++) {
        if (rank == 2)
            sleep_seconds(2);
        running[rank] = start_host_rank(&hosts, rank, arguments);
    }
    expect_well(running, 4);
    assert_true(weights_distance(test_path(folder, "one/last.safetensors"),
                                 test_path(folder, "two/last.safetensors")) < 1e-6);
}

TEST_IN_FOLDER(test_a_rank_that_is_killed_is_told_once_on_each_host, folder)
{
    const char *shards = make_set(folder, &train_plain);
    const Hosts hosts = hosts_in_spaces(2, 4500);
    RunningProgram running[4];
    start_hosts(&hosts, running, (const char *const[]){LONG, shards, test_path(folder, "out"), NULL});
    assert_true(wait_for_file(test_path(folder, "out/checkpoint.safetensors"), 60));
    assert_int_equal(kill(running[2].process, SIGKILL), 0);
    for (int rank = 0; rank < 4; rank++) {
        RunResult result = run_wait(&running[rank]);
        const bool told = strstr(result.err, "rank 2 of 4 (host ") != NULL;
        assert_int_equal(result.exit_status, rank == 2 ? 128 + SIGKILL : 1);
        if (told != (rank == 0 || rank == 3)) /* the first of its host that lives */
            fail_msg("rank %d: %s", rank, result.err);
        run_result_free(&result);
    }
}

/* A process on each host, with an address of its own and a secret. */
TEST_IN_FOLDER(test_processes_by_hand_meet_over_a_network, folder)
{
    const char *shards = make_set(folder, &train_plain);
    const Hosts hosts = hosts_in_spaces(1, 0);
    RunningProgram running[2];
    for (int host = 0; host < 2; host++)
        running[host] =
            start_on_host(&hosts, host, (const char *const[]){"FSHARD_SECRET=open sesame", NULL},
                          (const char *const[]){"--world-size", "2", "--rank", host ? "1" : "0",
                                                "--master-addr", "10.99.0.1", "--master-port", "4300", SHORT,
                                                shards, test_path(folder, "out"), NULL});
    expect_well(running, 2);
}

TEST_IN_FOLDER(test_a_link_that_goes_down_is_told_on_both_hosts, folder)
{
    const char *shards = make_set(folder, &train_plain);
    const Hosts hosts = hosts_in_spaces(2, 4100);
    RunningProgram running[4];
    char line[96];
    start_hosts(&hosts, running, (const char *const[]){LONG, shards, test_path(folder, "out"), NULL});
    assert_true(wait_for_file(test_path(folder, "out/checkpoint.safetensors"), 60));
    (void)snprintf(line, sizeof line, "-n %s link set cable down", spaces[1]);
    assert_true(run_ip(line));
    const double start = progress_now_seconds();
    for (int rank = 0; rank < 4; rank++) {
        RunResult result = run_wait(&running[rank]);
        assert_int_equal(result.exit_status, 1);
        if (rank % 2 == 0 && !strstr(result.err, "has not been heard of for 2 s") &&
            !strstr(result.err, "cannot be reached any more"))
            fail_msg("rank %d: %s", rank, result.err);
        if (rank % 2 == 0)
            assert_contains(result.err, rank == 0 ? "rank 2 of 4 (host " : "rank 0 of 4 (host ");
        run_result_free(&result);
    }
    assert_true(progress_now_seconds() - start < 20);
    (void)snprintf(line, sizeof line, "-n %s link set cable up", spaces[1]);
    assert_true(run_ip(line));
}

/* A port scanner that says something, and one that says nothing. */
TEST_IN_FOLDER(test_strangers_on_the_network_do_not_disturb_the_meeting, folder)
{
    const char *shards = make_set(folder, &train_plain);
    const Hosts hosts = hosts_in_spaces(1, 4200);
    const char *const arguments[] = {SHORT, shards, test_path(folder, "out"), NULL};
    RunningProgram running[2];
    running[0] = start_host_rank(&hosts, 0, arguments);
    static const char says_too_much[] =
        "for i in $(seq 200); do exec 7<>/dev/tcp/10.99.0.1/4201 && break; sleep 0.05; done 2>/dev/null; "
        "exec 8<>/dev/tcp/10.99.0.1/4201; head -c 3000 /dev/urandom >&7; exec 7>&-; : >\"$1\"; sleep 30";
    const char *there = test_path(folder, "there"); /* written once it has connected and spoken */
    const char *const words[] = {"netns",       "exec",     spaces[1], "bash", "-c",
                                 says_too_much, "stranger", there,     NULL};
    RunningProgram stranger = run_start(NULL, "/usr/sbin/ip", words);
    assert_true(wait_for_file(there, 60));
    running[1] = start_host_rank(&hosts, 1, arguments);
    expect_well(running, 2);
    (void)kill(stranger.process, SIGKILL);
    RunResult result = run_wait(&stranger);
    run_result_free(&result);
}
