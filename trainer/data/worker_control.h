/* worker_control.h - how many of a loader's workers take part, by what is waited for.
 *
 * Consumer and workers measure how long they wait for each other. Where the consumer waits, workers join;
 * where workers wait, some rest, and leave their cores to training. Each change is a trial: a window later it
 * is taken back if it has won nothing, and not tried again for a while, each time for longer. So a loader
 * whose disk or memory is the limit stays as it is, and so does one that shares its cores with training and
 * wins nothing from taking more of them.
 *
 * Arithmetic alone: the loader measures, and obeys. What is in a batch does not depend on it (loader.h).
 *
 * Threads: the caller's. */
#ifndef FSHARD_TRAINER_DATA_WORKER_CONTROL_H
#define FSHARD_TRAINER_DATA_WORKER_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

/* What was measured over a few batches, without a change in between. */
typedef struct WorkerWindow {
    double seconds;         /* by the clock, > 0 */
    double consumer_waited; /* of them, for a batch */
    double workers_waited;  /* of all that take part together, for room in the ring */
    double longest_pause;   /* of the consumer between two batches */
    uint64_t samples;
} WorkerWindow;

/* What a window says. */
typedef struct WorkerShares {
    double rate;                         /* samples a second */
    double consumer_waits, workers_wait; /* shares of the time, 0..1 */
} WorkerShares;

typedef enum WorkerChange { WORKERS_STAY, WORKERS_JOIN, WORKERS_REST, WORKER_CHANGES } WorkerChange;

typedef struct WorkerControl {
    int active, most; /* workers that take part; > 0; most = active at the start: for good */
    /* The trial under way, and what was before it. */
    WorkerChange trial;
    int active_before;
    WorkerShares before;
    bool settles; /* the next window still has batches from before the change */
    /* By change: windows until it may be tried again, and how long the last wait was. */
    uint32_t held[WORKER_CHANGES], last_hold[WORKER_CHANGES];
} WorkerControl;

/* Returns the control of a loader that starts with `active` of `most` workers. */
WorkerControl worker_control_start(int active, int most);

/* Tells that the ring was emptied and begins anew: the next window is not judged. */
void worker_control_restart(WorkerControl *control);

/* Takes a window into account, and sets control->active to the workers that take part in the next one.
 * Returns whether that is another number than before. A window that is mostly one pause (an evaluation)
 * changes nothing. */
bool worker_control_step(WorkerControl *control, const WorkerWindow *window);

#endif
