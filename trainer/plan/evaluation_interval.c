#include "trainer/plan/evaluation_interval.h"

static const double share = 0.2; /* at most this share of the time, for evaluation */

bool evaluation_is_due(uint64_t interval, uint64_t next, uint64_t epochs)
{
    return interval == 0 || next % interval == 0 || next == epochs;
}

uint64_t evaluation_count(uint64_t interval, uint64_t from, uint64_t epochs)
{
    if (from >= epochs)
        return 0;
    if (interval == 0)
        return epochs - from;
    return epochs / interval - from / interval + (epochs % interval != 0);
}

uint64_t evaluation_interval_choose(double training_seconds, double evaluation_seconds, uint64_t epoch,
                                    uint64_t epochs)
{
    const double training = training_seconds * (double)(epochs - epoch);
    uint64_t interval = 1;
    while (interval < epochs) {
        const double evaluation =
            evaluation_seconds * (double)(1 + evaluation_count(interval, epoch + 1, epochs));
        if (evaluation <= share * (training + evaluation))
            break;
        interval++;
    }
    return interval;
}
