#include "trainer/optim/plateau.h"

#include <float.h>
#include <math.h>

Plateau plateau_start(double rate)
{
    return (Plateau){.rate = rate};
}

/* Returns whether the measure is better, by PyTorch's is_better; any number is better than none. */
static bool is_better(const Plateau *plateau, const PlateauOptions *o, double measure)
{
    const double margin = o->threshold_is_absolute ? o->threshold : o->threshold * plateau->best;
    if (!plateau->measured || isnan(measure))
        return !isnan(measure);
    return o->higher_is_better ? measure > plateau->best + margin : measure < plateau->best - margin;
}

static bool fall(Plateau *plateau, const PlateauOptions *o)
{
    const double smallest_fall = 1e-8, lower = fmax(plateau->rate * o->factor, o->minimum);
    if (!(plateau->rate - lower > smallest_fall))
        return false;
    plateau->rate = lower;
    return true;
}

bool plateau_step(Plateau *plateau, const PlateauOptions *o, double measure)
{
    const double finite = isnan(measure) ? measure : fmax(-DBL_MAX, fmin(DBL_MAX, measure));
    if (is_better(plateau, o, finite)) {
        plateau->best = finite;
        plateau->measured = true;
        plateau->bad = 0;
    } else {
        plateau->bad++;
    }
    if (plateau->cooldown_left > 0) {
        plateau->cooldown_left--;
        plateau->bad = 0;
    }
    if (plateau->bad <= o->patience)
        return false;
    plateau->cooldown_left = o->cooldown;
    plateau->bad = 0;
    return fall(plateau, o);
}

void plateau_save(const Plateau *plateau, double values[PLATEAU_STATE])
{
    values[0] = plateau->rate;
    values[1] = plateau->best;
    values[2] = plateau->measured;
    values[3] = (double)plateau->bad;
    values[4] = (double)plateau->cooldown_left;
}

bool plateau_load(Plateau *plateau, const double values[PLATEAU_STATE])
{
    for (int i = 0; i < PLATEAU_STATE; i++)
        if (!isfinite(values[i]))
            return false;
    if (values[0] < 0 || values[3] < 0 || values[3] > 1e15 || values[4] < 0 || values[4] > 1e15)
        return false;
    *plateau = (Plateau){.rate = values[0],
                         .best = values[1],
                         .measured = values[2] != 0,
                         .bad = (int64_t)values[3],
                         .cooldown_left = (int64_t)values[4]};
    return true;
}
