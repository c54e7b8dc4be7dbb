#include "trainer/optim/early_stop.h"

#include <float.h>
#include <math.h>

static bool is_better(const EarlyStop *stop, const EarlyStopOptions *o, double measure)
{
    if (!stop->measured || isnan(measure))
        return !isnan(measure);
    return o->higher_is_better ? measure - o->min_delta > stop->best : measure + o->min_delta < stop->best;
}

bool early_stop_step(EarlyStop *stop, const EarlyStopOptions *o, double measure)
{
    const double finite = isnan(measure) ? measure : fmax(-DBL_MAX, fmin(DBL_MAX, measure));
    if (stop->stopped)
        return true;
    if (is_better(stop, o, finite)) {
        stop->best = finite;
        stop->measured = true;
        stop->bad = 0;
    } else {
        stop->bad++;
    }
    stop->stopped = stop->bad >= o->patience;
    return stop->stopped;
}

void early_stop_save(const EarlyStop *stop, double values[EARLY_STOP_STATE])
{
    values[0] = stop->best;
    values[1] = stop->measured;
    values[2] = (double)stop->bad;
    values[3] = stop->stopped;
}

bool early_stop_load(EarlyStop *stop, const double values[EARLY_STOP_STATE])
{
    for (int i = 0; i < EARLY_STOP_STATE; i++)
        if (!isfinite(values[i]))
            return false;
    if (values[2] < 0 || values[2] > 1e15)
        return false;
    *stop = (EarlyStop){
        .best = values[0], .measured = values[1] != 0, .bad = (int64_t)values[2], .stopped = values[3] != 0};
    return true;
}
