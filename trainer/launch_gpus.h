/* launch_gpus.h - which GPUs there are, and which of them work. A child process looks, so that the one that
 * starts ranks can still fork; a child that hangs in the driver is left behind.
 *
 * Threads: one, that of main. */
#ifndef FSHARD_TRAINER_LAUNCH_GPUS_H
#define FSHARD_TRAINER_LAUNCH_GPUS_H

#include <stddef.h>

#include "trainer/launch.h"

/* What a child process is asked. */
typedef struct LaunchQuestion {
    const char *what;                              /* for messages: "counting the GPUs" */
    void (*answer)(const void *about, void *told); /* called in the child; fills `told` */
    const void *about;                             /* passed on to it */
    size_t told_bytes;                             /* at most PIPE_BUF */
    double seconds;                                /* how long the answer is waited for */
} LaunchQuestion;

/* Sets *told, of told_bytes, to what a child process answers. launcher: holds signals back, and they end the
 * wait; NULL: those of interrupt.h do. FSH_ERR_LIBRARY: the child has ended without an answer, or has not
 * answered in time. FSH_ERR_INTERRUPTED: this process is then as one to which the signal came.
 * FSH_ERR_SYSTEM: there is no process to ask. */
FshStatus launch_ask(const Launcher *launcher, const LaunchQuestion *question, void *told, FshError *error);

/* Sets *count_ret to the number of GPUs that this process would see. FSH_ERR_UNSUPPORTED, with the message of
 * backend_open("cuda"); else fails as launch_ask. */
FshStatus launch_count_gpus(const Launcher *launcher, int *count_ret, FshError *error);
/* Sets *works_ret to whether a new process can open this GPU. One that does not answer within a minute cannot
 * be used. Fails as launch_ask, but never with FSH_ERR_LIBRARY. */
FshStatus launch_gpu_works(const Launcher *launcher, int number, bool *works_ret, FshError *error);

#endif
