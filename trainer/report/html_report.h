/* html_report.h - a run as one page to look at, report.html: curves, where time went, what is confused with
 * what, images.
 *
 *   RunHistory history;
 *   if (!run_history_read(&history, "out/metrics.jsonl", &error)) {
 *       const HtmlReport report = {.title = "out", .history = &history, .main_metric = "top1", …};
 *       status = html_report_write(&report, "out/report.html", &error);
 *   }
 *
 * The page of a run that goes on loads itself again every REPORT_REFRESH_SECONDS.
 *
 * Self-contained (common/html.h): no network; light and dark as the reader's system says; from a telephone's
 * width up. What is not there (no evaluation, no findings) is left out. All names are escaped.
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

/* Where the run stands. */
typedef struct ReportStatus {
    ReportState state;
    /* the epoch under way, from 0; those that are to be. epochs 0: no status is told */
    uint64_t epoch, epochs;
    uint64_t step, steps;     /* steps of it that are done; steps of an epoch */
    double remaining_seconds; /* NaN: not known */
    int64_t written;          /* now, seconds since 1970 */
    const char *why;          /* it stopped, or finished before the last epoch; NULL: no more to say */
} ReportStatus;

/* All borrowed. */
typedef struct HtmlReport {
    const char *title;    /* the output folder */
    const char *subtitle; /* "resnet9 on cifar10, 2 threads of …"; NULL: none */
    const char *verdict;  /* what --verdict says; NULL: none */
    ReportStatus status;
    const RunHistory *history;
    const char *main_metric; /* "top1", "psnr", "loss": the best epoch is that of eval_… (loss: eval_loss) */
    bool metric_rises;       /* more is better */
    bool top5;               /* is shown */
    uint64_t steps_per_epoch; /* where in an epoch a logged step lies; 0: steps are not drawn */
    const ReportFacts *facts;
    size_t fact_tables;
    const ClassCounts *classes;     /* of the last evaluation; NULL: none, or pairs */
    const Findings *findings;       /* of the same; NULL: none */
    const char *const *class_names; /* [classes]; NULL: numbers */
} HtmlReport;

/* Writes path atomically; an existing file is replaced. FSH_ERR_MEMORY, FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM. */
FshStatus html_report_write(const HtmlReport *report, const char *path, FshError *error);

#endif
