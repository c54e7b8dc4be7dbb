/* plateau.h - a learning rate that falls where a measure stops getting better:
 * torch.optim.lr_scheduler.ReduceLROnPlateau.
 *
 *   Plateau plateau = plateau_start(0.1);
 *   for each epoch: …train at plateau.rate…; plateau_step(&plateau, &options, validation_loss);
 *
 * Behind a warm-up: the schedule's rate in its steps, plateau.rate after them, and plateau_step only after
 * epochs that ended behind it. The whole state is the Plateau, five finite numbers in a fixed order for a
 * checkpoint. */
#ifndef FSHARD_TRAINER_OPTIM_PLATEAU_H
#define FSHARD_TRAINER_OPTIM_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

typedef struct PlateauOptions {
    bool higher_is_better;      /* PyTorch's mode 'max': accuracy, PSNR; else 'min': loss */
    bool threshold_is_absolute; /* better by threshold; else by that share of the best */
    double threshold;           /* PyTorch's default: 1e-4 */
    double factor;              /* what a fall multiplies by; 0 < factor < 1 */
    int64_t patience;           /* measures in a row that may be no better; one more, and the rate falls */
    int64_t cooldown;           /* measures after a fall that do not count as no better */
    double minimum;             /* of the rate; a fall by less than 1e-8 is left out, as PyTorch's eps */
} PlateauOptions;

typedef struct Plateau {
    double rate, best;
    bool measured; /* best holds a measure */
    int64_t bad;   /* measures in a row that were no better */
    int64_t cooldown_left;
} Plateau;

Plateau plateau_start(double rate);
/* Takes a measure, as after each epoch. NaN is no better. True if the rate fell. */
bool plateau_step(Plateau *plateau, const PlateauOptions *options, double measure);

enum { PLATEAU_STATE = 5 };
/* rate, best, measured, bad, cooldown_left; all finite. */
void plateau_save(const Plateau *plateau, double values[PLATEAU_STATE]);
/* False: the numbers are none that plateau_save gives. */
bool plateau_load(Plateau *plateau, const double values[PLATEAU_STATE]);

#endif
