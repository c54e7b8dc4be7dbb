/* train_internal.h - what train.c (epochs, the run) and train_steps.c (steps) share.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_INTERNAL_H
#define FSHARD_TRAINER_LOOP_TRAIN_INTERNAL_H

#include "common/folder_lock.h"
#include "trainer/loop/run_files.h"
#include "trainer/loop/run_report.h"
#include "trainer/session/session.h"

/* A step that is under way: what must be known of it once its loss is. */
typedef struct StepNote {
    bool runs; /* false: its batch has nothing but skipped samples */
    double learning_rate, data_seconds;
    uint64_t valid_count;
    uint64_t *samples; /* [batch]; owned */
} StepNote;

typedef struct Training {
    Session session;
    FolderLock lock; /* on OUTPUT, for as long as this run writes there; none on ranks other than the first */
    Record record;
    RunFiles files;
    RunReport *report;
    RunState state; /* of the steps whose results have been seen: what a checkpoint holds */
    /* Steps that were begun behind state: the first is state.step, and note n of the ring is its. */
    StepNote notes[NETWORK_STEPS_AHEAD];
    size_t first_note, under_way;
    /* --profile: its first step and how many, by the run's count; the steps in front of it in this part of
     * the run. */
    uint64_t profile_first, profile_count, profile_before_count;
    double profile_before; /* seconds of them */
    double lap_seconds;    /* when the last step ended, or the first one began */
    uint64_t log_interval, checkpoint_interval;
    double start_seconds;      /* of this part of the run, less what earlier parts took */
    uint64_t updates_missed;   /* in a row, for gradients that were not finite */
    bool stopped_early, saved; /* saved: by this part of the run, a checkpoint */
    bool verbose;
} Training;

/* What the epoch under way has beside RunState. */
typedef struct Epoch {
    double learning_rate; /* of the last step */
    double gradient_norm;
    uint64_t steps, samples; /* that this process has taken; what cannot be read is no sample */
} Epoch;

/* Memory for the notes; freed by training_close_steps, which takes zeroed ones too. */
FshStatus training_open_steps(Training *training, FshError *error);
void training_close_steps(Training *training);
/* The steps that are left of state.epoch; none is under way when it returns. On a signal, a sample that
 * cannot be read, a loss that is no number: what was learnt is saved as far as that makes sense, and the
 * message says where. */
FshStatus training_steps(Training *training, Epoch *epoch, FshError *error);
/* What the step after steps_done others learns with. */
double training_learning_rate(const Training *training, uint64_t steps_done);

/* True on the rank that writes files and prints: the first. */
static inline bool training_writes(const Training *training)
{
    return training->session.plan.rank == 0;
}

/* ---- train_profile.c ---- */

/* `steps` in the middle of training; 0: none. After state is known. */
void training_plan_profile(Training *training, uint64_t steps);
/* True if that step of the run is measured. */
bool training_profiles(const Training *training, uint64_t step);
/* Writes PROFILE.txt, and says the shortest of it. What fails costs a warning. */
void training_end_profile(Training *training);

/* ---- train.c ---- */

double training_seconds(const Training *training);
/* Returns the seconds that the evaluations to come will take, that of the epoch under way included, by the
 * last one; 0 before the first. */
double training_evaluation_left(const Training *training);
/* A record that cannot be written costs a warning. */
void training_warn_of(Training *training, FshStatus status, const FshError *error);
void training_save_checkpoint(Training *training);
/* Before a stop that nobody has planned: a sample that cannot be read is no reason to lose what was learnt.
 * False: the disk would not have it. */
bool training_keep_learnt(Training *training);
/* The state is saved; FSH_ERR_INTERRUPTED, with where. */
FshStatus training_stop_for_signal(Training *training, FshError *error);

#endif
