/* console.h - the log on standard error: lines, and on a terminal one line of progress under them.
 *
 * Lines about steps and epochs have the form of PyTorch's ImageNet example and torchvision's references, so
 * that what reads their logs reads ours. Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_CONSOLE_H
#define FSHARD_TRAINER_REPORT_CONSOLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"
#include "trainer/report/metrics.h"

typedef struct Console {
    FILE *stream;
    bool quiet;               /* warnings only */
    bool terminal;            /* a progress line makes sense */
    bool drawn;               /* and stands there now */
    uint64_t rank;            /* 0, or named in warnings */
    int64_t classes;          /* of the network: which metrics are shown (metric_is_shown) */
    double next_draw_seconds; /* on progress_now_seconds's clock */
} Console;

void console_open(Console *console, FILE *stream, bool quiet);

/* From now on nothing but warnings, which name the rank: there are others, and the first of them speaks for
 * all. */
void console_set_rank(Console *console, uint64_t rank);

/* One line; nothing when quiet. */
FSH_PRINTF(2, 3) void console_line(Console *console, const char *format, ...);
/* One line that begins with "warning: ", even when quiet. */
FSH_PRINTF(2, 3) void console_warning(Console *console, const char *format, ...);

/* Where training stands after a step. "now": of this step; "mean": over the epoch so far. */
typedef struct StepReport {
    uint64_t epoch, epochs, step, steps; /* epoch and step from 0; steps of an epoch */
    double seconds_now, seconds_mean;    /* of a step, in all */
    double data_now, data_mean;          /* of it, waiting for the loader */
    Metrics now, mean;
    double learning_rate;
    double gradient_norm;                /* NaN: not measured */
    double images_per_second;            /* over the epoch so far */
    double remaining_seconds;            /* of the whole training, evaluation left out */
    double remaining_evaluation_seconds; /* as the last one took; 0 before the first */
} StepReport;

/* Writes a line of the log: "Epoch: [2][ 50/156]  Time …  Data …  Loss …  Acc@1 …  Acc@5 …  ETA 2:05". */
void console_step(Console *console, const StepReport *report);
/* Redraws the progress line, ten times a second at most; nothing off a terminal. */
void console_progress(Console *console, const StepReport *report);
/* The same while evaluating. */
void console_evaluating(Console *console, uint64_t step, uint64_t steps);
/* " *   Acc@1 52.300 Acc@5 80.100 Loss 1.9300  note": the end of an evaluation, "EMA" behind the star where
 * what names it. */
void console_evaluated(Console *console, const char *what, const Metrics *metrics, const char *note);
/* Takes the progress line away. */
void console_clear(Console *console);

#endif
