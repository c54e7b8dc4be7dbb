/* interrupt.h - turns SIGINT and SIGTERM (and SIGUSR1, on request) into a flag that loops check.
 *
 * This is the only process-wide state in fshard, because a signal is process-wide. The first signal sets the
 * flag: the program finishes its current item and returns FSH_ERR_INTERRUPTED. A second SIGINT ends the
 * process at once; files on disk are whole then too, since they appear by rename only.
 *
 * A signal to a whole process group reaches a rank twice: by itself, and passed on by the parent process that
 * started the rank. These two count once. */
#ifndef FSHARD_COMMON_INTERRUPT_H
#define FSHARD_COMMON_INTERRUPT_H

#include <stdbool.h>

/* Installs the handlers (SIGINT, SIGTERM; SIGPIPE is ignored). Idempotent. */
void interrupt_install(void);

/* Makes SIGTERM and SIGUSR1 (which Slurm sends before the time is up, `sbatch --signal=USR1@60`) ask the
 * program to save its state and exit with status 75 (EX_TEMPFAIL), on which a job is queued again. SIGINT
 * keeps its meaning. Call it after interrupt_install, in programs that can resume. */
void interrupt_install_requeue(void);
/* Makes the first signal end the process at once, with its default action: for what leaves nothing behind. */
void interrupt_take_at_once(void);

/* Returns whether such a signal has come. */
bool interrupt_requeues(void);

/* Makes the first signal write the text to standard error at once, as a line, and after SIGINT what a second
 * one does: for items that take long to finish. Writes it now if a signal has come before. The text is
 * borrowed; NULL: from now on nothing is said. terminal: a progress line may stand there, and is erased. */
void interrupt_say(const char *text, bool terminal);

/* Returns whether a signal has come. Any thread. */
bool interrupt_requested(void);

/* Returns the signal that came (SIGINT, SIGTERM), or 0. The exit status is 128 plus it, or 75. */
int interrupt_signal(void);

/* Returns how many signals have come; one that the parent process passes on, too, counts once. Whoever sends
 * a second one will not wait. */
int interrupt_count(void);

/* Acts as if the signal had come, because it came to another process of the run; with 0, for tests only, as
 * if none had. */
void interrupt_simulate(int signal_number);

#endif
