#include "trainer/ranks/rank_place.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/ranks/node_list.h"

enum { JOB_NAMES_MAX = 4 };

/* What each launcher calls the parts of a place, innermost launcher first: torchrun may run under srun,
 * mpirun starts its daemons by srun, and the variables of outer launchers stay in the environment. Names that
 * begin with "--" are options. */
static const struct Launcher {
    const char *name;
    const char *step;   /* must be set too, or the launcher is not there; NULL: nothing */
    const char *unless; /* must not be set; NULL: nothing */
    const char *rank, *world_size;
    const char *local_rank, *local_world;
    const char *hosts;                     /* the number of hosts; NULL: known from the local world */
    const char *host, *tasks, *host_names; /* of several: this host's index, the tasks of each, their names */
    const char *address, *port;
    const char *remedy; /* for a missing address */
    const char *wanted_ranks;
    const char *job[JOB_NAMES_MAX]; /* what names the job on this host; its beginning is the same on all */
    size_t shared_names;            /* how many of them are */
    bool own_host;                  /* each process counts as a host, and there are no local ranks */
    bool says_locals;               /* it always sets the local ones; if another does not, all ranks are taken
                                     * to be on this host */
    bool may_share_host;            /* own_host, but on a loopback address all processes are on this one */
    bool holds_port;                /* the launcher itself listens on the port: take the next */
} launchers[] = {
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
enum { LAUNCHER_COUNT = sizeof launchers / sizeof *launchers };

typedef struct Environment {
    const RankOptions *options; /* NULL: none */
    RankLookup lookup;
    void *context;
} Environment;

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

/* Returns the text of an option or a variable; NULL: it is not given, or empty. */
static const char *value_of(const Environment *environment, const char *name)
{
    const char *value = NULL;
    if (name && !is_option(name))
        value = environment->lookup(environment->context, name);
    else if (name && environment->options)
        value = option_text(environment->options, name);
    return value && *value ? value : NULL;
}

static FshStatus say_missing(const Environment *environment, const struct Launcher *launcher,
                             const char *name, FshError *error)
{
    const char *there = value_of(environment, launcher->rank) ? launcher->rank : launcher->world_size;
    if (is_option(name))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s is missing, though %s is given: they go together",
                             name, there);
    return fsh_error_set(
        error, FSH_ERR_USAGE,
        "%s is not set, though %s is: start every process with %s, or unset %s to train with "
        "one process",
        name, there, launcher->name, there);
}

/* Sets *number_ret to the number that an option or a variable has. *known_ret is set to false if it is not
 * given and need not be. */
static FshStatus read_number(const Environment *environment, const struct Launcher *launcher,
                             const char *name, bool needed, uint64_t *number_ret, bool *known_ret,
                             FshError *error)
{
    enum { DIGITS_MAX = 9 };
    const char *text = value_of(environment, name);
    *known_ret = text != NULL;
    if (!text && needed)
        return say_missing(environment, launcher, name, error);
    if (!text)
        return FSH_OK;
    const size_t length = strspn(text, "0123456789");
    if (text[length] || length > DIGITS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s is '%.40s', and should be a number%s%s%s", name, text,
                             is_option(name) ? "" : " that ", is_option(name) ? "" : launcher->name,
                             is_option(name) ? "" : " sets");
    *number_ret = strtoull(text, NULL, 10);
    return FSH_OK;
}

static bool is_there(const Environment *environment, const struct Launcher *launcher)
{
    return (value_of(environment, launcher->rank) || value_of(environment, launcher->world_size)) &&
           (!launcher->step || value_of(environment, launcher->step)) &&
           !value_of(environment, launcher->unless);
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

static FshStatus read_ranks(const Environment *environment, const struct Launcher *launcher, RankPlace *place,
                            FshError *error)
{
    bool known = false;
    FshStatus status =
        read_number(environment, launcher, launcher->world_size, true, &place->world_size, &known, error);
    const bool needed = !launcher->own_host || place->world_size != 1;
    if (!status)
        status = read_number(environment, launcher, launcher->rank, needed, &place->rank, &known, error);
    return status ? status
                  : check_below(launcher->rank, place->rank, launcher->world_size, place->world_size, error);
}

/* ---- which launcher ---- */

/* Returns whether the launcher says which ranks are on this host. */
static bool says_hosts(const Environment *environment, const struct Launcher *launcher)
{
    return launcher->own_host || launcher->hosts ||
           (value_of(environment, launcher->local_rank) && value_of(environment, launcher->local_world));
}

static bool has_same_rank(const Environment *environment, const struct Launcher *launcher,
                          const struct Launcher *other)
{
    RankPlace own = {0}, theirs = {0};
    return read_ranks(environment, launcher, &own, NULL) == FSH_OK &&
           read_ranks(environment, other, &theirs, NULL) == FSH_OK && own.rank == theirs.rank &&
           own.world_size == theirs.world_size;
}

/* Returns the innermost launcher, or one behind it that has given the same rank and alone says which ranks
 * are on this host. NULL: there is none. */
static const struct Launcher *choose_launcher(const Environment *environment)
{
    const struct Launcher *const end = launchers + LAUNCHER_COUNT, *chosen = launchers;
    while (chosen < end && !is_there(environment, chosen))
        chosen++;
    if (chosen == end || says_hosts(environment, chosen))
        return chosen == end ? NULL : chosen;
    for (const struct Launcher *other = chosen + 1; other < end; other++)
        if (is_there(environment, other) && says_hosts(environment, other) &&
            has_same_rank(environment, chosen, other))
            return other;
    return chosen;
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

/* Refuses options of places that would do nothing. */
static FshStatus check_options(const Environment *environment, const struct Launcher *chosen, FshError *error)
{
    const char *given = value_of(environment, "--master-addr") ? "--master-addr" : "--master-port";
    if (!chosen && value_of(environment, given))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: does nothing here: one process trains; --nnodes and --node-rank, or a "
                             "launcher, say that there are others",
                             given);
    if (value_of(environment, "--world-size") && value_of(environment, "--nnodes"))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--world-size: counts processes and --nnodes counts hosts; give one of them");
    return FSH_OK;
}

/* ---- this host ---- */

/* Checks that the ranks of this host can follow each other. */
static FshStatus check_block(const struct Launcher *launcher, const RankPlace *place, FshError *error)
{
    if (place->rank >= place->local_rank &&
        place->rank - place->local_rank + place->local_world <= place->world_size)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE,
                         "%s is %" PRIu64 " and %s is %" PRIu64
                         ": the ranks of a host must follow each other; start with mpirun --map-by slot, or "
                         "srun --distribution block",
                         launcher->rank, place->rank, launcher->local_rank, place->local_rank);
}

/* Reads the number of ranks on this host from what srun says of all hosts. */
static FshStatus read_tasks(const Environment *environment, const struct Launcher *launcher, RankPlace *place,
                            FshError *error)
{
    uint64_t host = 0;
    bool known = false;
    NodeTasks tasks;
    const char *list = value_of(environment, launcher->tasks);
    FshStatus status = read_number(environment, launcher, launcher->host, true, &host, &known, error);
    if (!status && !list)
        status = say_missing(environment, launcher, launcher->tasks, error);
    if (status)
        return status;
    if (!node_list_tasks(list, host, &tasks))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s is '%.40s', and should say how many tasks %s %" PRIu64 " has",
                             launcher->tasks, list, launcher->host, host);
    if (tasks.before + place->local_rank != place->rank)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s is %" PRIu64 ", and %s '%.40s' makes rank %" PRIu64
            " the first of this host: the ranks of a host must follow each other; start with "
            "srun --distribution block",
            launcher->rank, place->rank, launcher->tasks, list, tasks.before);
    place->local_world = tasks.count;
    return FSH_OK;
}

/* Reads the place among the ranks of this host. */
static FshStatus read_locals(const Environment *environment, const struct Launcher *launcher,
                             RankPlace *place, FshError *error)
{
    bool has_rank = false, known = false;
    uint64_t hosts = 1;
    if (launcher->own_host)
        return FSH_OK;
    place->local_world = place->world_size;
    FshStatus status = read_number(environment, launcher, launcher->local_rank, launcher->says_locals,
                                   &place->local_rank, &has_rank, error);
    if (!status && launcher->local_world)
        status = read_number(environment, launcher, launcher->local_world, launcher->says_locals,
                             &place->local_world, &known, error);
    if (!status && launcher->hosts)
        status = read_number(environment, launcher, launcher->hosts, false, &hosts, &known, error);
    if (!status && hosts > 1)
        status = read_tasks(environment, launcher, place, error);
    if (status)
        return status;
    if (!has_rank)
        place->local_rank = place->rank;
    if (place->local_world > place->world_size)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s is %" PRIu64 ", more than %s %" PRIu64 "; one of them is of another run",
                             launcher->local_world ? launcher->local_world : launcher->tasks,
                             place->local_world, launcher->world_size, place->world_size);
    status = check_below(launcher->local_rank, place->local_rank,
                         launcher->local_world ? launcher->local_world : launcher->tasks, place->local_world,
                         error);
    return status ? status : check_block(launcher, place, error);
}

/* ---- names ---- */

/* Adds text to a hash (FNV-1a, 64 bits). */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return (hash ^ 0xFF) * UINT64_C(0x100000001B3); /* marks the end: "a", "b" is not "ab" */
}

/* Hashes the first `count` names of the job. *named_ret is set to whether there is any. */
static uint64_t hash_names(const Environment *environment, const struct Launcher *launcher, size_t count,
                           bool *named_ret)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    *named_ret = false;
    for (size_t i = 0; i < count; i++) {
        const char *value = value_of(environment, launcher->job[i]);
        *named_ret = *named_ret || value;
        hash = hash_text(hash, value ? value : "");
    }
    return hash;
}

/* Names the job on this host. If the launcher names none, the parent process does, which is the same for all
 * ranks of this host; a process that is its own host names itself; processes by hand that share a host are
 * named by their port. The first rank keeps hosts apart that share a machine, and the meeting place keeps
 * runs apart whose containers share its memory: there process numbers may be the same. */
static void name_job(const Environment *environment, const struct Launcher *launcher, RankPlace *place)
{
    bool named = false;
    char numbers[72], word[24];
    size_t length = 0;
    uint64_t hash = hash_names(environment, launcher, JOB_NAMES_MAX, &named);
    const long shared = launcher->own_host ? (long)place->port : (long)getppid();
    const long number = named                                               ? 0
                        : launcher->own_host && rank_place_has_hosts(place) ? (long)getpid()
                                                                            : shared;
    (void)snprintf(numbers, sizeof numbers, "%ld %" PRIu64 " %u", number, rank_place_first(place),
                   (unsigned)place->port);
    hash = hash_text(hash_text(hash, numbers), place->address);
    for (const char *at = launcher->name; *at && length + 1 < sizeof word; at++)
        if (isalnum((unsigned char)*at))
            word[length++] = *at;
    word[length] = '\0';
    (void)snprintf(place->job, sizeof place->job, "%s-%016" PRIx64, word, hash);
}

/* ---- where hosts meet ---- */

static FshStatus find_address(const Environment *environment, const struct Launcher *launcher,
                              RankPlace *place, FshError *error)
{
    const char *names[] = {"--master-addr", launcher->address};
    const char *list = value_of(environment, launcher->host_names);
    for (size_t i = 0; i < 2; i++) {
        const char *value = value_of(environment, names[i]);
        if (!value)
            continue;
        if (strlen(value) >= sizeof place->address)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s is '%.40s…', and should be a host's name or address", names[i], value);
        (void)snprintf(place->address, sizeof place->address, "%s", value);
        return FSH_OK;
    }
    if (list && !node_list_first(list, place->address, sizeof place->address))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s is '%.40s', and should be a list of hosts; set %s to the first of them",
                             launcher->host_names, list, launcher->address);
    if (!list)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s is not set, and the ranks are on several hosts, which meet at it: %s",
                             launcher->address, launcher->remedy ? launcher->remedy : launcher->host_names);
    return FSH_OK;
}

static FshStatus find_port(const Environment *environment, const struct Launcher *launcher, RankPlace *place,
                           FshError *error)
{
    bool named = false, known = false;
    const char *option = value_of(environment, "--master-port") ? "--master-port" : NULL;
    const char *name = option ? option : launcher->port;
    const uint64_t hash = hash_names(environment, launcher, launcher->shared_names, &named);
    uint64_t port =
        !named ? RANK_PORT_DEFAULT : RANK_PORT_FIRST + hash % (RANK_PORT_LAST - RANK_PORT_FIRST + 1);
    FshStatus status = read_number(environment, launcher, name, false, &port, &known, error);
    if (status)
        return status;
    const uint64_t beside = known && !option && launcher->holds_port ? 1 : 0;
    if (port < 1 || port + beside > UINT16_MAX)
        return fsh_error_set(
            error, FSH_ERR_USAGE, "%s is %" PRIu64 ", and should be a port from 1 to %" PRIu64 "%s", name,
            port, UINT16_MAX - beside, beside ? ": torchrun listens on it, and ftrain on the next" : "");
    place->port = (uint16_t)(port + beside);
    place->run = hash;
    return FSH_OK;
}

bool rank_address_is_loopback(const char *text)
{
    return strncmp(text, "127.", 4) == 0 || strcmp(text, "localhost") == 0 || strcmp(text, "::1") == 0;
}

/* Makes processes that are their own hosts the ranks of one host, if their address can be no other host's.
 * They need no address then. */
static void share_host(const struct Launcher *launcher, RankPlace *place)
{
    if (!launcher->may_share_host || !rank_address_is_loopback(place->address))
        return;
    place->local_rank = place->rank;
    place->local_world = place->world_size;
    place->address[0] = '\0';
    place->run = 0;
}

/* ---- all of it ---- */

/* Sets place->wanted_ranks: "all", or a number above 1. */
static FshStatus read_wanted(const Environment *environment, const struct Launcher *launcher,
                             RankPlace *place, FshError *error)
{
    static const struct Launcher none = {
        .name = "a PyTorch job", .unless = "LOCAL_RANK", .wanted_ranks = "PET_NPROC_PER_NODE"};
    const struct Launcher *from = launcher ? launcher : &none;
    const char *text = value_of(environment, from->unless) ? NULL : value_of(environment, from->wanted_ranks);
    uint64_t count = 0;
    bool known = false;
    if (!text)
        return FSH_OK;
    if (strcmp(text, "auto") == 0 || strcmp(text, "gpu") == 0) {
        place->wanted_ranks = "all";
        return FSH_OK;
    }
    FshStatus status = read_number(environment, from, from->wanted_ranks, false, &count, &known, error);
    if (!status && count != 1)
        place->wanted_ranks = text;
    return status;
}

static FshStatus find_with(const Environment *environment, const struct Launcher *launcher, RankPlace *place,
                           FshError *error)
{
    FshStatus status = read_ranks(environment, launcher, place, error);
    if (!status && place->world_size == 1)
        return FSH_OK;
    if (!status)
        status = read_locals(environment, launcher, place, error);
    if (!status)
        status = check_others(environment, launcher, place, error);
    if (!status && place->world_size > RANKS_MAX)
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s is %" PRIu64 "; %d ranks at most",
                               launcher->world_size, place->world_size, RANKS_MAX);
    if (!status && rank_place_has_hosts(place))
        status = find_address(environment, launcher, place, error);
    if (!status && rank_place_has_hosts(place))
        status = find_port(environment, launcher, place, error);
    if (status)
        return status;
    share_host(launcher, place);
    place->launcher = launcher->name;
    place->name_comes_late = launcher->wanted_ranks != NULL;
    name_job(environment, launcher, place);
    if (!rank_place_has_hosts(place))
        place->port = 0;
    return FSH_OK;
}

FshStatus rank_place_find(RankPlace *place, const RankOptions *options, RankLookup lookup, void *context,
                          FshError *error)
{
    const Environment environment = {options, lookup, context};
    const struct Launcher *launcher = choose_launcher(&environment);
    const RankPlace alone = {.world_size = 1, .local_world = 1};
    *place = alone;
    FshStatus status = check_options(&environment, launcher, error);
    if (!status)
        status = read_wanted(&environment, launcher, place, error);
    if (!status && launcher)
        status = find_with(&environment, launcher, place, error);
    if (status)
        *place = alone;
    return status;
}

static const char *from_environment(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

FshStatus rank_place_from_environment(RankPlace *place, const RankOptions *options, FshError *error)
{
    return rank_place_find(place, options, from_environment, NULL, error);
}

bool rank_place_has_hosts(const RankPlace *place)
{
    return place->local_world < place->world_size;
}

uint64_t rank_place_first(const RankPlace *place)
{
    return place->rank - place->local_rank;
}

bool rank_place_speaks(const RankPlace *place)
{
    return place->rank == 0 || (rank_place_has_hosts(place) && place->local_rank == 0);
}

const char *rank_describe(char *text, size_t text_bytes, uint64_t rank, uint64_t world_size, const char *host,
                          uint64_t process)
{
    (void)snprintf(text, text_bytes, "rank %" PRIu64 " of %" PRIu64 " (host %.63s, process %" PRIu64 ")",
                   rank, world_size, host, process);
    return text;
}
