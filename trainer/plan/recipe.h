/* recipe.h - recipes: files of options (options_config.h) that say how others have trained, by name.
 *
 *   model = "resnet50"
 *   epochs = 100
 *   [recipe]
 *   summary = "resnet50 in 100 epochs at 160 pixels: 76.0 % of ImageNet"
 *   source = "Wightman et al. 2021, arXiv:2110.00476, procedure A3"
 *   total-batch = 2048          # images of an update that its lr is for
 *   for-weights = false         # whether it trains weights of others: --weights
 *
 * Those of the folder recipes/ are compiled in; trainer/plan/CMakeLists.txt lists them. A recipe is the set
 * of values (OptionTable.preset) that --recipe names: a file of --config and the command line win over it,
 * and an option of it that then does nothing is told rather than refused.
 *
 * Threads: any; nothing is shared. */
#ifndef FSHARD_TRAINER_PLAN_RECIPE_H
#define FSHARD_TRAINER_PLAN_RECIPE_H

#include <jansson.h>
#include <stdio.h>

#include "trainer/plan/train_plan.h"

/* A recipe of the program. */
typedef struct RecipeFile {
    const char *name; /* NULL after the last */
    const char *text; /* the file, with a NUL at its end */
} RecipeFile;
extern const RecipeFile recipe_files[];

/* Reads a recipe by its name, or from a file if `name` has a slash or ends in .toml or .json. Sets
 * *recipe_ret to a new object: "name", "summary", "source", "total-batch", "for-weights" as far as the
 * file has them, and "options". FSH_ERR_USAGE: there is none of that name, or the file is none. */
FshStatus recipe_read(const char *name, json_t **recipe_ret, FshError *error);

/* Prints name, summary and source of each recipe on the stream, or an array of them as JSON. */
FshStatus recipe_list(bool as_json, FILE *stream, FshError *error);

/* Returns whether the value of the option *field, a member of *options, is that of the recipe. */
bool recipe_gives(const TrainOptions *options, const void *field);

/* Sets what the recipe gives for options that the network lacks back to the defaults; plan_check has them
 * told. */
void recipe_leave_out(TrainOptions *options, const Model *model);

/* Takes an option of this name from the recipe, for it is about to get another value. */
void recipe_forget(const TrainOptions *options, const char *option);

/* Puts the recipe's name before a message that says that an option of it, or what it is for, does not fit
 * the run, the network or the memory. Returns status. */
FshStatus recipe_explain(const TrainOptions *options, FshStatus status, FshError *error);

/* Passes what the recipe is and gives, what of it does nothing here, and whether its learning rate and decay
 * are for another optimizer or another number of images, in a few lines for the log, without line ends;
 * nothing without a recipe. */
void recipe_describe(const TrainPlan *plan, void (*print)(void *context, const char *line), void *context);

/* Passes a line that says that the recipe is for weights of others, for a run that begins without them.
 * Returns whether it is. */
bool recipe_describe_random(const TrainPlan *plan, void (*print)(void *context, const char *line),
                            void *context);

/* Sets the member "recipe" of args.json: its facts, and "gives", the names of the options in use, as Python
 * spells them. Does nothing without a recipe. Returns 0 on success. */
int recipe_record(const TrainOptions *options, json_t *arguments);

#endif
