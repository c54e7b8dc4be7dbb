/* run_files.h - the weights and checkpoints that a run leaves, and going on from one.
 *
 * Saving is never a reason to stop: a disk that is full costs a warning, the file before it stays, training
 * goes on. Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_RUN_FILES_H
#define FSHARD_TRAINER_LOOP_RUN_FILES_H

#include "trainer/checkpoint/run_state.h"
#include "trainer/session/session.h"
#include "trainer/report/run_record.h"

typedef struct RunFiles {
    Session *session; /* borrowed */
    const Record
        *record;     /* borrowed; NULL: nothing is written, and nothing fails (a rank other than the first) */
    json_t *options; /* what decides the result, for the checkpoint; owned */
    int64_t history; /* --checkpoint-hist */
    bool stale_of[4]; /* by RunFile: what is on disk is not the newest, for the last save has failed */
} RunFiles;

typedef enum RunFile { RUN_LAST, RUN_BEST, RUN_AVERAGE, RUN_CHECKPOINT } RunFile;

/* FSH_ERR_MEMORY. */
FshStatus run_files_open(RunFiles *files, Session *session, const Record *record, const TrainOptions *options,
                         FshError *error);
void run_files_close(RunFiles *files);

/* Weights after an epoch under the name of `file`; metrics: NULL where they were not evaluated. */
void run_files_save_weights(RunFiles *files, RunFile file, const RunState *state, const Metrics *metrics);
/* checkpoint.safetensors. */
void run_files_save_checkpoint(RunFiles *files, const RunState *state);
/* Keeps the epoch's weights as checkpoint-EPOCH.safetensors if it is among the best, and removes the one that
 * no longer is; of a run with evaluation, those alone that were evaluated. */
void run_files_keep(RunFiles *files, RunState *state, const Metrics *metrics);
/* diverged.safetensors and diverged.json: the state and the samples of a step whose loss is no number, or
 * whose gradients never are finite. False: they are not on disk; a warning says why. */
bool run_files_save_diverged(RunFiles *files, const RunState *state, const uint64_t *batch_samples,
                             double loss);

/* True if something that the user would count on is not on disk: weights, or the checkpoint too. */
bool run_files_weights_stale(const RunFiles *files);
bool run_files_stale(const RunFiles *files);

/* Where options->resume points: a path in buffer, or "" to begin anew (auto without a checkpoint).
 * FSH_ERR_USAGE, FSH_ERR_MEMORY: the path is too long. */
FshStatus run_files_find(const TrainOptions *options, char *buffer, size_t buffer_bytes, FshError *error);
/* True if the checkpoint is in this folder, by whatever path: its run goes on there, and nothing in it may be
 * replaced. */
bool run_files_lies_in(const char *checkpoint, const char *folder);
/* Reads state and the session's State from the checkpoint at path. FSH_ERR_MISMATCH: a run of other options
 * (they are listed), another dataset, network or optimizer. */
FshStatus run_files_resume(const char *path, Session *session, const TrainOptions *options, RunState *state,
                           FshError *error);

#endif
