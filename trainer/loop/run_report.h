/* run_report.h - what a run shows to people while it goes on: TensorBoard's event files, report.html,
 * config.json for timm, and the samples of the last evaluation that are worth a look.
 *
 * None of it decides anything: what cannot be written costs a warning, told once for each file, and training
 * goes on. Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_RUN_REPORT_H
#define FSHARD_TRAINER_LOOP_RUN_REPORT_H

#include "trainer/checkpoint/run_state.h"
#include "trainer/session/session.h"
#include "trainer/report/run_record.h"

typedef struct RunReport RunReport;

/* Begins the report, and writes config.json (classes). session, record and state, which is where the run
 * stands: borrowed. FSH_ERR_MEMORY. */
FshStatus run_report_open(RunReport **report, Session *session, const Record *record,
                          const TrainOptions *options, const RunState *state, FshError *error);
/* Frees and sets to NULL; NULL is fine, here and below: then nothing is shown. */
void run_report_close(RunReport **report);

/* Shows a logged step, and every now and then the page anew; steps_done: over all epochs, this one
 * included. */
void run_report_step(RunReport *report, const StepReport *step, uint64_t steps_done);
/* The first batch of the run, as the network sees it. */
void run_report_batch(RunReport *report, const Batch *batch);
/* Looks at an evaluation: for session_evaluate, from this call on a new one. */
SessionVisitor run_report_visitor(RunReport *report);
/* Shows the end of an epoch, after record_epoch: curves, per_class.csv, and the page anew where the last has
 * been there for a while. verdict: one sentence. */
void run_report_epoch(RunReport *report, const EpochReport *epoch, uint64_t steps_done, const char *verdict);

/* Says in the page how the run has ended, where the page says that it goes on. why: a sentence, or NULL. */
void run_report_end(RunReport *report, const RunState *state, const char *why);

#endif
