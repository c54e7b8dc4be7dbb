/* early_stop.h - ends a training that no longer improves: after `patience` measures in a row that are not
 * better than the best by more than min_delta (Keras' and Lightning's EarlyStopping). The state is four
 * finite numbers. */
#ifndef FSHARD_TRAINER_OPTIM_EARLY_STOP_H
#define FSHARD_TRAINER_OPTIM_EARLY_STOP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct EarlyStopOptions {
    bool higher_is_better;
    int64_t patience; /* at least 1 */
    double min_delta; /* at least 0 */
} EarlyStopOptions;

typedef struct EarlyStop {
    double best;
    bool measured; /* best is set */
    int64_t bad;   /* measures in a row that were not better */
    bool stopped;
} EarlyStop; /* begins as zeros */

/* Takes a measure, after each epoch or evaluation. NaN is not better. Returns true if training should stop,
 * and then for every later measure too. */
bool early_stop_step(EarlyStop *stop, const EarlyStopOptions *options, double measure);

enum { EARLY_STOP_STATE = 4 };
/* Writes best, measured, bad, stopped; all finite. */
void early_stop_save(const EarlyStop *stop, double values[EARLY_STOP_STATE]);
/* Restores the state. Returns false if early_stop_save cannot have written these numbers. */
bool early_stop_load(EarlyStop *stop, const double values[EARLY_STOP_STATE]);

#endif
