#include "trainer/ranks/rank_place.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/ranks/node_list.h"
#include "trainer/ranks/rank_launchers.h"

const char ranks_told_elsewhere[] = "told by another rank";

static bool is_there(const RankEnvironment *environment, const RankLauncher *launcher)
{
    return (rank_value(environment, launcher->rank) || rank_value(environment, launcher->world_size)) &&
           (!launcher->step || rank_value(environment, launcher->step)) &&
           !rank_value(environment, launcher->unless);
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

static FshStatus read_ranks(const RankEnvironment *environment, const RankLauncher *launcher,
                            RankPlace *place, FshError *error)
{
    bool known = false;
    FshStatus status =
        rank_number(environment, launcher, launcher->world_size, true, &place->world_size, &known, error);
    const bool needed = !launcher->own_host || place->world_size != 1;
    if (!status)
        status = rank_number(environment, launcher, launcher->rank, needed, &place->rank, &known, error);
    return status ? status
                  : check_below(launcher->rank, place->rank, launcher->world_size, place->world_size, error);
}

/* ---- which launcher ---- */

/* Returns whether the launcher says which ranks are on this host. */
static bool says_hosts(const RankEnvironment *environment, const RankLauncher *launcher)
{
    return launcher->own_host || launcher->hosts ||
           (rank_value(environment, launcher->local_rank) && rank_value(environment, launcher->local_world));
}

static bool has_same_rank(const RankEnvironment *environment, const RankLauncher *launcher,
                          const RankLauncher *other)
{
    RankPlace own = {0}, theirs = {0};
    return read_ranks(environment, launcher, &own, NULL) == FSH_OK &&
           read_ranks(environment, other, &theirs, NULL) == FSH_OK && own.rank == theirs.rank &&
           own.world_size == theirs.world_size;
}

/* Returns the innermost launcher, or one behind it that has given the same rank and alone says which ranks
 * are on this host. NULL: there is none. */
static const RankLauncher *choose_launcher(const RankEnvironment *environment)
{
    const RankLauncher *const end = rank_launchers + RANK_LAUNCHER_COUNT, *chosen = rank_launchers;
    while (chosen < end && !is_there(environment, chosen))
        chosen++;
    if (chosen == end || says_hosts(environment, chosen))
        return chosen == end ? NULL : chosen;
    for (const RankLauncher *other = chosen + 1; other < end; other++)
        if (is_there(environment, other) && says_hosts(environment, other) &&
            has_same_rank(environment, chosen, other))
            return other;
    return chosen;
}

/* Checks that another launcher with the same number of processes means the same ranks. */
static FshStatus check_others(const RankEnvironment *environment, const RankLauncher *chosen,
                              const RankPlace *place, FshError *error)
{
    for (const RankLauncher *other = rank_launchers; other < rank_launchers + RANK_LAUNCHER_COUNT; other++) {
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
static FshStatus check_options(const RankEnvironment *environment, const RankLauncher *chosen,
                               FshError *error)
{
    const char *given = rank_value(environment, "--master-addr") ? "--master-addr" : "--master-port";
    if (!chosen && rank_value(environment, given))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: does nothing here: one process trains; --nnodes and --node-rank, or a "
                             "launcher, say that there are others",
                             given);
    if (rank_value(environment, "--world-size") && rank_value(environment, "--nnodes"))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--world-size: counts processes and --nnodes counts hosts; give one of them");
    return FSH_OK;
}

/* ---- this host ---- */

/* Checks that the ranks of this host can follow each other. */
static FshStatus check_block(const RankLauncher *launcher, const RankPlace *place, FshError *error)
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
static FshStatus read_tasks(const RankEnvironment *environment, const RankLauncher *launcher,
                            RankPlace *place, FshError *error)
{
    uint64_t host = 0;
    bool known = false;
    NodeTasks tasks;
    const char *list = rank_value(environment, launcher->tasks);
    FshStatus status = rank_number(environment, launcher, launcher->host, true, &host, &known, error);
    if (!status && !list)
        status = rank_value_missing(environment, launcher, launcher->tasks, error);
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
static FshStatus read_locals(const RankEnvironment *environment, const RankLauncher *launcher,
                             RankPlace *place, FshError *error)
{
    bool has_rank = false, known = false;
    uint64_t hosts = 1;
    if (launcher->own_host)
        return FSH_OK;
    place->local_world = place->world_size;
    FshStatus status = rank_number(environment, launcher, launcher->local_rank, launcher->says_locals,
                                   &place->local_rank, &has_rank, error);
    if (!status && launcher->local_world)
        status = rank_number(environment, launcher, launcher->local_world, launcher->says_locals,
                             &place->local_world, &known, error);
    if (!status && launcher->hosts)
        status = rank_number(environment, launcher, launcher->hosts, false, &hosts, &known, error);
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
static uint64_t hash_names(const RankEnvironment *environment, const RankLauncher *launcher, size_t count,
                           bool *named_ret)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    *named_ret = false;
    for (size_t i = 0; i < count; i++) {
        const char *value = rank_value(environment, launcher->job[i]);
        *named_ret = *named_ret || value;
        hash = hash_text(hash, value ? value : "");
    }
    return hash;
}

/* Names the job on this host. If the launcher names none, the parent process does, which is the same for all
 * ranks of this host; a process that is its own host names itself; processes by hand that share a host are
 * named by their port. The first rank keeps hosts apart that share a machine, and the meeting place keeps
 * runs apart whose containers share its memory: there process numbers may be the same. */
static void name_job(const RankEnvironment *environment, const RankLauncher *launcher, RankPlace *place)
{
    bool named = false;
    char numbers[72], word[24];
    size_t length = 0;
    uint64_t hash = hash_names(environment, launcher, RANK_LAUNCHER_NAMES, &named);
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

static FshStatus find_address(const RankEnvironment *environment, const RankLauncher *launcher,
                              RankPlace *place, FshError *error)
{
    const char *names[] = {"--master-addr", launcher->address};
    const char *list = rank_value(environment, launcher->host_names);
    for (size_t i = 0; i < 2; i++) {
        const char *value = rank_value(environment, names[i]);
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

static FshStatus find_port(const RankEnvironment *environment, const RankLauncher *launcher, RankPlace *place,
                           FshError *error)
{
    bool named = false, known = false;
    const char *option = rank_value(environment, "--master-port") ? "--master-port" : NULL;
    const char *name = option ? option : launcher->port;
    const uint64_t hash = hash_names(environment, launcher, launcher->shared_names, &named);
    uint64_t port =
        !named ? RANK_PORT_DEFAULT : RANK_PORT_FIRST + hash % (RANK_PORT_LAST - RANK_PORT_FIRST + 1);
    FshStatus status = rank_number(environment, launcher, name, false, &port, &known, error);
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
static void share_host(const RankLauncher *launcher, RankPlace *place)
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
static FshStatus read_wanted(const RankEnvironment *environment, const RankLauncher *launcher,
                             RankPlace *place, FshError *error)
{
    static const RankLauncher none = {
        .name = "a PyTorch job", .unless = "LOCAL_RANK", .wanted_ranks = "PET_NPROC_PER_NODE"};
    const RankLauncher *from = launcher ? launcher : &none;
    const char *text =
        rank_value(environment, from->unless) ? NULL : rank_value(environment, from->wanted_ranks);
    uint64_t count = 0;
    bool known = false;
    if (!text)
        return FSH_OK;
    if (strcmp(text, "auto") == 0 || strcmp(text, "gpu") == 0) {
        place->wanted_ranks = "all";
        return FSH_OK;
    }
    FshStatus status = rank_number(environment, from, from->wanted_ranks, false, &count, &known, error);
    if (!status && count != 1)
        place->wanted_ranks = text;
    return status;
}

static FshStatus find_with(const RankEnvironment *environment, const RankLauncher *launcher, RankPlace *place,
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
    const RankEnvironment environment = {options, lookup, context};
    const RankLauncher *launcher = choose_launcher(&environment);
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
