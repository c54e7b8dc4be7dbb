/* interrupt.h - SIGINT and SIGTERM (and SIGUSR1, for who asks) as a flag that loops look at.
 *
 * The only process-wide state in fshard, because a signal is process-wide. The first signal sets the flag:
 * the program finishes what is in hand and returns FSH_ERR_INTERRUPTED. A second SIGINT ends the process at
 * once; nothing on disk is torn then either, since files appear by rename only. */
#ifndef FSHARD_COMMON_INTERRUPT_H
#define FSHARD_COMMON_INTERRUPT_H

#include <stdbool.h>

/* Installs the handlers (SIGINT, SIGTERM; SIGPIPE is ignored). Idempotent. */
void interrupt_install(void);

/* For programs that save their state and can go on: from now on SIGTERM and SIGUSR1 (what Slurm sends before
 * the time is up, `sbatch --signal=USR1@60`) ask for that, and the program leaves with status 75
 * (EX_TEMPFAIL), on which a job is queued again. SIGINT stays what it is. After interrupt_install. */
void interrupt_install_requeue(void);
/* True once such a signal has come. */
bool interrupt_requeues(void);

/* True once a signal has come. Any thread. */
bool interrupt_requested(void);

/* The signal that came (SIGINT, SIGTERM), or 0. Exit status is 128 plus it, or 75. */
int interrupt_signal(void);

/* As if the signal had come (it came to another process of the same run), or, for tests only, never had
 * (0). */
void interrupt_simulate(int signal_number);

#endif
