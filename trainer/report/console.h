/* console.h - the log on standard error: lines, and on a terminal a progress line below them.
 *
 * Lines about steps and epochs have the form of PyTorch's ImageNet example and torchvision's references, so
 * that a program that reads their logs reads ours. Threads: one. */
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
    bool terminal;            /* a progress line is drawn */
    bool drawn;               /* a progress line stands there now */
    uint64_t rank;            /* 0; any other rank is named in warnings */
    int64_t classes;          /* of the network; decides which metrics are shown (metric_is_shown) */
    double next_draw_seconds; /* on progress_now_seconds's clock */
} Console;

void console_open(Console *console, FILE *stream, bool quiet);

/* Prints nothing but warnings from now on, and names the rank in them. For ranks other than 0, which speaks
 * for all. */
void console_set_rank(Console *console, uint64_t rank);

/* Prints one line; nothing when quiet. */
FSH_PRINTF(2, 3) void console_line(Console *console, const char *format, ...);
/* Prints one line that begins with "warning: ", even when quiet. */
FSH_PRINTF(2, 3) void console_warning(Console *console, const char *format, ...);

/* The state of training after a step. "now": of this step; "mean": over the epoch so far. */
typedef struct StepReport {
    uint64_t epoch, epochs, step, steps; /* epoch and step count from 0; steps: of an epoch */
    uint64_t iteration, iterations;      /* done with this step, in all; 0: the run is counted in epochs */
    double seconds_now, seconds_mean;    /* of a whole step */
    double data_now, data_mean;          /* of that, waiting for the loader */
    Metrics now, mean;
    double learning_rate;
    double gradient_norm;                /* NaN: not measured */
    double images_per_second;            /* over the epoch so far */
    double remaining_seconds;            /* of the whole training, without evaluation */
    double remaining_evaluation_seconds; /* of all evaluations, each as long as the last one; 0 before the
                                          * first */
} StepReport;

/* Prints a line of the log: "Epoch: [2][ 50/156]  Time …  Data …  Loss …  Acc@1 …  Acc@5 …  ETA 2:05", or
 * "Iteration: [  50/20000]  …". */
void console_step(Console *console, const StepReport *report);
/* Redraws the progress line, at most ten times a second; does nothing if the stream is no terminal. */
void console_progress(Console *console, const StepReport *report);
/* Does the same during evaluation. */
void console_evaluating(Console *console, uint64_t step, uint64_t steps);
/* Prints the end of an evaluation: " *   Acc@1 52.300 Acc@5 80.100 Loss 1.9300  note". what: a word after the
 * star, such as "EMA", or "". */
void console_evaluated(Console *console, const char *what, const Metrics *metrics, const char *note);
/* Erases the progress line. */
void console_clear(Console *console);

#endif
