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

#define TORCH(rank, world, local, local_world)                                                               \
    "RANK=" rank, "WORLD_SIZE=" world, "LOCAL_RANK=" local, "LOCAL_WORLD_SIZE=" local_world,                 \
        "MASTER_PORT=29500"
#define OMPI(rank, world)                                                                                    \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" world, "OMPI_COMM_WORLD_LOCAL_RANK=" rank,         \
        "OMPI_COMM_WORLD_LOCAL_SIZE=" world
#define SRUN(rank, world, hosts)                                                                             \
    "SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=" world, "SLURM_LOCALID=" rank,                              \
        "SLURM_STEP_NUM_NODES=" hosts, "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"

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
    {{TORCH("2", "4", "0", "2")},
     FSH_ERR_UNSUPPORTED,
     {"LOCAL_WORLD_SIZE is 2", "several hosts"},
     0,
     0,
     0,
     NULL},
    {{SRUN("1", "4", "2")},
     FSH_ERR_UNSUPPORTED,
     {"SLURM_STEP_NUM_NODES is 2", "several hosts"},
     0,
     0,
     0,
     NULL},
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
        const FshStatus status = rank_place_find(&place, in_list, (void *)wanted->environment, &error);
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
    assert_ok(rank_place_find(&place, in_list, (void *)environment, &error), &error);
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
