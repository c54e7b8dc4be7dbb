/* Places of ranks, as launchers tell them by the environment. */
#include "tests/support/support.h"
#include "trainer/ranks/rank_place.h"

#include <string.h>

/* Returns the value of a name in a list of "NAME=value" with NULL at the end, or NULL. */
static const char *in_list(void *context, const char *name)
{
    const size_t length = strlen(name);
    for (const char *const *entry = context; *entry; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

/* Takes the options out of such a list. */
static RankOptions options_in(const char *const *list)
{
    const void *context = list;
    return (RankOptions){.nnodes = in_list((void *)context, "--nnodes"),
                         .node_rank = in_list((void *)context, "--node-rank"),
                         .master_addr = in_list((void *)context, "--master-addr"),
                         .master_port = in_list((void *)context, "--master-port"),
                         .world_size = in_list((void *)context, "--world-size"),
                         .rank = in_list((void *)context, "--rank")};
}

#define TORCH(rank, world, local, local_world)                                                               \
    "RANK=" rank, "WORLD_SIZE=" world, "LOCAL_RANK=" local, "LOCAL_WORLD_SIZE=" local_world,                 \
        "MASTER_PORT=29500"
#define OMPI(rank, world)                                                                                    \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" world, "OMPI_COMM_WORLD_LOCAL_RANK=" rank,         \
        "OMPI_COMM_WORLD_LOCAL_SIZE=" world
#define SRUN(rank, world, hosts)                                                                             \
    "SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=" world, "SLURM_LOCALID=" rank,                              \
        "SLURM_STEP_NUM_NODES=" hosts, "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"

static FshStatus find_place(RankPlace *place, const char *const *list, FshError *error)
{
    const RankOptions options = options_in(list);
    return rank_place_find(place, &options, in_list, (void *)list, error);
}

static const struct Case {
    const char *environment[16];
    FshStatus status;
    const char *parts[2]; /* of the message */
    uint64_t rank, world_size, local_rank;
    const char *launcher;
} cases[] = {
    {{NULL}, FSH_OK, {NULL}, 0, 1, 0, NULL},
    {{"RANK=", "WORLD_SIZE="}, FSH_OK, {NULL}, 0, 1, 0, NULL},
    {{"RANK=0", "WORLD_SIZE=1"}, FSH_OK, {NULL}, 0, 1, 0, NULL},
    {{TORCH("1", "2", "1", "2")}, FSH_OK, {NULL}, 1, 2, 1, "torchrun"},
    {{TORCH("1", "2", "1", "2"), "FSHARD_JOB=12"}, FSH_OK, {NULL}, 1, 2, 1, "ftrain --gpus"},
    {{OMPI("2", "3")}, FSH_OK, {NULL}, 2, 3, 2, "mpirun"},
    {{"PMI_RANK=1", "PMI_SIZE=4"}, FSH_OK, {NULL}, 1, 4, 1, "mpirun"},
    {{"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=4"},
     FSH_OK,
     {NULL},
     1,
     4,
     1,
     "mpirun"},
    {{SRUN("3", "4", "1")}, FSH_OK, {NULL}, 3, 4, 3, "srun"},
    /* The shell of a batch script: its variables are of the job, and there is no step. */
    {{"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_JOB_ID=77"},
     FSH_OK,
     {NULL},
     0,
     1,
     0,
     NULL},
    /* torchrun under srun, one for each host: the inner one counts. */
    {{TORCH("1", "2", "1", "2"), SRUN("0", "1", "1")}, FSH_OK, {NULL}, 1, 2, 1, "torchrun"},
    {{OMPI("1", "2"), "PMI_RANK=1", "PMI_SIZE=2"}, FSH_OK, {NULL}, 1, 2, 1, "mpirun"},

    {{"WORLD_SIZE=2"}, FSH_ERR_USAGE, {"RANK is not set, though WORLD_SIZE is", "torchrun"}, 0, 0, 0, NULL},
    {{"RANK=1"}, FSH_ERR_USAGE, {"WORLD_SIZE is not set, though RANK is"}, 0, 0, 0, NULL},
    {{"RANK=1", "WORLD_SIZE=2"}, FSH_ERR_USAGE, {"LOCAL_RANK is not set"}, 0, 0, 0, NULL},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1"},
     FSH_ERR_USAGE,
     {"LOCAL_WORLD_SIZE is not set"},
     0,
     0,
     0,
     NULL},
    {{"RANK=one", "WORLD_SIZE=2"}, FSH_ERR_USAGE, {"RANK is 'one'"}, 0, 0, 0, NULL},
    {{"RANK=-1", "WORLD_SIZE=2"}, FSH_ERR_USAGE, {"RANK is '-1'"}, 0, 0, 0, NULL},
    {{"RANK=0", "WORLD_SIZE=99999999999"}, FSH_ERR_USAGE, {"WORLD_SIZE is '99999999999'"}, 0, 0, 0, NULL},
    {{TORCH("2", "2", "1", "2")},
     FSH_ERR_USAGE,
     {"RANK is 2, which is no rank of WORLD_SIZE 2"},
     0,
     0,
     0,
     NULL},
    {{TORCH("1", "2", "2", "2")}, FSH_ERR_USAGE, {"LOCAL_RANK is 2", "LOCAL_WORLD_SIZE 2"}, 0, 0, 0, NULL},
    {{TORCH("1", "2", "1", "3")}, FSH_ERR_USAGE, {"LOCAL_WORLD_SIZE is 3", "WORLD_SIZE 2"}, 0, 0, 0, NULL},
    {{TORCH("0", "0", "0", "0")}, FSH_ERR_USAGE, {"no rank of WORLD_SIZE 0"}, 0, 0, 0, NULL},
    {{TORCH("1", "300", "1", "300")}, FSH_ERR_UNSUPPORTED, {"WORLD_SIZE is 300", "256"}, 0, 0, 0, NULL},
    {{TORCH("1", "2", "1", "2"), OMPI("0", "2")},
     FSH_ERR_USAGE,
     {"RANK is 1 and OMPI_COMM_WORLD_RANK is 0", "contradict"},
     0,
     0,
     0,
     NULL},
};

TEST(test_places_are_found_or_refused_by_name)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct Case *wanted = &cases[i];
        RankPlace place;
        FshError error = {0};
        const FshStatus status = find_place(&place, wanted->environment, &error);
        if (status != wanted->status)
            fail_msg("case %zu: status %d, %s", i, status, error.message);
        for (size_t part = 0; part < 2 && wanted->parts[part]; part++)
            assert_contains(error.message, wanted->parts[part]);
        if (status)
            continue;
        assert_int_equal(place.rank, wanted->rank);
        assert_int_equal(place.world_size, wanted->world_size);
        assert_int_equal(place.local_rank, wanted->local_rank);
        assert_int_equal(place.local_world, wanted->world_size);
        if (wanted->launcher)
            assert_string_equal(place.launcher, wanted->launcher);
        else
            assert_null(place.launcher);
    }
}

static void job_of(const char *const *environment, char *job)
{
    RankPlace place;
    FshError error = {0};
    assert_ok(find_place(&place, environment, &error), &error);
    memcpy(job, place.job, sizeof place.job);
}

TEST(test_ranks_of_a_job_share_its_name_and_jobs_do_not)
{
    static const char *const first[] = {TORCH("0", "2", "0", "2"), NULL};
    static const char *const second[] = {TORCH("1", "2", "1", "2"), NULL};
    static const char *const again[] = {TORCH("0", "2", "0", "2"), "TORCHELASTIC_RESTART_COUNT=1", NULL};
    static const char *const step[] = {SRUN("0", "2", "1"), NULL};
    char names[4][RANK_JOB_MAX];
    job_of(first, names[0]);
    job_of(second, names[1]);
    job_of(again, names[2]);
    job_of(step, names[3]);
    assert_string_equal(names[0], names[1]);
    assert_string_not_equal(names[0], names[2]);
    assert_string_not_equal(names[0], names[3]);
}

/* ---- several hosts ---- */

#define NODES(rank, local, node, tasks)                                                                      \
    "SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=" local, "SLURM_STEP_NUM_NODES=2",        \
        "SLURM_NODEID=" node, "SLURM_STEP_TASKS_PER_NODE=" tasks, "SLURM_STEP_NODELIST=gpu[07-08]",          \
        "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"
#define TORCHRUN(rank, world, local, local_world)                                                            \
    TORCH(rank, world, local, local_world), "MASTER_ADDR=gpu07", "TORCHELASTIC_RUN_ID=none"
#define OMPI_HOSTS(rank, local)                                                                              \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=" local,             \
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=12"
#define PET "PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=job-0", "PET_MASTER_PORT=23456"

enum { ANY_PORT = 0 };

static const struct HostCase {
    const char *list[20];
    uint64_t rank, world_size, local_rank, local_world;
    const char *address;
    uint16_t port; /* ANY_PORT: one by the job's names */
    const char *launcher, *wanted;
} host_cases[] = {
    {{TORCHRUN("2", "4", "0", "2")}, 2, 4, 0, 2, "gpu07", 29501, "torchrun", NULL},
    {{TORCHRUN("2", "3", "0", "1")}, 2, 3, 0, 1, "gpu07", 29501, "torchrun", NULL},
    {{TORCHRUN("2", "4", "0", "2"), "--master-port=40000"}, 2, 4, 0, 2, "gpu07", 40000, "torchrun", NULL},
    /* ftrain --gpus has started this process: nothing else listens on the port */
    {{TORCHRUN("3", "4", "1", "2"), "FSHARD_JOB=12"}, 3, 4, 1, 2, "gpu07", 29500, "ftrain --gpus", NULL},
    {{TORCHRUN("3", "4", "1", "2"), "FSHARD_JOB=12", "--nnodes=2", "--node-rank=1", "PET_NPROC_PER_NODE=2"},
     3,
     4,
     1,
     2,
     "gpu07",
     29500,
     "ftrain --gpus",
     NULL},

    {{NODES("3", "1", "1", "2(x2)")}, 3, 4, 1, 2, "gpu07", ANY_PORT, "srun", NULL},
    {{NODES("3", "0", "1", "3,1")}, 3, 4, 0, 1, "gpu07", ANY_PORT, "srun", NULL},
    {{NODES("1", "1", "0", "3,1"), "MASTER_ADDR=login", "MASTER_PORT=5"},
     1,
     4,
     1,
     3,
     "login",
     5,
     "srun",
     NULL},
    /* what srun --mpi=pmi2 sets does not say who is on this host, and neither do scripts that export RANK */
    {{NODES("3", "1", "1", "2(x2)"), "PMI_RANK=3", "PMI_SIZE=4"},
     3,
     4,
     1,
     2,
     "gpu07",
     ANY_PORT,
     "srun",
     NULL},
    {{NODES("3", "1", "1", "2(x2)"), "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=a"},
     3,
     4,
     1,
     2,
     "a",
     ANY_PORT,
     "srun",
     NULL},

    {{OMPI_HOSTS("2", "0"), "MASTER_ADDR=a"}, 2, 4, 0, 2, "a", ANY_PORT, "mpirun", NULL},
    {{OMPI_HOSTS("2", "0"), "--master-addr=b", "MASTER_ADDR=a"}, 2, 4, 0, 2, "b", ANY_PORT, "mpirun", NULL},
    {{"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "MASTER_ADDR=a"},
     3,
     4,
     1,
     2,
     "a",
     29500,
     "mpirun",
     NULL},

    {{"--world-size=2", "--rank=1", "--master-addr=fd00::1"},
     1,
     2,
     0,
     1,
     "fd00::1",
     29500,
     "--world-size",
     NULL},
    {{"--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=7"},
     1,
     2,
     0,
     1,
     "a",
     7,
     "--nnodes",
     NULL},
    {{"--nnodes=2", "--node-rank=1", "MASTER_ADDR=a", "MASTER_PORT=7"}, 1, 2, 0, 1, "a", 7, "--nnodes", NULL},
    {{"--nnodes=1", "--master-addr=a"}, 0, 1, 0, 1, "", 0, NULL, NULL},
    /* a process for each host under srun: it may start its host's ranks */
    {{"--nnodes=4", "--node-rank=3", "--master-addr=a", NODES("3", "0", "1", "3,1")},
     3,
     4,
     0,
     1,
     "a",
     29500,
     "--nnodes",
     NULL},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=9"}, 1, 2, 0, 1, "a", 9, "a launcher", NULL},

    {{PET, "PET_NPROC_PER_NODE=4"}, 1, 2, 0, 1, "job-0", 23456, "a PyTorch job", "4"},
    {{PET, "PET_NPROC_PER_NODE=auto"}, 1, 2, 0, 1, "job-0", 23456, "a PyTorch job", "all"},
    {{"PET_NNODES=2:2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=a", "PET_MASTER_PORT=5"},
     1,
     2,
     0,
     1,
     "a",
     5,
     "a PyTorch job",
     NULL},
    {{PET, "PET_NPROC_PER_NODE=1"}, 1, 2, 0, 1, "job-0", 23456, "a PyTorch job", NULL},
    {{"PET_NNODES=1", "PET_NPROC_PER_NODE=2"}, 0, 1, 0, 1, "", 0, NULL, "2"},
    {{"PET_NPROC_PER_NODE=2"}, 0, 1, 0, 1, "", 0, NULL, "2"},
    /* the training operator's first version gives each pod a rank too */
    {{PET, "PET_NPROC_PER_NODE=4", "RANK=1", "WORLD_SIZE=8", "MASTER_ADDR=b", "MASTER_PORT=1"},
     1,
     2,
     0,
     1,
     "job-0",
     23456,
     "a PyTorch job",
     "4"},
    /* torchrun has read them already */
    {{PET, "PET_NPROC_PER_NODE=2", TORCHRUN("3", "4", "1", "2")},
     3,
     4,
     1,
     2,
     "gpu07",
     29501,
     "torchrun",
     NULL},
};

TEST(test_places_on_several_hosts_are_found)
{
    for (size_t i = 0; i < sizeof host_cases / sizeof *host_cases; i++) {
        const struct HostCase *wanted = &host_cases[i];
        RankPlace place;
        FshError error = {0};
        if (find_place(&place, wanted->list, &error) != FSH_OK)
            fail_msg("case %zu: %s", i, error.message);
        if (place.rank != wanted->rank || place.world_size != wanted->world_size ||
            place.local_rank != wanted->local_rank || place.local_world != wanted->local_world)
            fail_msg("case %zu: rank %d of %d, %d of %d here", i, (int)place.rank, (int)place.world_size,
                     (int)place.local_rank, (int)place.local_world);
        if (strcmp(place.address, wanted->address) != 0)
            fail_msg("case %zu: the address is '%s'", i, place.address);
        if (wanted->port == ANY_PORT && place.world_size > 1)
            assert_true(place.port >= RANK_PORT_FIRST && place.port <= RANK_PORT_LAST);
        else if (place.port != wanted->port)
            fail_msg("case %zu: the port is %d", i, place.port);
        if (wanted->launcher)
            assert_string_equal(place.launcher, wanted->launcher);
        else
            assert_null(place.launcher);
        if (wanted->wanted)
            assert_string_equal(place.wanted_ranks, wanted->wanted);
        else
            assert_null(place.wanted_ranks);
    }
}

static const struct BadHosts {
    const char *list[20];
    const char *parts[2];
} bad_hosts[] = {
    {{TORCH("2", "4", "0", "2")}, {"MASTER_ADDR is not set", "several hosts"}},
    {{TORCHRUN("0", "4", "1", "2")}, {"RANK is 0 and LOCAL_RANK is 1", "must follow each other"}},
    {{TORCHRUN("3", "4", "0", "2")}, {"RANK is 3 and LOCAL_RANK is 0", "must follow each other"}},
    {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65535"},
     {"MASTER_PORT is 65535", "torchrun listens on it"}},
    {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=p"},
     {"MASTER_PORT is 'p'", "torchrun sets"}},
    {{OMPI_HOSTS("2", "0")}, {"MASTER_ADDR is not set", "mpirun -x MASTER_ADDR=HOST"}},
    {{"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     {"MASTER_ADDR is not set", "mpirun -genv MASTER_ADDR HOST"}},
    {{NODES("2", "1", "0", "2(x2)")}, {"SLURM_PROCID is 2", "--distribution block"}},
    {{NODES("3", "1", "2", "2(x2)")}, {"SLURM_STEP_TASKS_PER_NODE is '2(x2)'", "SLURM_NODEID 2"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=1", "SLURM_STEP_NUM_NODES=2",
      "SLURM_NODEID=0"},
     {"SLURM_STEP_TASKS_PER_NODE is not set", "srun"}},
    {{"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_LOCALID=1", "SLURM_STEP_NUM_NODES=2",
      "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2(x2)"},
     {"MASTER_ADDR is not set", "SLURM_STEP_NODELIST"}},
    {{"SLURM_STEP_NODELIST=[", NODES("1", "1", "0", "2(x2)")}, {"MASTER_ADDR", "SLURM_STEP_NODELIST"}},
    {{"--world-size=2", "--master-addr=a"}, {"--rank is missing, though --world-size is given"}},
    {{"--rank=1", "--master-addr=a"}, {"--world-size is missing, though --rank is given"}},
    {{"--node-rank=1"}, {"--nnodes is missing, though --node-rank is given"}},
    {{"--nnodes=2", "--node-rank=2", "--master-addr=a"},
     {"--node-rank is 2, which is no rank of --nnodes 2"}},
    {{"--nnodes=two", "--node-rank=0"}, {"--nnodes is 'two', and should be a number"}},
    {{"--nnodes=2", "--node-rank=0"}, {"MASTER_ADDR is not set", "give --master-addr"}},
    {{"--nnodes=2", "--node-rank=0", "--world-size=2", "--rank=0", "--master-addr=a"},
     {"--world-size", "give one of them"}},
    {{"--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=0"}, {"--master-port is 0"}},
    {{"--nnodes=2", "--node-rank=0", "--master-addr=a", "--master-port=65536"}, {"--master-port is 65536"}},
    {{"--master-addr=a"}, {"--master-addr: does nothing here"}},
    {{"--master-port=1"}, {"--master-port: does nothing here"}},
    {{"--nnodes=2", "--node-rank=0", "--master-addr=a", OMPI("1", "2")},
     {"--node-rank is 0 and OMPI_COMM_WORLD_RANK is 1", "contradict"}},
    {{"PET_NNODES=1:4", "PET_NODE_RANK=0"},
     {"PET_NNODES is '1:4', a range", "torchrun --nnodes 1:4 --no-python"}},
    {{"--nnodes=2:4", "--node-rank=0"}, {"--nnodes is '2:4', a range", "give one number"}},
    {{"PET_NNODES=:4", "PET_NODE_RANK=0"}, {"PET_NNODES is ':4'", "a PyTorch job sets"}},
    {{"PET_NNODES=4:", "PET_NODE_RANK=0"}, {"PET_NNODES is '4:'", "a PyTorch job sets"}},
    {{"--world-size=2", "--rank=0:1"}, {"--rank is '0:1', and should be a number"}},
    {{"PET_NNODES=2"}, {"PET_NODE_RANK is not set, though PET_NNODES is"}},
    {{"PET_NNODES=2", "PET_NODE_RANK=1"}, {"PET_MASTER_ADDR is not set"}},
    {{PET, "PET_NPROC_PER_NODE=cpu"}, {"PET_NPROC_PER_NODE is 'cpu'", "a number"}},
};

TEST(test_contradictions_between_hosts_are_refused_by_name)
{
    for (size_t i = 0; i < sizeof bad_hosts / sizeof *bad_hosts; i++) {
        RankPlace place;
        FshError error = {0};
        if (find_place(&place, bad_hosts[i].list, &error) != FSH_ERR_USAGE)
            fail_msg("case %zu is not refused: '%s'", i, error.message);
        for (size_t part = 0; part < 2 && bad_hosts[i].parts[part]; part++)
            if (!strstr(error.message, bad_hosts[i].parts[part]))
                fail_msg("case %zu: '%s' does not say '%s'", i, error.message, bad_hosts[i].parts[part]);
    }
}

/* Hosts meet under one name and port; what they share on a machine (/dev/shm) keeps them apart. */
TEST(test_hosts_of_a_job_share_its_run_and_not_its_memory)
{
    static const char *const lists[][20] = {
        {NODES("1", "1", "0", "2(x2)")}, {NODES("2", "0", "1", "2(x2)")}, {NODES("3", "1", "1", "2(x2)")}};
    RankPlace places[3];
    FshError error = {0};
    for (size_t i = 0; i < 3; i++)
        assert_ok(find_place(&places[i], lists[i], &error), &error);
    assert_int_equal(places[0].port, places[1].port);
    assert_true(places[0].run == places[1].run && places[0].run == places[2].run);
    assert_string_not_equal(places[0].job, places[1].job);
    assert_string_equal(places[1].job, places[2].job);
    assert_int_equal(rank_place_first(&places[2]), 2);
}

/* Containers may share the memory of a machine and count processes each for themselves. */
TEST(test_hosts_by_hand_that_meet_elsewhere_are_another_job)
{
    static const char *const lists[][8] = {
        {"--nnodes=2", "--node-rank=1", "--master-addr=a"},
        {"--nnodes=2", "--node-rank=1", "--master-addr=a"},
        {"--nnodes=2", "--node-rank=1", "--master-addr=b"},
        {"--nnodes=2", "--node-rank=1", "--master-addr=a", "--master-port=7"},
    };
    char names[4][RANK_JOB_MAX];
    for (size_t i = 0; i < 4; i++)
        job_of(lists[i], names[i]);
    assert_string_equal(names[0], names[1]);
    assert_string_not_equal(names[0], names[2]);
    assert_string_not_equal(names[0], names[3]);
}

/* Two shells on one machine: their ranks share its memory, and the job's name is that of their port. */
TEST(test_processes_by_hand_on_a_loopback_address_share_a_host)
{
    static const char *const lists[][8] = {
        {"--world-size=2", "--rank=0", "--master-addr=127.0.0.1"},
        {"--world-size=2", "--rank=1", "--master-addr=127.0.0.1"},
        {"--world-size=2", "--rank=1", "--master-addr=127.0.0.1", "--master-port=4"},
        {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=localhost", "MASTER_PORT=4"},
    };
    RankPlace places[4];
    FshError error = {0};
    for (size_t i = 0; i < 4; i++) {
        assert_ok(find_place(&places[i], lists[i], &error), &error);
        assert_int_equal(places[i].local_rank, i == 0 ? 0 : 1);
        assert_int_equal(places[i].local_world, 2);
        assert_string_equal(places[i].address, "");
    }
    assert_string_equal(places[0].job, places[1].job);
    assert_string_not_equal(places[1].job, places[2].job);
}
