/* train_hints.h - what ftrain answers to options of timm, torchvision, FFCV, BasicSR and Lightning that it
 * does not have. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_HINTS_H
#define FSHARD_TRAINER_PLAN_TRAIN_HINTS_H

#include "common/options.h"

/* Options that ftrain has under another name, and options for which a sentence says what does the job, or
 * that nothing does. */
extern const OptionForeign train_foreign[], train_answers[];

/* Values of options with choices, for Option.hints. */
extern const OptionForeign train_amp_hints[], train_device_hints[], train_loss_hints[],
    train_optimizer_hints[], train_schedule_hints[];

#endif
