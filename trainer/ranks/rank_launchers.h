/* rank_launchers.h - what each launcher calls the parts of a rank's place, and how they are read. For
 * rank_place.c alone, which says what they mean.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_RANK_LAUNCHERS_H
#define FSHARD_TRAINER_RANKS_RANK_LAUNCHERS_H

#include <stddef.h>

#include "trainer/ranks/rank_place.h"

enum { RANK_LAUNCHER_NAMES = 4, RANK_LAUNCHER_COUNT = 9 };

/* What each launcher calls the parts of a place, innermost launcher first: torchrun may run under srun,
 * mpirun starts its daemons by srun, and the variables of outer launchers stay in the environment. Names that
 * begin with "--" are options. */
typedef struct RankLauncher {
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
    const char
        *job[RANK_LAUNCHER_NAMES]; /* what names the job on this host; its beginning is the same on all */
    size_t shared_names;           /* how many of them are */
    bool own_host;                 /* each process counts as a host, and there are no local ranks */
    bool says_locals;              /* it always sets the local ones; if another does not, all ranks are taken
                                     * to be on this host */
    bool may_share_host;           /* own_host, but on a loopback address all processes are on this one */
    bool holds_port;               /* the launcher itself listens on the port: take the next */
} RankLauncher;

/* In the order in which they are tried. */
extern const RankLauncher rank_launchers[RANK_LAUNCHER_COUNT];

/* Where options and variables are looked up. */
typedef struct RankEnvironment {
    const RankOptions *options; /* NULL: none */
    RankLookup lookup;
    void *context;
} RankEnvironment;

/* Returns the text of an option or a variable; NULL: it is not given, or empty. name may be NULL. */
const char *rank_value(const RankEnvironment *environment, const char *name);
/* Fails because an option or a variable is missing beside the launcher's others. FSH_ERR_USAGE. */
FshStatus rank_value_missing(const RankEnvironment *environment, const RankLauncher *launcher,
                             const char *name, FshError *error);
/* Sets *number_ret to the number that an option or a variable has. *known_ret is set to false if it is not
 * given and need not be. A number of hosts may be a range, as torchrun's, of one number. FSH_ERR_USAGE. */
FshStatus rank_number(const RankEnvironment *environment, const RankLauncher *launcher, const char *name,
                      bool needed, uint64_t *number_ret, bool *known_ret, FshError *error);

#endif
