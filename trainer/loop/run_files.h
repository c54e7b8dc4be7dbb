/* run_files.h - saves a run's weights and checkpoints.
 *
 * Files are written from a copy of the State, by a thread of their own, while training goes on: the copy
 * takes as much memory as the State, where the State is. While a copy is still being written, what must be
 * saved is taken from a second one, if that takes at most half of the memory that is free then; else training
 * waits for the first. Where there is no memory for any copy, training waits for each file.
 *
 * A failure to save never stops a run: on a full disk it prints a warning, the previous file stays, and
 * training goes on. Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_RUN_FILES_H
#define FSHARD_TRAINER_LOOP_RUN_FILES_H

#include "trainer/checkpoint/run_state.h"
#include "trainer/loop/run_writer.h"
#include "trainer/session/session.h"
#include "trainer/report/run_record.h"

/* A State as it was when it was last copied. */
typedef struct RunCopy {
    State *state;     /* owned; NULL: not made yet, or no memory */
    uint64_t changes; /* state_changes of the State then */
    int jobs;         /* that read it, and are not done */
    bool taken, impossible;
} RunCopy;

enum { RUN_COPIES = 2 };
typedef enum RunFile { RUN_LAST, RUN_BEST, RUN_AVERAGE, RUN_CHECKPOINT, RUN_FILE_KINDS } RunFile;

typedef struct RunFiles {
    RunWriter *writer; /* owned; NULL: training waits for each file */
    RunCopy trained[RUN_COPIES], averaged[RUN_COPIES];
    int pending[RUN_FILE_KINDS]; /* jobs that are not done */
    Session *session;            /* borrowed */
    const Record *record; /* borrowed; NULL (a rank other than 0): nothing is written, and nothing fails */
    json_t *options;      /* options that decide the result, for the checkpoint; owned */
    json_t *chosen;       /* what the plan has chosen for options that were left open, likewise */
    int64_t history;      /* --checkpoint-hist */
    /* the last save failed, so the file on disk is not the newest; written by the functions that settle */
    bool stale_of[RUN_FILE_KINDS];
} RunFiles;

/* Prepares saving; borrows session and record. FSH_ERR_MEMORY. */
FshStatus run_files_open(RunFiles *files, Session *session, const Record *record, const TrainOptions *options,
                         FshError *error);
/* Waits for what is being written and frees everything but what is borrowed. Call it before the session is
 * closed. */
void run_files_close(RunFiles *files);

/* Begin to save; what fails is told by the next call, and known after run_files_settle.
 * run_files_save_weights: the weights of an epoch, under the name of `file`; metrics: NULL if they were not
 * evaluated. run_files_save_checkpoint: checkpoint.safetensors. */
void run_files_save_weights(RunFiles *files, RunFile file, const RunState *state, const Metrics *metrics);
void run_files_save_checkpoint(RunFiles *files, const RunState *state);
/* Keeps the epoch's weights as checkpoint-EPOCH.safetensors if it is among the best, and removes the file of
 * the epoch that it replaces. In a run with evaluation only evaluated epochs count. */
void run_files_keep(RunFiles *files, RunState *state, const Metrics *metrics);
/* Saves diverged.safetensors and diverged.json: the state and the samples of a step whose loss was not
 * finite, or after many steps whose gradients were not. Returns false if they are not on disk; a warning says
 * why. */
bool run_files_save_diverged(RunFiles *files, const RunState *state, const uint64_t *batch_samples,
                             double loss);

/* Returns whether files of an earlier state are still being written: asked before anything of this state is
 * saved. Never where epochs are kept (--checkpoint-hist), which are written at once. */
bool run_files_is_behind(RunFiles *files);
/* Waits until all is written that was begun, and sets stale_of. */
void run_files_settle(RunFiles *files);
/* Waits until the newest of these files is written, and sets its stale_of; others may still be. */
void run_files_settle_file(RunFiles *files, RunFile file);
/* Return, after run_files_settle, whether the newest weights are missing on disk; whether the newest weights
 * or checkpoint are. */
bool run_files_weights_stale(const RunFiles *files);
bool run_files_stale(const RunFiles *files);

#endif
