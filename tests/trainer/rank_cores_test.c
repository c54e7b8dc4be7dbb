/* The cores of ranks: shares of those that they may run on, and those beside their GPUs. */
#include "tests/support/support.h"
#include "tests/trainer/rank_processes.h"
#include "trainer/ranks/rank_cores.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4 };

/* What the ranks of a test are given, and what they must find; read by the processes that are forked. */
static struct {
    const char *own[RANKS], *near[RANKS]; /* lists; near NULL: unknown */
    double quota;
    int online, share[RANKS];
    bool binds[RANKS];
} given;

static CpuMask mask_of(const char *list)
{
    CpuMask mask = {0};
    if (list)
        (void)cpu_mask_parse(&mask, list);
    return mask;
}

static int find_share(const RankPlace *place)
{
    Communicator *communicator = NULL;
    int share = 0;
    const CpuMask own = mask_of(given.own[place->rank]);
    const int bad = communicator_open(&communicator, place, NULL, NULL) ||
                    rank_cores_share(communicator, &own, given.quota, &share, NULL) ||
                    share != given.share[place->rank];
    if (bad)
        (void)fprintf(stderr, "rank %d: share %d\n", (int)place->rank, share);
    communicator_close(&communicator);
    return bad;
}

static void expect_shares(const char *const own[RANKS], uint64_t ranks, double quota, const int share[RANKS])
{
    memcpy(given.own, own, sizeof given.own);
    memcpy(given.share, share, sizeof given.share);
    given.quota = quota;
    rank_processes_run(ranks, "cores", find_share);
}

TEST(test_ranks_that_are_bound_keep_their_cores)
{
    expect_shares((const char *[RANKS]){"0-15", "16-31", "32-47", "48-63"}, 4, INFINITY,
                  (int[RANKS]){16, 16, 16, 16});
}

TEST(test_ranks_that_are_not_bound_share_all_cores)
{
    expect_shares((const char *[RANKS]){"0-63", "0-63", "0-63", "0-63"}, 4, INFINITY,
                  (int[RANKS]){16, 16, 16, 16});
    expect_shares((const char *[RANKS]){"0-7", "0-7", "0-7"}, 3, INFINITY, (int[RANKS]){2, 2, 2});
    expect_shares((const char *[RANKS]){"0-8", "0-8", "0-8"}, 3, INFINITY, (int[RANKS]){3, 3, 3});
    expect_shares((const char *[RANKS]){"0", "0", "0"}, 3, INFINITY, (int[RANKS]){1, 1, 1});
}

TEST(test_only_cores_that_several_may_use_are_shared)
{
    expect_shares((const char *[RANKS]){"0-15", "0-63"}, 2, INFINITY, (int[RANKS]){8, 56});
    expect_shares((const char *[RANKS]){"0-15", "0-15", "16-31,40"}, 3, INFINITY, (int[RANKS]){8, 8, 17});
}

TEST(test_the_quota_of_a_container_is_shared_alike)
{
    expect_shares((const char *[RANKS]){"0-15", "16-31", "32-47", "48-63"}, 4, 8, (int[RANKS]){2, 2, 2, 2});
}

/* ---- beside a GPU ---- */

static int choose(const RankPlace *place)
{
    Communicator *communicator = NULL;
    bool binds = false;
    const CpuMask own = mask_of(given.own[place->rank]), near = mask_of(given.near[place->rank]);
    const int bad = communicator_open(&communicator, place, NULL, NULL) ||
                    rank_cores_choose(communicator, &own, &near, given.online, &binds, NULL) ||
                    binds != given.binds[place->rank];
    communicator_close(&communicator);
    return bad;
}

static void expect_choice(const char *const own[RANKS], const char *const near[RANKS],
                          const bool binds[RANKS])
{
    memcpy(given.own, own, sizeof given.own);
    memcpy(given.near, near, sizeof given.near);
    memcpy(given.binds, binds, sizeof given.binds);
    given.online = 64;
    rank_processes_run(RANKS, "beside", choose);
}

TEST(test_ranks_go_to_the_cores_beside_their_gpus)
{
    const char *const all[RANKS] = {"0-63", "0-63", "0-63", "0-63"};
    expect_choice(all, (const char *[RANKS]){"0-31", "0-31", "32-63", "32-63"},
                  (bool[RANKS]){true, true, true, true});
    /* All GPUs on one node: the cores of the other would stand idle. */
    expect_choice(all, (const char *[RANKS]){"0-31", "0-31", "0-31", "0-31"}, (bool[RANKS]){false});
    /* Three crowd on one node: the fourth alone gains. */
    expect_choice(all, (const char *[RANKS]){"0-31", "0-31", "0-31", "32-63"},
                  (bool[RANKS]){false, false, false, true});
    expect_choice(all, (const char *[RANKS]){NULL, NULL, NULL, NULL}, (bool[RANKS]){false});
    expect_choice(all, all, (bool[RANKS]){false}); /* one node: nothing to choose */
}

TEST(test_what_a_launcher_has_bound_stays)
{
    expect_choice((const char *[RANKS]){"0-15", "16-31", "32-47", "48-63"},
                  (const char *[RANKS]){"32-63", "32-63", "0-31", "0-31"}, (bool[RANKS]){false});
}

TEST_IN_FOLDER(test_sysfs_tells_the_cores_beside_a_device, folder)
{
    CpuMask near;
    char text[64];
    test_file_write_text(test_path(folder, "Sys/bus/pci/devices/0000:3b:00.0/local_cpulist"), "0-15,32-47\n");
    test_file_write_text(test_path(folder, "Sys/bus/pci/devices/0000:3c:00.0/local_cpulist"), "\n");
    assert_true(rank_cores_near(test_path(folder, "Sys"), "0000:3B:00.0", &near));
    assert_string_equal(cpu_mask_list(&near, text, sizeof text), "0-15,32-47");
    assert_false(rank_cores_near(test_path(folder, "Sys"), "0000:3C:00.0", &near));
    assert_int_equal(cpu_mask_count(&near), 0);
    assert_false(rank_cores_near(test_path(folder, "Sys"), "0000:3D:00.0", &near));
}
