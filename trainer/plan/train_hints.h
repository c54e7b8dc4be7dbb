/* train_hints.h - ftrain's answers to options of timm, torchvision, FFCV, BasicSR and Lightning that it does
 * not have. */
#ifndef FSHARD_TRAINER_PLAN_TRAIN_HINTS_H
#define FSHARD_TRAINER_PLAN_TRAIN_HINTS_H

#include "common/options.h"

/* Options that ftrain has under another name, and options that are answered with a sentence: what to use
 * instead, or that there is no such thing. */
extern const OptionForeign train_foreign[], train_answers[];

/* Answers to values of options with choices, for Option.hints. */
extern const OptionForeign train_amp_hints[], train_device_hints[], train_loss_hints[],
    train_optimizer_hints[], train_schedule_hints[];

#endif
