/* plateau.h - lowers the learning rate when a measure stops improving:
 * torch.optim.lr_scheduler.ReduceLROnPlateau.
 *
 *   Plateau plateau = plateau_start(0.1);
 *   for each epoch: …train at plateau.rate…; plateau_step(&plateau, &options, validation_loss);
 *
 * With a warm-up: use the schedule's rate in its steps and plateau.rate after them, and call plateau_step
 * only after epochs that ended after it. The whole state is the Plateau, five finite numbers in a fixed order
 * for a checkpoint. */
#ifndef FSHARD_TRAINER_OPTIM_PLATEAU_H
#define FSHARD_TRAINER_OPTIM_PLATEAU_H

#include <stdbool.h>
#include <stdint.h>

typedef struct PlateauOptions {
    bool higher_is_better;      /* PyTorch's mode 'max': accuracy, PSNR; else 'min': loss */
    bool threshold_is_absolute; /* better means by threshold; else by that share of the best */
    double threshold;           /* PyTorch's default: 1e-4 */
    double factor;              /* multiplies the rate at each fall; 0 < factor < 1 */
    int64_t patience;           /* measures in a row that may fail to improve; with one more the rate falls */
    int64_t cooldown;           /* measures after a fall that are not counted */
    double minimum;             /* of the rate; a fall of less than 1e-8 is left out, as PyTorch's eps */
} PlateauOptions;

typedef struct Plateau {
    double rate, best;
    bool measured; /* best is set */
    int64_t bad;   /* measures in a row that did not improve */
    int64_t cooldown_left;
} Plateau;

Plateau plateau_start(double rate);
/* Takes a measure, after each epoch or evaluation. NaN is no improvement. Returns true if the rate fell. */
bool plateau_step(Plateau *plateau, const PlateauOptions *options, double measure);

enum { PLATEAU_STATE = 5 };
/* Writes rate, best, measured, bad, cooldown_left; all finite. */
void plateau_save(const Plateau *plateau, double values[PLATEAU_STATE]);
/* Restores the state. Returns false if plateau_save cannot have written these numbers. */
bool plateau_load(Plateau *plateau, const double values[PLATEAU_STATE]);

#endif
