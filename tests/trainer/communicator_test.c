/* Ranks that talk through the host's memory: sums, and what happens when one of them goes. */
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/ranks/communicator.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"

enum { MANY = 300000, WORLD_MAX = 4 }; /* floats: more than a piece, and no multiple of one */

static int sum(const RankPlace *place)
{
    Communicator *communicator = NULL;
    const uint64_t rank = place->rank, world = place->world_size;
    double sums[3] = {(double)rank, 0.5, -1e30 * (double)rank};
    uint64_t counts[2] = {rank, UINT64_C(1) << 60}, most[2] = {rank, 7 - rank};
    float *values = rank_values_new(MANY, rank);
    char text[8] = "no";
    int bad = communicator_open(&communicator, place, NULL, NULL) != FSH_OK || !values;
    if (rank == world - 1)
        (void)strcpy(text, "yes");
    bad = bad || communicator_sum_f64(communicator, sums, 3, NULL) ||
          communicator_sum_u64(communicator, counts, 2, NULL) ||
          communicator_max_u64(communicator, most, 2, NULL) ||
          communicator_mean_f32(communicator, values, MANY, NULL) ||
          communicator_broadcast(communicator, world - 1, text, sizeof text, NULL) ||
          communicator_check(communicator, NULL);
    const double of_ranks = (double)(world * (world - 1)) / 2;
    bad = bad || sums[0] != of_ranks || sums[1] != 0.5 * (double)world || sums[2] > -0.99e30 * of_ranks ||
          counts[0] != world * (world - 1) / 2 || counts[1] != world << 60 || most[0] != world - 1 ||
          most[1] != 7 || strcmp(text, "yes") != 0 || !rank_values_are_means(values, MANY, world);
    communicator_close(&communicator);
    free(values);
    return bad;
}

TEST(test_sums_are_over_all_ranks)
{
    for (uint64_t world_size = 2; world_size <= WORLD_MAX; world_size++)
        rank_processes_run(world_size, "sum", sum);
}

/* Gathers 3 bytes of each rank, and then more than a slot holds. */
static int gather(const RankPlace *place)
{
    enum { LONG = 300001 };
    Communicator *communicator = NULL;
    const uint64_t world = place->world_size;
    char name[3] = {'r', (char)('0' + place->rank), (char)0xFF}, names[3 * WORLD_MAX];
    char *mine = malloc(LONG), *all = malloc(LONG * (size_t)world);
    int bad = !mine || !all || communicator_open(&communicator, place, NULL, NULL) ||
              communicator_gather(communicator, name, sizeof name, names, NULL);
    for (uint64_t rank = 0; rank < world && !bad; rank++)
        bad = names[3 * rank] != 'r' || names[3 * rank + 1] != (char)('0' + rank) ||
              names[3 * rank + 2] != (char)0xFF;
    for (size_t i = 0; i < LONG && !bad; i++)
        mine[i] = (char)(i * 7 + place->rank);
    bad = bad || communicator_gather(communicator, mine, LONG, all, NULL);
    for (size_t i = 0; i < LONG * (size_t)world && !bad; i++)
        bad = all[i] != (char)(i % LONG * 7 + i / LONG);
    communicator_close(&communicator);
    free(mine);
    free(all);
    return bad;
}

TEST(test_every_rank_has_what_all_gave)
{
    for (uint64_t world_size = 2; world_size <= WORLD_MAX; world_size++)
        rank_processes_run(world_size, "gather", gather);
}

/* Compares the bits of a sum that rounds with those of rank 0, on every rank. */
static int sum_roundly(const RankPlace *place)
{
    Communicator *communicator = NULL;
    float values[1001], first[1001];
    for (size_t i = 0; i < 1001; i++)
        values[i] = 1.0F / (float)(1 + i + place->rank * 7919);
    int bad = communicator_open(&communicator, place, NULL, NULL) ||
              communicator_mean_f32(communicator, values, 1001, NULL);
    memcpy(first, values, sizeof first);
    bad = bad || communicator_broadcast(communicator, 0, first, sizeof first, NULL) ||
          memcmp((const void *)values, (const void *)first, sizeof first) != 0;
    communicator_close(&communicator);
    return bad;
}

TEST(test_all_ranks_have_the_same_bits)
{
    rank_processes_run(3, "bits", sum_roundly);
}

static int meet_often(const RankPlace *place)
{
    Communicator *communicator = NULL;
    int bad = communicator_open(&communicator, place, NULL, NULL) != FSH_OK;
    for (uint64_t i = 0; i < 3000 && !bad; i++) {
        uint64_t value = i * (place->rank + 1);
        bad = communicator_sum_u64(communicator, &value, 1, NULL) || value != i * 6;
    }
    communicator_close(&communicator);
    return bad;
}

TEST(test_thousands_of_small_sums)
{
    rank_processes_run(3, "often", meet_often);
}

/* Kills rank 1 without a word. The others wait for it and must hear that it is gone, now and at every later
 * call. */
static int lose_rank_1(const RankPlace *place)
{
    Communicator *communicator = NULL;
    FshError error = {0}, later = {0};
    if (communicator_open(&communicator, place, NULL, NULL) || rank_process_meet(communicator, NULL))
        return 1;
    if (place->rank == 1)
        (void)raise(SIGKILL);
    const double start = progress_now_seconds();
    if (rank_process_meet(communicator, &error) != FSH_ERR_PEER)
        return 2;
    if (progress_now_seconds() - start > 5 || !strstr(error.message, "rank 1 of 3 (host ") ||
        !strstr(error.message, "has ended"))
        return 3;
    if (communicator_check(communicator, NULL) != FSH_ERR_PEER ||
        rank_process_meet(communicator, &later) != FSH_ERR_PEER || strcmp(later.message, error.message) != 0)
        return 4;
    communicator_close(&communicator);
    return 0;
}

TEST(test_a_rank_that_is_killed_is_noticed)
{
    pid_t children[3];
    rank_processes_start(children, 3, "lose", lose_rank_1);
    assert_int_equal(rank_process_end(children[0]), 0);
    assert_int_equal(rank_process_end(children[1]), 128 + SIGKILL);
    assert_int_equal(rank_process_end(children[2]), 0);
}

/* Lets rank 1 leave in order, which must be no loss until somebody waits for it. */
static int leave_early(const RankPlace *place)
{
    Communicator *communicator = NULL;
    FshError error = {0};
    if (communicator_open(&communicator, place, NULL, NULL))
        return 1;
    if (place->rank == 0) {
        while (communicator_check_all_there(communicator, NULL) == FSH_OK)
            sleep_seconds(0.01);
        if (communicator_check(communicator, NULL) ||
            rank_process_meet(communicator, &error) != FSH_ERR_PEER || !strstr(error.message, "rank 1 of 2"))
            return 2;
    }
    communicator_close(&communicator);
    return 0;
}

TEST(test_a_rank_that_leaves_is_not_waited_for)
{
    rank_processes_run(2, "leave", leave_early);
}

/* Lets rank 1 of 3 stay away. The others name it, not themselves, and it hears of that when it comes. */
static int stay_away(const RankPlace *place)
{
    Communicator *communicator = NULL;
    const CommunicatorOptions options = {.patience_seconds = 1};
    FshError error = {0};
    char process[32];
    if (communicator_open(&communicator, place, &options, NULL))
        return 1;
    (void)snprintf(process, sizeof process, ", process %d)", (int)getpid());
    while (place->rank == 1 && !communicator_is_broken(communicator))
        sleep_seconds(0.01);
    const double start = progress_now_seconds();
    if (rank_process_meet(communicator, &error) != FSH_ERR_PEER || progress_now_seconds() - start > 20)
        return 2;
    if (!strstr(error.message, "rank 1 of 3 (host ") ||
        !strstr(error.message, "has kept the others waiting for 1 s") ||
        (strstr(error.message, process) != NULL) != (place->rank == 1))
        return 3;
    communicator_close(&communicator);
    return 0;
}

TEST(test_who_does_not_come_is_named)
{
    rank_processes_run(3, "away", stay_away);
}

static int join(const RankPlace *place)
{
    Communicator *communicator = NULL;
    FshError error = {0};
    const FshStatus status = communicator_open(&communicator, place, NULL, &error);
    communicator_close(&communicator);
    return status == FSH_OK                                     ? 0
           : strstr(error.message, "is there already (process") ? 21
           : strstr(error.message, "another size")              ? 22
           : strstr(error.message, "interrupted")               ? 23
                                                                : 1;
}

TEST(test_a_rank_that_is_there_twice_or_of_another_run_is_refused)
{
    char path[160];
    struct stat status;
    const RankPlace first = rank_process_place(0, 2, "twice"), second = rank_process_place(1, 2, "twice"),
                    other = rank_process_place(2, 3, "twice");
    const pid_t waiting = rank_process_start(&first, join);
    rank_process_there(waiting, &first);
    assert_int_equal(rank_process_end(rank_process_start(&first, join)), 21);
    assert_int_equal(rank_process_end(rank_process_start(&other, join)), 22);
    assert_int_equal(rank_process_end(rank_process_start(&second, join)), 0);
    assert_int_equal(rank_process_end(waiting), 0);
    assert_int_not_equal(stat(rank_process_file(&first, path), &status), 0);
}

/* What a killed run has left under the same name is in nobody's way. */
TEST(test_a_file_that_was_left_over_is_made_anew)
{
    const RankPlace place = rank_process_place(0, 2, "left");
    const pid_t killed = rank_process_start(&place, join);
    rank_process_there(killed, &place);
    assert_int_equal(kill(killed, SIGKILL), 0);
    assert_int_equal(rank_process_end(killed), 128 + SIGKILL);
    rank_processes_run(2, "left", join);
}

static void count_hints(void *context, const char *text)
{
    int *hints = context;
    *hints += strstr(text, "rank 2 of 3 is waited for") ? 1 : 100;
}

/* Returns 30 plus the number of hints. */
static int join_with_hints(const RankPlace *place)
{
    Communicator *communicator = NULL;
    int hints = 0;
    const CommunicatorOptions options = {
        .hint = {.after_seconds = 1.5, .tell = count_hints, .context = &hints}};
    const FshStatus status = communicator_open(&communicator, place, &options, NULL);
    communicator_close(&communicator);
    return status ? 1 : 30 + hints;
}

TEST(test_the_first_rank_says_once_who_is_missing)
{
    const RankPlace first = rank_process_place(0, 3, "hint"), second = rank_process_place(1, 3, "hint"),
                    third = rank_process_place(2, 3, "hint");
    const pid_t waiting = rank_process_start(&first, join_with_hints);
    rank_process_there(waiting, &first);
    const pid_t other = rank_process_start(&second, join_with_hints);
    sleep_seconds(2.5);
    assert_int_equal(rank_process_end(rank_process_start(&third, join_with_hints)), 30);
    assert_int_equal(rank_process_end(waiting), 31);
    assert_int_equal(rank_process_end(other), 30);
}

static int join_until_stopped(const RankPlace *place)
{
    interrupt_install();
    return join(place);
}

TEST(test_waiting_for_the_others_ends_with_a_signal)
{
    char path[160];
    struct stat status;
    const RankPlace place = rank_process_place(0, 2, "signal");
    const pid_t waiting = rank_process_start(&place, join_until_stopped);
    assert_true(wait_for_file(rank_process_file(&place, path), 10));
    assert_int_equal(kill(waiting, SIGTERM), 0);
    assert_int_equal(rank_process_end(waiting), 23);
    assert_int_not_equal(stat(path, &status), 0);
}

/* ---- a stranger in the gate ---- */

/* Starts a process that is no rank and holds the file, as a debugger's or a hung run's might; the caller
 * ends it. */
static pid_t start_stranger(const RankPlace *place)
{
    char path[160], byte = 0;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        const int file = open(rank_process_file(place, path), O_RDWR | O_CREAT, 0600);
        const bool held = file >= 0 && fcntl(file, F_SETLK, &lock) == 0;
        (void)!write(ends[1], held ? "y" : "n", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    (void)close(ends[0]);
    (void)close(ends[1]);
    return child;
}

static void end_stranger(pid_t stranger, const RankPlace *place)
{
    char path[160];
    assert_int_equal(kill(stranger, SIGKILL), 0);
    assert_int_equal(rank_process_end(stranger), 128 + SIGKILL);
    (void)unlink(rank_process_file(place, path));
}

static void count_strangers(void *context, const char *text)
{
    int *hints = context;
    *hints += strstr(text, "is held by process ") ? 1 : 100;
}

/* Returns 40 and the number of hints where it has given up, 50 and that where a signal has ended it. */
static int meet_a_stranger(const RankPlace *place)
{
    Communicator *communicator = NULL;
    FshError error = {0};
    int hints = 0;
    const CommunicatorOptions options = {
        .hint = {.after_seconds = 0.3, .most_seconds = 3, .tell = count_strangers, .context = &hints}};
    interrupt_install();
    const FshStatus status = communicator_open(&communicator, place, &options, &error);
    communicator_close(&communicator);
    if (!strstr(error.message, "is held by process "))
        return 1;
    return hints + (status == FSH_ERR_INTERRUPTED ? 50 : strstr(error.message, "end that process") ? 40 : 60);
}

TEST(test_a_stranger_in_the_gate_is_named_and_not_waited_for_without_end)
{
    const RankPlace place = rank_process_place(0, 2, "stranger");
    const pid_t stranger = start_stranger(&place);
    assert_int_equal(rank_process_end(rank_process_start(&place, meet_a_stranger)), 41);
    end_stranger(stranger, &place);
}

TEST(test_waiting_at_the_gate_ends_with_a_signal)
{
    const RankPlace place = rank_process_place(0, 2, "gate");
    const pid_t stranger = start_stranger(&place), waiting = rank_process_start(&place, meet_a_stranger);
    sleep_seconds(1);
    assert_int_equal(kill(waiting, SIGTERM), 0);
    assert_int_equal(rank_process_end(waiting), 51);
    end_stranger(stranger, &place);
}

/* One that lets go in time is no failure. */
TEST(test_a_gate_that_opens_is_passed)
{
    const RankPlace first = rank_process_place(0, 2, "opens"), second = rank_process_place(1, 2, "opens");
    const pid_t stranger = start_stranger(&first), waiting = rank_process_start(&first, join),
                other = rank_process_start(&second, join);
    sleep_seconds(0.3);
    assert_int_equal(kill(stranger, SIGKILL), 0);
    assert_int_equal(rank_process_end(stranger), 128 + SIGKILL);
    assert_int_equal(rank_process_end(waiting), 0);
    assert_int_equal(rank_process_end(other), 0);
}
