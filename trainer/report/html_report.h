/* html_report.h - a run as one page to look at, report.html: curves, where time went, what is confused with what, images.
 *
 *   RunHistory history;
 *   if (!run_history_read(&history, "out/metrics.jsonl", &error)) {
 *       const HtmlReport report = {.title = "out", .history = &history, .main_metric = "top1", .metric_rises = true, …};
 *       status = html_report_write(&report, "out/report.html", &error);
 *   }
 *
 * Self-contained (common/html.h): no network, no script; light and dark as the reader's system says; from a telephone's width
 * up. What is not there (no evaluation, no findings) is left out. All names are escaped.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_HTML_REPORT_H
#define FSHARD_TRAINER_REPORT_HTML_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/report/findings.h"
#include "trainer/report/run_history.h"

typedef struct ReportFact {
    const char *name, *value;
} ReportFact;

/* A table of facts: "Run", "Dataset", "Options that are not the defaults". */
typedef struct ReportFacts {
    const char *title;
    const ReportFact *facts;
    size_t count; /* 0: the table is left out */
} ReportFacts;

/* All borrowed. */
typedef struct HtmlReport {
    const char *title;    /* the output folder */
    const char *subtitle; /* "resnet9 on cifar10, 2 threads of …"; NULL: none */
    const char *verdict;  /* what --verdict says; NULL: none */
    const RunHistory *history;
    const char *main_metric; /* "top1", "psnr", "loss": the best epoch is that of eval_… (loss: eval_loss) */
    bool metric_rises;       /* more is better */
    uint64_t steps_per_epoch; /* where in an epoch a logged step lies; 0: steps are not drawn */
    const ReportFacts *facts;
    size_t fact_tables;
    const Findings *findings;       /* NULL: none */
    const char *const *class_names; /* [classes of findings]; NULL: numbers */
} HtmlReport;

/* Writes path atomically; an existing file is replaced. FSH_ERR_MEMORY, FSH_ERR_NO_SPACE, FSH_ERR_SYSTEM. */
FshStatus html_report_write(const HtmlReport *report, const char *path, FshError *error);

#endif
