/* train_internal.h - shared by train.c (epochs, the run), train_steps.c (steps) and train_profile.c.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_INTERNAL_H
#define FSHARD_TRAINER_LOOP_TRAIN_INTERNAL_H

#include "common/folder_lock.h"
#include "trainer/loop/run_files.h"
#include "trainer/loop/run_report.h"
#include "trainer/session/run_resume.h"
#include "trainer/session/session_feed.h"

/* A step that is under way: what is needed of it when its loss arrives. Written when the step begins. */
typedef struct StepNote {
    bool runs; /* false: all samples of its batch were skipped */
    double learning_rate;
    double data_seconds, write_seconds; /* of waiting for the batch, and of handing it to the device */
    uint64_t valid_count;
    uint64_t *samples; /* [batch]; owned */
} StepNote;

/* A run of ftrain. train_run fills it in this order: session, state, record, files, report; then the steps
 * write. */
typedef struct Training {
    Session session;
    FolderLock lock; /* on OUTPUT, as long as this run writes there; ranks other than 0 have none */
    Record record;
    RunFiles files;
    /* By RunFile, RUN_BEST and RUN_AVERAGE: what was on disk before the last save was begun; written by
     * save_if_best. */
    BestEpoch best_before[RUN_AVERAGE + 1];
    RunReport *report;
    SessionFeed feed; /* started with the loader; then of the steps */
    RunState state;   /* after the steps whose results have arrived, which is what a checkpoint holds; written
                     * by end_step */
    /* Steps that were begun but are not in state yet: the ring's first is state.step. Written by begin_step
     * and end_step. */
    StepNote notes[NETWORK_STEPS_AHEAD];
    size_t first_note, under_way;
    /* --profile: the first step to measure and how many, counted over the run (training_plan_profile); how
     * many steps of this part of the run came before, and their seconds (end_step). */
    uint64_t profile_first, profile_count, profile_before_count;
    double profile_before;
    double lap_seconds; /* when the last step ended, or the first one began; written by end_step */
    uint64_t log_interval, checkpoint_interval;
    RunShape before;      /* of the run until now, which open_state reads; this run's if it begins */
    double start_seconds; /* when this part of the run began, minus the time that earlier parts took */
    uint64_t
        alike_steps; /* steps done when the ranks' weights were last compared, by training_check_weights */
    uint64_t updates_missed;   /* how many in a row, because gradients were not finite; written by end_step */
    bool stopped_early, saved; /* stopped_early: by --early-stop; saved: this part of the run has saved a
                                * checkpoint */
    bool verbose;
} Training;

/* Sums over the current epoch that are not in RunState; written by the steps. */
typedef struct Epoch {
    double learning_rate; /* of the last step */
    double gradient_norm;
    uint64_t steps, samples; /* taken by this process; a sample that cannot be read does not count */
} Epoch;

/* Allocates the notes. training_close_steps frees them, also zeroed ones. */
FshStatus training_open_steps(Training *training, FshError *error);
void training_close_steps(Training *training);
/* Checks that all ranks have the same weights, and notes the step. FSH_ERR_MISMATCH: they have not; the
 * message says since when. */
FshStatus training_check_weights(Training *training, FshError *error);
/* Does the remaining steps of state.epoch; none is under way when it returns, and all ranks have the same
 * weights. It stops at a signal, at a sample that cannot be read, and at a loss that is not finite: it
 * then saves what was learnt, as far as that makes sense, and the message says where. */
FshStatus training_steps(Training *training, Epoch *epoch, FshError *error);
/* Returns the learning rate of the step that follows steps_done others. */
double training_learning_rate(const Training *training, uint64_t steps_done);

/* Returns whether this rank writes files and prints: rank 0 does. */
static inline bool training_writes(const Training *training)
{
    return training->session.plan.rank == 0;
}

/* ---- train_profile.c ---- */

/* Chooses `steps` steps in the middle of training to profile; 0: none. Call it when state is known. */
void training_plan_profile(Training *training, uint64_t steps);
/* Returns whether that step of the run is profiled. */
bool training_profiles(const Training *training, uint64_t step);
/* Writes PROFILE.txt and prints its summary. A failure costs a warning. */
void training_end_profile(Training *training);

/* ---- train.c ---- */

/* Returns the seconds since training began, with earlier parts of the run. */
double training_seconds(const Training *training);
/* Returns the seconds that the evaluations to come will take, with that of the current epoch, each as long as
 * the last one; 0 before the first. */
double training_evaluation_left(const Training *training);
/* Prints a warning if a record could not be written. */
void training_warn_of(Training *training, FshStatus status, const FshError *error);
/* Save a checkpoint of the state, or of an earlier one. Every rank calls them. writes false: this rank takes
 * part in the sums, and writes no file. */
void training_save_checkpoint(Training *training);
void training_save_checkpoint_at(Training *training, const RunState *at, bool writes);
/* Saves checkpoint and weights before an unplanned stop: an unreadable sample is no reason to lose what was
 * learnt. Returns false if the disk would not take them, or if the ranks' weights differ: then nothing is
 * saved, and rank 0 warns. */
bool training_keep_learnt(Training *training);
/* Saves the state. Returns FSH_ERR_INTERRUPTED; the message says where the state is. FSH_ERR_MISMATCH: the
 * ranks have different weights, and nothing is saved. */
FshStatus training_stop_for_signal(Training *training, FshError *error);

/* Returns whether the metric that decides is better than that epoch's, or there is none yet. */
bool training_is_better(const Training *training, const Metrics *metrics, const BestEpoch *than);

/* ---- train_end.c ---- */

/* Writes what bounds the speed of the run, in a sentence. */
void training_say_verdict(const Training *training, char *text, size_t text_bytes);
/* Print the result on stdout: as lines, when quiet without speed and verdict, and as JSON. skipped: samples
 * that could not be read, of all ranks. FSH_ERR_MEMORY. */
void training_print_result(const Training *training, bool verdict, bool quiet);
FshStatus training_print_json(Training *training, uint64_t skipped, FshError *error);
/* Warns of everything that is missing and that the user would count on. Returns true if something is. */
bool training_tell_losses(Training *training, uint64_t skipped);

#endif
