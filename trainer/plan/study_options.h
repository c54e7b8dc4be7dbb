/* study_options.h - the options of several runs: those of a sweep (sweep.h), and whether runs are compared
 * (compare.h).
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_STUDY_OPTIONS_H
#define FSHARD_TRAINER_PLAN_STUDY_OPTIONS_H

#include "common/options.h"

typedef struct StudyOptions {
    OptionList sweep; /* NAME=VALUE,VALUE,... */
    int64_t seeds;    /* runs of each combination; 0: one, and no sweep without --sweep */
    bool compare;
} StudyOptions;

/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t study_options_rows(StudyOptions *options, Option *rows);

#endif
