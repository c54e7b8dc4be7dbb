/* comparison.h - several runs side by side: what differs in their options, what each has reached, their
 * curves (ftrain --compare, and the end of ftrain --sweep).
 *
 *   Comparison *comparison = NULL;
 *   if (!comparison_open(&comparison, folders, count, &error)) {
 *       comparison_print(comparison, stdout);
 *       status = comparison_write(comparison, "compare.html", false, &error);
 *   }
 *   comparison_close(&comparison);
 *
 * Runs that differ in nothing but their seed are one group, with mean and standard deviation. The deviation
 * is that of a sample (divided by one less than the runs). Threads: one. */
#ifndef FSHARD_TRAINER_STUDY_COMPARISON_H
#define FSHARD_TRAINER_STUDY_COMPARISON_H

#include <stdio.h>

#include "trainer/study/study_run.h"

enum { COMPARISON_LABEL_BYTES = 192 };

/* Mean and deviation of the runs that have the number; count 0: none has, and both are NaN. */
typedef struct Spread {
    double mean, deviation; /* deviation: NaN with one run */
    size_t count;
} Spread;

/* The numbers that a table has for each group, in its order. */
typedef enum Measure {
    MEASURE_BEST,
    MEASURE_LAST,
    MEASURE_AVERAGE,
    MEASURE_LOSS,
    MEASURE_SECONDS,
    MEASURE_COUNT
} Measure;

/* Runs that differ in their seed alone. */
typedef struct StudyGroup {
    char label[COMPARISON_LABEL_BYTES]; /* what sets it apart: "lr 0.1", or the folder of its run */
    size_t *runs;                       /* [count], owned: indices of the comparison's runs */
    size_t count;
    Spread of[MEASURE_COUNT];
} StudyGroup;

typedef struct Comparison {
    StudyRun *runs;
    size_t run_count;
    StudyGroup *groups; /* in the order of their first runs */
    size_t group_count;
    /* names of the options that differ between groups, as Python spells them; a new array */
    json_t *differing;
    bool labelled;                /* the labels of all groups say what differs */
    bool measured[MEASURE_COUNT]; /* a run has it */
    bool mixed_tasks;             /* such as classes and pairs: their numbers cannot be compared */
    bool mixed_data;              /* several datasets */
    bool counts_iterations; /* a run does, and tables and curves have them in place of epochs, of all runs */
} Comparison;

/* Reads the runs. A folder that holds no run, but folders of runs, stands for those, in the order of their
 * names. FSH_ERR_NOT_FOUND: a folder holds neither. FSH_ERR_CORRUPT, FSH_ERR_MEMORY. */
FshStatus comparison_open(Comparison **comparison_ret, const char *const *folders, size_t count,
                          FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void comparison_close(Comparison **comparison_ret);

/* Returns the run's number of this measure; NaN if it has none. */
double comparison_measure(const StudyRun *run, Measure measure);
/* Returns whether one of the groups is the best: there are several, of one task and one dataset. */
bool comparison_has_best(const Comparison *comparison);
/* Returns whether the group has the best mean of those that can be compared and, of equal ones, the least
 * loss. */
bool comparison_is_best(const Comparison *comparison, const StudyGroup *group);
/* Returns what the runs are measured by: their task; of several, a task of a "value". */
const StudyTask *comparison_task(const Comparison *comparison);
/* Returns what the runs are counted in: "iteration" or "epoch". */
const char *comparison_unit(const Comparison *comparison);
/* Returns how many of them the run has done, and how many it was to do; 0: that is not known. */
uint64_t comparison_length(const Comparison *comparison, const StudyRun *run);
uint64_t comparison_planned(const Comparison *comparison, const StudyRun *run);
/* Returns where the run was best, an epoch, counted from 0, or the iterations until then; NaN: nowhere. */
double comparison_best_place(const Comparison *comparison, const StudyRun *run);
/* Writes the heading of a measure to text, "best top-1", and returns it. */
const char *comparison_title(const StudyTask *task, Measure measure, char *text, size_t text_bytes);
/* Writes "71.23", or "71.23 ± 0.31" with a deviation, to text and returns it; "" if there is no number. */
const char *comparison_spread_text(const Spread *spread, Measure measure, char *text, size_t text_bytes);
/* Writes the name of an option as the command line has it to text and returns it. */
const char *comparison_option_name(const char *name, char *text, size_t text_bytes);
/* Writes the value of an option of a run as the command line has it to text and returns it; "-" for none. */
const char *comparison_value_text(const StudyRun *run, const char *option, char *text, size_t text_bytes);
/* Writes a sentence about what cannot be compared, and about unfinished runs, to text; "" if there is
 * none. */
const char *comparison_caution(const Comparison *comparison, char *text, size_t text_bytes);

/* Prints the tables of results and of options that differ. */
void comparison_print(const Comparison *comparison, FILE *stream);
/* Returns the same as a new object. NULL: no memory. */
json_t *comparison_json(const Comparison *comparison);
/* Returns whether the file at path is a page that comparison_write wrote. */
bool comparison_is_page(const char *path);
/* Writes the page atomically, over an earlier one too. FSH_ERR_EXISTS: path is another file, and force is not
 * set; FSH_ERR_MEMORY, FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM. */
FshStatus comparison_write(const Comparison *comparison, const char *path, bool force, FshError *error);

#endif
