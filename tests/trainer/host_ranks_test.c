/* The ranks of one host when they talk with other hosts: what their first rank exchanges, and what the
 * others hear when that fails. */
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/ranks/host_ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/progress.h"

enum { WORLD = 3, MANY = 200001 }; /* u64: four pieces, the last one not full */

static const CommunicatorOptions plain = {0};

static void add(void *result, const void *values, size_t from, size_t to)
{
    uint64_t *sums = result;
    const uint64_t *others = values;
    for (size_t i = from; i < to; i++)
        sums[i] += others[i];
}
static const RankReduction sum = {sizeof(uint64_t), add};

/* ---- exchanges ---- */

typedef struct Elsewhere {
    int calls;
    size_t bytes;
} Elsewhere;

/* Adds what another host has: 1000 for each value. */
static FshStatus add_elsewhere(void *context, void *bytes, size_t byte_count, FshError *error)
{
    Elsewhere *elsewhere = context;
    uint64_t *values = bytes;
    (void)error;
    elsewhere->calls++;
    elsewhere->bytes += byte_count;
    for (size_t i = 0; i < byte_count / sizeof *values; i++)
        values[i] += 1000;
    return FSH_OK;
}

static int reduce_with_another_host(const RankPlace *place)
{
    HostRanks *host = NULL;
    Elsewhere elsewhere = {0};
    const HostExchange exchange = {add_elsewhere, &elsewhere};
    uint64_t *values = malloc(MANY * sizeof *values);
    int bad = !values || host_ranks_open(&host, place, &plain, NULL);
    for (uint64_t i = 0; i < MANY && !bad; i++)
        values[i] = i + place->rank;
    bad = bad || host_ranks_reduce(host, values, MANY, &sum, &exchange, NULL) ||
          host_ranks_meet(host, &exchange, NULL);
    for (uint64_t i = 0; i < MANY && !bad; i++)
        bad = values[i] != WORLD * i + WORLD * (WORLD - 1) / 2 + 1000;
    bad = bad || elsewhere.calls != (place->rank == 0 ? 5 : 0) ||
          elsewhere.bytes != (place->rank == 0 ? MANY * sizeof *values : 0);
    host_ranks_close(&host);
    free(values);
    return bad;
}

TEST(test_the_first_rank_exchanges_every_piece)
{
    rank_processes_run(WORLD, "exchange", reduce_with_another_host);
}

static FshStatus receive(void *context, void *bytes, size_t byte_count, FshError *error)
{
    (void)context;
    (void)error;
    memset(bytes, 'x', byte_count);
    return FSH_OK;
}

static FshStatus see(void *context, void *bytes, size_t byte_count, FshError *error)
{
    (void)error;
    memcpy(context, bytes, byte_count);
    return FSH_OK;
}

/* Sends from the last rank here, which the first one must see, and from another host. */
static int broadcast_with_another_host(const RankPlace *place)
{
    HostRanks *host = NULL;
    char seen[8] = "", text[8] = "none";
    const HostExchange sends = {see, seen}, receives = {receive, NULL};
    if (place->rank == WORLD - 1)
        (void)strcpy(text, "here");
    int bad = host_ranks_open(&host, place, &plain, NULL) ||
              host_ranks_broadcast(host, WORLD - 1, text, sizeof text, &sends, NULL) ||
              strcmp(text, "here") != 0 || strcmp(seen, place->rank == 0 ? "here" : "") != 0 ||
              host_ranks_broadcast(host, host_ranks_count(host), text, 4, &receives, NULL) ||
              strcmp(text, "xxxx") != 0;
    host_ranks_close(&host);
    return bad;
}

TEST(test_what_comes_from_another_host_reaches_all)
{
    rank_processes_run(WORLD, "broadcast", broadcast_with_another_host);
}

/* ---- losses ---- */

static FshStatus fail_here(void *context, void *bytes, size_t byte_count, FshError *error)
{
    (void)context;
    (void)bytes;
    (void)byte_count;
    return fsh_error_set(error, FSH_ERR_LIBRARY, "rank 7 of 9 (host there, process 1) has ended");
}

static int hear_of_a_failure(const RankPlace *place)
{
    HostRanks *host = NULL;
    const HostExchange fails = {fail_here, NULL};
    FshError error = {0}, later = {0};
    int bad = host_ranks_open(&host, place, &plain, NULL) ||
              host_ranks_meet(host, &fails, &error) != FSH_ERR_PEER ||
              strcmp(error.message, "rank 7 of 9 (host there, process 1) has ended") != 0 ||
              !host_ranks_is_lost(host) || host_ranks_check(host, &later) != FSH_ERR_PEER ||
              strcmp(error.message, later.message) != 0;
    host_ranks_close(&host);
    return bad;
}

TEST(test_a_failed_exchange_is_told_to_all)
{
    rank_processes_run(WORLD, "failed", hear_of_a_failure);
}

static FshStatus take_long(void *context, void *bytes, size_t byte_count, FshError *error)
{
    (void)context;
    (void)bytes;
    (void)byte_count;
    (void)error;
    sleep_seconds(2);
    return FSH_OK;
}

/* Lets the first rank wait for other hosts for longer than a rank of this host may stay away. */
static int be_patient(const RankPlace *place)
{
    HostRanks *host = NULL;
    const HostExchange waits = {take_long, NULL};
    const CommunicatorOptions options = {.patience_seconds = 0.5};
    int bad = host_ranks_open(&host, place, &options, NULL) || host_ranks_meet(host, &waits, NULL);
    host_ranks_close(&host);
    return bad;
}

TEST(test_a_long_exchange_is_waited_for)
{
    rank_processes_run(2, "patient", be_patient);
}

/* Lets the last rank lose all while the others wait, twice: the first message counts. */
static int lose_all(const RankPlace *place)
{
    HostRanks *host = NULL;
    FshError error = {0};
    if (host_ranks_open(&host, place, &plain, NULL))
        return 1;
    const double start = progress_now_seconds();
    if (place->rank == WORLD - 1) {
        sleep_seconds(0.3);
        (void)host_ranks_lose(host, "host there does not answer", NULL);
        (void)host_ranks_lose(host, "something else", &error);
    } else {
        (void)host_ranks_meet(host, NULL, &error);
    }
    const int bad = progress_now_seconds() - start > 10 || error.status != FSH_ERR_PEER ||
                    strcmp(error.message, "host there does not answer") != 0;
    host_ranks_close(&host);
    return bad;
}

TEST(test_the_first_loss_is_the_one_that_all_hear_of)
{
    rank_processes_run(WORLD, "lose", lose_all);
}

enum { LOST_EXIT = 5, TOLD_EXIT = 6 };
static uint64_t victim;

/* Loses the victim. Ends with TOLD_EXIT if this rank tells of it, which it says again, and with LOST_EXIT if
 * not. */
static int lose_and_tell(const RankPlace *place)
{
    HostRanks *host = NULL;
    if (host_ranks_open(&host, place, &plain, NULL) || host_ranks_meet(host, NULL, NULL))
        return 1;
    if (place->rank == victim)
        (void)raise(SIGKILL);
    const FshStatus status = host_ranks_meet(host, NULL, NULL);
    const bool tells = host_ranks_tells(host), again = host_ranks_tells(host);
    host_ranks_close(&host);
    return status != FSH_ERR_PEER || tells != again ? 2 : tells ? TOLD_EXIT : LOST_EXIT;
}

/* The lowest that lives tells. */
TEST(test_one_rank_of_a_host_tells_of_a_loss)
{
    for (victim = 0; victim < 2; victim++) {
        pid_t processes[WORLD + 1];
        rank_processes_start(processes, WORLD + 1, victim ? "tell1" : "tell0", lose_and_tell);
        for (uint64_t rank = 0; rank <= WORLD; rank++)
            assert_int_equal(rank_process_end(processes[rank]), rank == victim    ? 128 + SIGKILL
                                                                : rank == !victim ? TOLD_EXIT
                                                                                  : LOST_EXIT);
    }
}

/* As the first does not come to tell of it, though it lives, the second does so a little later. */
static int leave_it_to_the_second(const RankPlace *place)
{
    HostRanks *host = NULL;
    if (host_ranks_open(&host, place, &plain, NULL))
        return 1;
    (void)host_ranks_lose(host, "lost", NULL);
    const double start = progress_now_seconds();
    if (place->rank == 0)
        sleep_seconds(4);
    const bool tells = host_ranks_tells(host);
    const double took = progress_now_seconds() - start;
    host_ranks_close(&host);
    return place->rank == 0 ? tells : !tells || took < 1 || took > 3.5;
}

TEST(test_a_rank_that_does_not_come_leaves_the_telling_to_the_next)
{
    rank_processes_run(2, "leave", leave_it_to_the_second);
}

/* ---- places ---- */

/* Numbers the ranks of this host as those of the second of two hosts. */
static int know_the_others(const RankPlace *local)
{
    RankPlace place = *local;
    HostRanks *host = NULL;
    char name[HOST_RANKS_NAME_MAX];
    place.rank += WORLD;
    place.world_size = 2 * WORLD;
    int bad = host_ranks_open(&host, &place, &plain, NULL) || host_ranks_index(host) != local->rank ||
              host_ranks_count(host) != WORLD || host_ranks_rank(host, 1) != WORLD + 1 ||
              strncmp(host_ranks_describe(host, 1, name), "rank 4 of 6 (host ", 18) != 0;
    host_ranks_close(&host);
    return bad;
}

TEST(test_ranks_of_a_second_host_keep_their_numbers)
{
    rank_processes_run(WORLD, "second", know_the_others);
}
