/* launch.h - the ranks of a run as processes of this host: `ftrain --gpus N`.
 *
 * The caller forks before it has started threads or touched a device. Each child finds its place in its
 * environment, as under torchrun, and goes on as any rank does; the parent waits:
 *   - a signal that asks to stop is passed on, but for a Ctrl-C that the terminal has sent to all by itself;
 *   - when a rank ends in failure, the others are given some seconds to notice by themselves, are then asked
 *     to stop (SIGTERM), and at last killed;
 *   - children whose parent is killed are asked to stop by the system.
 *
 * Threads: one, that of main. */
#ifndef FSHARD_TRAINER_LAUNCH_H
#define FSHARD_TRAINER_LAUNCH_H

#include <stdbool.h>

#include "common/error.h"

/* Starts count processes. In each of them *parent_ret is false. In the parent it is true, all have ended, and
 * *exit_status_ret is the status of the first that failed, as a shell says it, or 0; of one that was killed a
 * line on stderr tells. FSH_ERR_SYSTEM: a process could not be started; those that were have ended. */
FshStatus launch_ranks(int count, bool *parent_ret, int *exit_status_ret, FshError *error);

/* GPUs that this process would see, asked in a process of its own, so that this one can still fork.
 * FSH_ERR_UNSUPPORTED, as backend_open("cuda") says it. */
FshStatus launch_count_gpus(int *count_ret, FshError *error);

#endif
