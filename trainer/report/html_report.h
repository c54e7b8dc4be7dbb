/* html_report.h - writes report.html, a run on one page: curves, where the time went, which classes are
 * confused, images.
 *
 *   RunHistory history;
 *   if (!run_history_read(&history, "out/metrics.jsonl", &error)) {
 *       const HtmlReport report = {.title = "out", .history = &history, .main_metric = "top1", …};
 *       status = html_report_write(&report, "out/report.html", &error);
 *   }
 *
 * While the run goes on, the page reloads itself every REPORT_REFRESH_SECONDS.
 *
 * The page is self-contained (common/html.h): it needs no network, is light or dark as the reader's system
 * is, and fits a telephone. Missing parts (no evaluation, no findings) are left out. All names are escaped.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_HTML_REPORT_H
#define FSHARD_TRAINER_REPORT_HTML_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/report/class_counts.h"
#include "trainer/report/findings.h"
#include "trainer/report/run_history.h"

enum { REPORT_REFRESH_SECONDS = 15 };

typedef struct ReportFact {
    const char *name, *value;
} ReportFact;

/* A table of facts: "Run", "Dataset", "Options that are not the defaults". */
typedef struct ReportFacts {
    const char *title;
    const ReportFact *facts;
    size_t count; /* 0: the table is left out */
} ReportFacts;

typedef enum ReportState { REPORT_FINISHED, REPORT_RUNNING, REPORT_STOPPED } ReportState;

/* The state of the run. */
typedef struct ReportStatus {
    ReportState state;
    /* epoch: the current one, from 0; epochs: how many are planned, 0: show no status */
    uint64_t epoch, epochs;
    uint64_t step, steps; /* step: steps done of the epoch; steps: all of it */
    /* done, and in all, where the run is counted in iterations: shown in place of epochs; else 0 */
    uint64_t iteration, iterations;
    double remaining_seconds; /* NaN: not known */
    int64_t written;          /* now, seconds since 1970 */
    const char *why;          /* why it stopped, or finished before the last epoch; NULL: nothing to say */
} ReportStatus;

/* Everything on the page; all borrowed. */
typedef struct HtmlReport {
    const char *title;    /* the output folder */
    const char *subtitle; /* "resnet9 on cifar10, 2 threads of …"; NULL: none */
    const char *verdict;  /* the sentence of verdict_of_speed or verdict_of_divergence; NULL: none */
    ReportStatus status;
    const RunHistory *history;
    const char *main_metric; /* "top1", "psnr", "loss": the best epoch has the best eval_ value of it */
    bool metric_rises;       /* a higher main_metric is better */
    bool top5;               /* show top-5 */
    /* Places a logged step within its epoch; 0: steps are not drawn. Rows of iterations do without. */
    uint64_t steps_per_epoch;
    const ReportFacts *facts;
    size_t fact_tables;
    const ClassCounts *classes;     /* of the last evaluation; NULL: none, or pairs */
    const Findings *findings;       /* of the same evaluation; NULL: none */
    const char *const *class_names; /* [classes]; NULL: numbers */
    char *const *sets;              /* [set_count]: sets that are evaluated apart; NULL: one */
    size_t set_count;
} HtmlReport;

/* Writes the page to path atomically; replaces an existing file. FSH_ERR_MEMORY, FSH_ERR_NO_SPACE,
 * FSH_ERR_SYSTEM. */
FshStatus html_report_write(const HtmlReport *report, const char *path, FshError *error);

#endif
