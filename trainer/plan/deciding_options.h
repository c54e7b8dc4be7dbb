/* deciding_options.h - the options that decide a run, and how two sets of values differ.
 *
 * A checkpoint keeps the deciding options, and a run that goes on must have the same; the ranks of a run
 * compare theirs. Both sets follow from the marks of the rows in the table, so that a new option belongs
 * to them by itself.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_TRAINER_PLAN_DECIDING_OPTIONS_H
#define FSHARD_TRAINER_PLAN_DECIDING_OPTIONS_H

#include <jansson.h>

#include "trainer/plan/train_options.h"

/* Returns a new object of the options that decide the result (all but those with OPTION_FREE), by name,
 * with "_" for "-". NULL: no memory. */
json_t *deciding_options(const TrainOptions *options);
/* Returns these and the options that all ranks must share besides (OPTION_ALIKE), likewise. */
json_t *deciding_options_of_ranks(const TrainOptions *options);

/* The words around a difference: "<before>NAME<is>VALUE<was>OTHER VALUE<after>", with "-" for "_" in the
 * name if `dashes`. */
typedef struct DifferenceWords {
    const char *before, *is, *was, *after;
    bool dashes;
} DifferenceWords;

/* One of two runs: its options, and what its plan has chosen for those that were left open (plan_chosen.h);
 * NULL: that is not known. */
typedef struct DecidedOptions {
    const json_t *options, *chosen;
} DecidedOptions;

/* Writes the members of `now` that differ in `before`, separated by ", ", to text; "" if none does. What
 * does not fit is cut off. One that a run left open is what its plan has chosen; it follows others, and
 * differs for itself only where the other run was given it, or has another default. plain: the defaults,
 * which members have that `before` lacks and which are told as such, or NULL. */
void deciding_differences(const DecidedOptions *now, const DecidedOptions *before, const json_t *plain,
                          const DifferenceWords *words, char *text, size_t text_bytes);

#endif
