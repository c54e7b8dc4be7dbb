/* launch.h - starts ranks as processes on this host and waits for them (start_ranks.h says which).
 *
 *   Launcher launcher;
 *   launcher_open(&launcher, &error);
 *   launcher_run(&launcher, &host, 4, &is_parent, &end, &error);   // again, after a rank was lost
 *   launcher_close(&launcher);
 *
 * The caller forks before it has started threads or touched a device. Each child finds its place in its
 * environment, as under torchrun, and goes on as any rank does. The parent waits:
 *   - a signal that asks to stop is passed on, except a Ctrl-C, which the terminal has sent to all;
 *   - when a rank ends in failure, the others are given some seconds to notice by themselves, are then asked
 *     to stop (SIGTERM), and at last killed;
 *   - when a signal has ended a rank in order, the others have heard of it: the first may still write the
 *     last checkpoint, and has COMMUNICATOR_PATIENCE_SECONDS for that;
 *   - children whose parent is killed are asked to stop by the system.
 *
 * Threads: one, that of main. */
#ifndef FSHARD_TRAINER_LAUNCH_H
#define FSHARD_TRAINER_LAUNCH_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "common/error.h"
#include "trainer/ranks/rank_place.h"

typedef struct Launcher {
    sigset_t watched, before; /* signals that are held back; the mask of before */
    atomic_int *reports;      /* what each child has said of its end; memory that the children share */
    uint64_t name;            /* of its jobs: drawn, for process numbers are the same in other containers */
    int launches;             /* so far: each is a job of its own */
    double notice_seconds;    /* what the others get to notice that one has failed; tests make it shorter */
} Launcher;

/* How the ranks of a launch have ended. */
typedef struct LaunchEnd {
    int exit_status; /* of the first that failed, as a shell reports it; 0: all are well */
    /* of this host, counted from 0: the first that was killed, had to be killed, or whose device failed; -1:
     * none */
    int lost_rank;
    bool lost;   /* there is one, here or on another host */
    bool failed; /* a rank has failed by itself, or was asked to stop: it would again */
} LaunchEnd;

/* Holds signals back until launcher_close. FSH_ERR_SYSTEM. */
FshStatus launcher_open(Launcher *launcher, FshError *error);
/* Starts `count` processes. host: the place of this process among those that start ranks, each on a host of
 * its own, and each as many; or rank 0 of 1. In each process that was started *parent_ret is set to false. In
 * the parent it is set to true when all have ended, and *end_ret says how. If a process was killed, a line on
 * stderr says so. FSH_ERR_SYSTEM: a process could not be started; those that were started have ended. */
FshStatus launcher_run(Launcher *launcher, const RankPlace *host, int count, bool *parent_ret,
                       LaunchEnd *end_ret, FshError *error);
/* Makes this process's environment that of the first rank that launcher_run would start here, and starts
 * none: for a program that tells what the ranks would do. FSH_ERR_SYSTEM. */
FshStatus launcher_foresee(const RankPlace *host, int count, FshError *error);
/* Readies a process that `parent` has just forked: signals have their way again, and it is asked to stop
 * where the parent is killed. launcher_run does it for ranks. FSH_ERR_SYSTEM. */
FshStatus launcher_begin_child(const Launcher *launcher, pid_t parent, FshError *error);
/* Tells the parent how its child number `index`, counted from 0, is about to end. A rank that says nothing
 * has failed by itself if its exit status is not 0. */
void launcher_report(const Launcher *launcher, int index, FshStatus status);
/* Returns a signal that asks to stop and came when no rank was there to pass it on to; 0: none. */
int launcher_take_signal(const Launcher *launcher);
/* Gives the signals their way again. In the parent alone. */
void launcher_close(Launcher *launcher);

#endif
