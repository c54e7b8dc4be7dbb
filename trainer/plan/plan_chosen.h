/* plan_chosen.h - what a plan has chosen in the place of options that were left open.
 *
 * A checkpoint keeps it beside the deciding options (deciding_options.h): so a run may go on with an option
 * that names what was chosen, and is told what it had where it names something else.
 *
 * Threads: any; nothing is shared. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_CHOSEN_H
#define FSHARD_TRAINER_PLAN_PLAN_CHOSEN_H

#include <jansson.h>

#include "trainer/plan/train_plan.h"

/* Returns a new object of the deciding options that were not given, or as 0 or auto, and that the plan has
 * decided, with its values as the command line would have them, by name with "_" for "-". The batch size is
 * not among them: it may be dealt out otherwise (run_resume.h). NULL: no memory. */
json_t *plan_chosen(const TrainPlan *plan, const TrainOptions *options);

#endif
