#include "trainer/ranks/rank_launchers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const RankLauncher rank_launchers[RANK_LAUNCHER_COUNT] = {
    {.name = "ftrain --gpus",
     .step = "FSHARD_JOB",
     .rank = "RANK",
     .world_size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_world = "LOCAL_WORLD_SIZE",
     .says_locals = true,
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .job = {"FSHARD_JOB"}},
    {.name = "--world-size",
     .rank = "--rank",
     .world_size = "--world-size",
     .own_host = true,
     .may_share_host = true,
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .remedy = "give --master-addr, the host of --rank 0 (127.0.0.1 if all are on one)"},
    {.name = "--nnodes",
     .rank = "--node-rank",
     .world_size = "--nnodes",
     .own_host = true,
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .remedy = "give --master-addr, the host of --node-rank 0"},
    {.name = "a PyTorch job",
     .unless = "LOCAL_RANK",
     .rank = "PET_NODE_RANK",
     .world_size = "PET_NNODES",
     .own_host = true,
     .address = "PET_MASTER_ADDR",
     .port = "PET_MASTER_PORT",
     .remedy = "set PET_MASTER_ADDR to the host of PET_NODE_RANK 0",
     .wanted_ranks = "PET_NPROC_PER_NODE"},
    {.name = "torchrun",
     .rank = "RANK",
     .world_size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_world = "LOCAL_WORLD_SIZE",
     .says_locals = true,
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .holds_port = true,
     .remedy = "torchrun sets it; without torchrun set it to the host of rank 0",
     .job = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     .shared_names = 2},
    {.name = "mpirun",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world_size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .says_locals = true,
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .remedy = "start with mpirun -x MASTER_ADDR=HOST, the host of rank 0",
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     .shared_names = 2},
    {.name = "mpirun",
     .rank = "PMI_RANK",
     .world_size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_world = "MPI_LOCALNRANKS",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .remedy = "start with mpirun -genv MASTER_ADDR HOST, the host of rank 0"},
    {.name = "srun",
     .step = "SLURM_STEP_NUM_TASKS",
     .rank = "SLURM_PROCID",
     .world_size = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .hosts = "SLURM_STEP_NUM_NODES",
     .host = "SLURM_NODEID",
     .tasks = "SLURM_STEP_TASKS_PER_NODE",
     .host_names = "SLURM_STEP_NODELIST",
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     .shared_names = 2},
    {.name = "a launcher",
     .step = "MASTER_ADDR",
     .unless = "LOCAL_RANK",
     .rank = "RANK",
     .world_size = "WORLD_SIZE",
     .own_host = true,
     .may_share_host = true,
     .address = "MASTER_ADDR",
     .port = "MASTER_PORT"},
};

static bool is_option(const char *name)
{
    return name[0] == '-';
}

static const char *option_text(const RankOptions *options, const char *name)
{
    const struct {
        const char *name, *text;
    } texts[] = {{"--nnodes", options->nnodes},           {"--node-rank", options->node_rank},
                 {"--master-addr", options->master_addr}, {"--master-port", options->master_port},
                 {"--world-size", options->world_size},   {"--rank", options->rank}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].name, name) == 0)
            return texts[i].text;
    return NULL;
}

const char *rank_value(const RankEnvironment *environment, const char *name)
{
    const char *value = NULL;
    if (name && !is_option(name))
        value = environment->lookup(environment->context, name);
    else if (name && environment->options)
        value = option_text(environment->options, name);
    return value && *value ? value : NULL;
}

FshStatus rank_value_missing(const RankEnvironment *environment, const RankLauncher *launcher,
                             const char *name, FshError *error)
{
    const char *there = rank_value(environment, launcher->rank) ? launcher->rank : launcher->world_size;
    if (is_option(name))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s is missing, though %s is given: they go together",
                             name, there);
    return fsh_error_set(
        error, FSH_ERR_USAGE,
        "%s is not set, though %s is: start every process with %s, or unset %s to train with "
        "one process",
        name, there, launcher->name, there);
}

enum { DIGITS_MAX = 9 };

/* Returns whether the text is a range of numbers of hosts, "2:4". Sets *same_ret to whether it holds one. */
static bool is_range(const char *text, bool *same_ret)
{
    const size_t first = strspn(text, "0123456789"),
                 second = strspn(text + first + (text[first] == ':'), "0123456789");
    *same_ret = first == second && strncmp(text, text + first + 1, first) == 0;
    return first > 0 && second > 0 && text[first] == ':' && !text[first + 1 + second];
}

/* Refuses a range of numbers of hosts. */
static FshStatus refuse_range(const char *name, const char *text, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "%s is '%.40s', a range, of which torchrun chooses as hosts come and go: start "
                         "ftrain by it (torchrun "
                         "--nnodes %.40s --no-python ftrain --elastic --resume auto), or give one number",
                         name, text, text);
}

FshStatus rank_number(const RankEnvironment *environment, const RankLauncher *launcher, const char *name,
                      bool needed, uint64_t *number_ret, bool *known_ret, FshError *error)
{
    bool same = false;
    const char *text = rank_value(environment, name);
    *known_ret = text != NULL;
    if (!text && needed)
        return rank_value_missing(environment, launcher, name, error);
    if (!text)
        return FSH_OK;
    const size_t length = strspn(text, "0123456789");
    const bool ranges = launcher->own_host && name == launcher->world_size && is_range(text, &same);
    if (ranges && !same)
        return refuse_range(name, text, error);
    if ((text[length] && !ranges) || length > DIGITS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s is '%.40s', and should be a number%s%s%s", name, text,
                             is_option(name) ? "" : " that ", is_option(name) ? "" : launcher->name,
                             is_option(name) ? "" : " sets");
    *number_ret = strtoull(text, NULL, 10);
    return FSH_OK;
}
