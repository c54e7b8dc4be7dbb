#include "trainer/ranks/rank_place.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { JOB_VARIABLES_MAX = 4 };

/* Environment variables of each launcher, innermost first: torchrun may run under srun, mpirun starts its
 * daemons by srun, and the variables of outer launchers stay in the environment. */
static const struct Launcher {
    const char *name;
    const char *rank, *world_size;
    const char *local_rank, *local_world;
    bool says_locals;  /* it always sets the local ones; if another does not, all ranks are taken to be on
                        * this host */
    const char *hosts; /* the number of hosts; NULL: known from the local world */
    const char *step;  /* must be set too, or the launcher is not there; NULL: nothing */
    const char *job[JOB_VARIABLES_MAX];
} launchers[] = {
    {.name = "torchrun",
     .rank = "RANK",
     .world_size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_world = "LOCAL_WORLD_SIZE",
     .says_locals = true,
     .job = {"FSHARD_JOB", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {.name = "mpirun",
     .rank = "OMPI_COMM_WORLD_RANK",
     .world_size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_world = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .says_locals = true,
     .job = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {.name = "mpirun",
     .rank = "PMI_RANK",
     .world_size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_world = "MPI_LOCALNRANKS",
     .job = {NULL}},
    {.name = "srun",
     .rank = "SLURM_PROCID",
     .world_size = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .local_world = "SLURM_NTASKS_PER_NODE",
     .hosts = "SLURM_STEP_NUM_NODES",
     .step = "SLURM_STEP_NUM_TASKS",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};
enum { LAUNCHER_COUNT = sizeof launchers / sizeof *launchers };

typedef struct Environment {
    RankLookup lookup;
    void *context;
} Environment;

static const char *value_of(const Environment *environment, const char *name)
{
    const char *value = name ? environment->lookup(environment->context, name) : NULL;
    return value && *value ? value : NULL;
}

/* Sets *number_ret to the variable's number. *known_ret is set to false if the variable is not set and need
 * not be. */
static FshStatus read_number(const Environment *environment, const struct Launcher *launcher,
                             const char *name, bool needed, uint64_t *number_ret, bool *known_ret,
                             FshError *error)
{
    enum { DIGITS_MAX = 9 };
    const char *text = value_of(environment, name);
    *known_ret = text != NULL;
    if (!text && needed)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s is not set, though %s is: start every process with %s, or unset %s to train with "
            "one process",
            name, value_of(environment, launcher->rank) ? launcher->rank : launcher->world_size,
            launcher->name, value_of(environment, launcher->rank) ? launcher->rank : launcher->world_size);
    if (!text)
        return FSH_OK;
    const size_t length = strlen(text);
    bool digits = length <= DIGITS_MAX;
    for (size_t i = 0; i < length; i++)
        digits = digits && isdigit((unsigned char)text[i]);
    if (!digits)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s is '%.40s', and should be a number that %s sets", name,
                             text, launcher->name);
    *number_ret = strtoull(text, NULL, 10);
    return FSH_OK;
}

static bool is_there(const Environment *environment, const struct Launcher *launcher)
{
    return (value_of(environment, launcher->rank) || value_of(environment, launcher->world_size)) &&
           (!launcher->step || value_of(environment, launcher->step));
}

/* Checks that rank < world_size; the message names the variables. */
static FshStatus check_below(const char *name, uint64_t number, const char *of, uint64_t count,
                             FshError *error)
{
    if (number < count)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s is %" PRIu64 ", which is no rank of %s %" PRIu64, name,
                         number, of, count);
}

static FshStatus refuse_hosts(const struct Launcher *launcher, const char *name, uint64_t number,
                              uint64_t world_size, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                         "%s is %" PRIu64 " and %s %" PRIu64
                         ": the ranks are on several hosts, which ftrain cannot do yet; start all on one",
                         name, number, launcher->world_size, world_size);
}

/* Reads the place among the ranks of this host. FSH_ERR_UNSUPPORTED: there are several hosts. */
static FshStatus read_locals(const Environment *environment, const struct Launcher *launcher,
                             RankPlace *place, FshError *error)
{
    bool has_rank = false, has_world = false, has_hosts = false;
    uint64_t hosts = 1, local_world = place->world_size;
    FshStatus status = read_number(environment, launcher, launcher->local_rank, launcher->says_locals,
                                   &place->local_rank, &has_rank, error);
    if (!status)
        status = read_number(environment, launcher, launcher->local_world, launcher->says_locals,
                             &local_world, &has_world, error);
    if (!status && launcher->hosts)
        status = read_number(environment, launcher, launcher->hosts, false, &hosts, &has_hosts, error);
    if (status)
        return status;
    if (hosts > 1)
        return refuse_hosts(launcher, launcher->hosts, hosts, place->world_size, error);
    if (!has_world || has_hosts)
        local_world = place->world_size;
    place->local_world = local_world;
    if (!has_rank)
        place->local_rank = place->rank;
    if (local_world > place->world_size)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s is %" PRIu64 ", more than %s %" PRIu64 "; one of them is of another run",
                             launcher->local_world, local_world, launcher->world_size, place->world_size);
    if (local_world < place->world_size)
        return refuse_hosts(launcher, launcher->local_world, local_world, place->world_size, error);
    return check_below(launcher->local_rank, place->local_rank, launcher->local_world, local_world, error);
}

/* Adds text to a hash (FNV-1a, 64 bits). */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return (hash ^ 0xFF) * UINT64_C(0x100000001B3); /* marks the end: "a", "b" is not "ab" */
}

/* Names the job. If the launcher names none, the parent process does, which is the same for all ranks of this
 * host. */
static void name_job(const Environment *environment, const struct Launcher *launcher, RankPlace *place)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    bool named = false;
    for (size_t i = 0; i < JOB_VARIABLES_MAX; i++) {
        const char *value = value_of(environment, launcher->job[i]);
        named = named || value;
        hash = hash_text(hash, value ? value : "");
    }
    if (!named) {
        char parent[24];
        (void)snprintf(parent, sizeof parent, "%ld", (long)getppid());
        hash = hash_text(hash, parent);
    }
    (void)snprintf(place->job, sizeof place->job, "%s-%016" PRIx64, launcher->name, hash);
}

static FshStatus read_ranks(const Environment *environment, const struct Launcher *launcher, RankPlace *place,
                            FshError *error)
{
    bool known = false;
    FshStatus status = read_number(environment, launcher, launcher->rank, true, &place->rank, &known, error);
    if (!status)
        status =
            read_number(environment, launcher, launcher->world_size, true, &place->world_size, &known, error);
    return status ? status
                  : check_below(launcher->rank, place->rank, launcher->world_size, place->world_size, error);
}

/* Checks that another launcher with the same number of processes means the same ranks. */
static FshStatus check_others(const Environment *environment, const struct Launcher *chosen,
                              const RankPlace *place, FshError *error)
{
    for (const struct Launcher *other = launchers; other < launchers + LAUNCHER_COUNT; other++) {
        RankPlace theirs = {0};
        if (other == chosen || !is_there(environment, other) ||
            read_ranks(environment, other, &theirs, NULL) != FSH_OK)
            continue;
        if (theirs.world_size == place->world_size && theirs.rank != place->rank)
            return fsh_error_set(
                error, FSH_ERR_USAGE,
                "%s is %" PRIu64 " and %s is %" PRIu64 ", both of %" PRIu64
                " ranks: they contradict each other; unset the variables of the one that did not "
                "start this process",
                chosen->rank, place->rank, other->rank, theirs.rank, place->world_size);
    }
    return FSH_OK;
}

FshStatus rank_place_find(RankPlace *place, RankLookup lookup, void *context, FshError *error)
{
    const Environment environment = {lookup, context};
    const struct Launcher *launcher = launchers;
    *place = (RankPlace){.world_size = 1, .local_world = 1};
    while (launcher < launchers + LAUNCHER_COUNT && !is_there(&environment, launcher))
        launcher++;
    if (launcher == launchers + LAUNCHER_COUNT)
        return FSH_OK;
    FshStatus status = read_ranks(&environment, launcher, place, error);
    if (!status && place->world_size == 1)
        return FSH_OK;
    if (!status)
        status = read_locals(&environment, launcher, place, error);
    if (!status)
        status = check_others(&environment, launcher, place, error);
    if (!status && place->world_size > RANKS_MAX)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s is %" PRIu64 "; %d ranks at most",
                               launcher->world_size, place->world_size, RANKS_MAX);
    if (status)
        return status;
    place->launcher =
        value_of(&environment, "FSHARD_JOB") && launcher == launchers ? "ftrain --gpus" : launcher->name;
    name_job(&environment, launcher, place);
    return FSH_OK;
}

static const char *from_environment(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

FshStatus rank_place_from_environment(RankPlace *place, FshError *error)
{
    return rank_place_find(place, from_environment, NULL, error);
}
