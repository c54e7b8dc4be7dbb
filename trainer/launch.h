/* launch.h - starts the ranks of a run as processes on this host (start_ranks.h).
 *
 * The caller forks before it has started threads or touched a device. Each child finds its place in its
 * environment, as under torchrun, and goes on as any rank does. The parent waits:
 *   - a signal that asks to stop is passed on, except a Ctrl-C, which the terminal has sent to all;
 *   - when a rank ends in failure, the others are given some seconds to notice by themselves, are then asked
 *     to stop (SIGTERM), and at last killed;
 *   - children whose parent is killed are asked to stop by the system.
 *
 * Threads: one, that of main. */
#ifndef FSHARD_TRAINER_LAUNCH_H
#define FSHARD_TRAINER_LAUNCH_H

#include <stdbool.h>

#include "common/error.h"
#include "trainer/ranks/rank_place.h"

/* Starts `count` processes. host: the place of this process among those that start ranks, each on a host of
 * its own, and each as many; or rank 0 of 1. In each process that was started *parent_ret is set to false. In
 * the parent it is set to true when all have ended; *exit_status_ret is then the status of the first that
 * failed, as a shell reports it, or 0. If a process was killed, a line on stderr says so. FSH_ERR_SYSTEM: a
 * process could not be started; those that were started have ended. */
FshStatus launch_ranks(const RankPlace *host, int count, bool *parent_ret, int *exit_status_ret,
                       FshError *error);

/* Sets *count_ret to the number of GPUs that this process would see. A child process looks, so that this one
 * can still fork. FSH_ERR_UNSUPPORTED, with the message of backend_open("cuda"). */
FshStatus launch_count_gpus(int *count_ret, FshError *error);

#endif
