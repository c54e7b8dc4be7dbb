/* communicator_options.h - what the ranks are told about their meeting: who hears of a delay, and how
 * long one rank waits for another.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_COMMUNICATOR_OPTIONS_H
#define FSHARD_TRAINER_RANKS_COMMUNICATOR_OPTIONS_H

enum {
    COMMUNICATOR_TIMEOUT_SECONDS = 60,
    COMMUNICATOR_PATIENCE_SECONDS = 1800,
    COMMUNICATOR_GATHERING_SECONDS = 120,
    COMMUNICATOR_HOSTS_SECONDS = 30
};

/* Told once, by the first rank that is there, that ranks are still missing ("rank 3 of 4 is waited for"),
 * or that another process keeps this one from meeting them. tell == NULL: nobody is told. */
typedef struct CommunicatorHint {
    double after_seconds;
    /* until it is a failure; 0: COMMUNICATOR_GATHERING_SECONDS, or _HOSTS_SECONDS for several hosts */
    double most_seconds;
    void (*tell)(void *context, const char *text);
    void *context;
} CommunicatorHint;

/* All zeros are the defaults. The same on all ranks. */
typedef struct CommunicatorOptions {
    CommunicatorHint hint;
    /* A rank whose process has not moved for so long is lost; 0: COMMUNICATOR_TIMEOUT_SECONDS. */
    double timeout_seconds;
    /* A rank that lives but does not come to the others is waited for so long; 0:
     * COMMUNICATOR_PATIENCE_SECONDS. Tests make it shorter; ftrain leaves it. Calls of NCCL are waited for
     * COMMUNICATOR_PATIENCE_SECONDS, whatever it is (device_ranks.c). */
    double patience_seconds;
    const char *secret; /* that hosts must share to meet; NULL: none */
} CommunicatorOptions;

#endif
