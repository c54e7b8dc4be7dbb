/* report_options.h - the options of what a run tells. trainer/loop reads them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_REPORT_REPORT_OPTIONS_H
#define FSHARD_TRAINER_REPORT_REPORT_OPTIONS_H

#include "common/options.h"

typedef struct ReportOptions {
    int64_t log_interval; /* steps */
    int64_t profile;      /* steps to measure; 0: none */
    bool tensorboard, html, verdict;
} ReportOptions;

/* Returns the defaults. */
ReportOptions report_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t report_options_rows(ReportOptions *options, Option *rows);

#endif
