#include "trainer/plan/study_options.h"

#include <string.h>

/* clang-format off */
size_t study_options_rows(StudyOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "sweep", .kind = OPTION_LIST, .value = &o->sweep, .argument = "NAME=VALUE,...",
         .group = "Several runs",
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LEARN,
         .help = "a run with each value of an option, and of several --sweep each combination, in "
                 "OUTPUT/NAME=VALUE; one after the other, or with --gpus one on each; ends in the page of "
                 "--compare"},
        {.name = "seeds", .kind = OPTION_INTEGER, .value = &o->seeds, .argument = "N", .maximum = 1000,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_LEARN,
         .help = "so many runs of each, with --seed and those that follow it; 0: one"},
        {.name = "compare", .kind = OPTION_FLAG, .value = &o->compare,
         .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .uses = USE_COMPARE,
         .help = "compare runs, whose output folders are the arguments: a table, and curves and options on "
                 "one page, OUTPUT or compare.html"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */
