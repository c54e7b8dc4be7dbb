/* run_report.h - shows a run to people while it goes on: TensorBoard's event files, report.html, config.json
 * for timm, and a few samples of the last evaluation.
 *
 * Nothing here influences the run: a file that cannot be written costs one warning, and training goes on.
 * Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_RUN_REPORT_H
#define FSHARD_TRAINER_LOOP_RUN_REPORT_H

#include "trainer/checkpoint/run_state.h"
#include "trainer/session/session.h"
#include "trainer/report/run_record.h"

typedef struct RunReport RunReport;

/* Begins the report and writes config.json (classes). session, record and state, which says where the run
 * stands, are borrowed. FSH_ERR_MEMORY. */
FshStatus run_report_open(RunReport **report, Session *session, const Record *record,
                          const TrainOptions *options, const RunState *state, FshError *error);
/* Frees and sets to NULL. NULL is fine, here and below: nothing is shown then. */
void run_report_close(RunReport **report);

/* Shows a logged step, and from time to time writes the page anew. steps_done: over all epochs, with this
 * one. */
void run_report_step(RunReport *report, const StepReport *step, uint64_t steps_done);
/* Shows the first batch of the run, as the network sees it. */
void run_report_batch(RunReport *report, const Batch *batch);
/* Begins to collect samples of a new evaluation, and returns the visitor for session_evaluate. */
SessionVisitor run_report_visitor(RunReport *report);
/* Writes the table of classes of an evaluation that gave the best weights so far; averaged: their average. */
void run_report_best(RunReport *report, bool averaged);
/* Shows the end of an epoch, after record_epoch: curves, per_class.csv, and a new page if the last one is old
 * enough. verdict: one sentence. */
void run_report_epoch(RunReport *report, const EpochReport *epoch, uint64_t steps_done, const char *verdict);

/* Writes how the run ended into the page, if the page says that it goes on. why: a sentence, or NULL. */
void run_report_end(RunReport *report, const RunState *state, const char *why);

#endif
