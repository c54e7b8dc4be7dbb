#include "trainer/plan/plan_sets.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/plan/train_options.h"

/* clang-format off */
size_t set_options_rows(SetOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "more-shards", .kind = OPTION_LIST, .value = &o->more, .argument = "DIR",
         .group = "Several datasets",
         .marks = OPTION_FREE, .uses = USE_SAMPLES | USE_EVALUATE,
         .help = "another dataset, used with SHARDS as one; as further arguments before OUTPUT"},
        {.name = "set-weights", .kind = OPTION_TEXT, .value = &o->weights, .argument = "W,W,...",
         .uses = USE_SAMPLES,
         .help = "of several datasets, in their order, how often a sample of each comes in an epoch: 2 is "
                 "twice, 0.5 in every other one; once each unless given"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

FshStatus plan_set_weights(TrainingSets *sets, const SetOptions *options, FshError *error)
{
    static const double lowest = 1e-6, highest = 1e6;
    if (!options->weights)
        return FSH_OK;
    const size_t room = strlen(options->weights) / 2 + 1; /* a digit and a comma for each */
    double *weights = calloc(room, sizeof *weights);
    size_t count = 0;
    if (!weights)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for --set-weights");
    FshStatus status =
        train_options_numbers("set-weights", options->weights, lowest, highest, weights, room, &count, NULL);
    if (status)
        status =
            fsh_error_set(error, FSH_ERR_USAGE,
                          "--set-weights: '%s' is not a number above 0 for each set, as 1,0.5,2 (at most "
                          "%g); leave a set out of the call rather than give it 0",
                          options->weights, highest);
    else
        status = training_sets_weigh(sets, weights, count, error);
    free(weights);
    return status;
}
