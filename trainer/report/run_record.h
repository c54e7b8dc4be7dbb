/* run_record.h - writes the files of a run's output folder beside the weights, for programs to read.
 *
 *   args.json       options, what was chosen, dataset, device, versions: enough to repeat the run
 *   summary.csv     a row for each epoch, timm's columns:
 *                   epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr (pairs: eval_psnr,eval_ssim in
 *                   their place; with an average of the weights its metrics follow as ema_top1 …; of a run
 *                   that is counted in iterations, those done stand behind the epoch)
 *                   of several sets the columns of the evaluation follow for each, as "eval_top1/NAME"
 *   metrics.jsonl   an object for each logged step and each epoch
 *
 * Rows are appended whole: when the disk is full, the file ends with the row before. A run that resumes from
 * a checkpoint drops the rows that were written after it. Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_RUN_RECORD_H
#define FSHARD_TRAINER_REPORT_RUN_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/report/console.h"

/* Decides which columns summary.csv has. */
typedef struct RecordShape {
    Metric main_metric; /* what the network is measured by, with its like: METRIC_TOP1, METRIC_MAP, … */
    bool averaged, iterations;
    /* [set_count]: names of the sets that are told apart; borrowed, as long as the record is open; NULL:
     * one */
    char *const *sets;
    size_t set_count;
} RecordShape;

typedef struct Record {
    char *folder; /* owned */
    RecordShape shape;
    int summary_descriptor, metrics_descriptor; /* -1: not open */
} Record;

/* An epoch at its end. */
typedef struct EpochReport {
    uint64_t epoch;
    uint64_t iteration, iterations; /* as StepReport's */
    double seconds;                 /* since training began, evaluation included */
    Metrics train;
    bool evaluated, averaged;
    const Metrics *set_evaluation, *set_average; /* [set_count of the shape], where it has sets; borrowed */
    Metrics evaluation, average;                 /* average: evaluated with the averaged weights */
    double learning_rate;                        /* of the last step */
    double images_per_second;                    /* of training */
    double step_seconds;                         /* of all steps of the epoch */
    double loader_wait_seconds;                  /* of those, waiting for the loader */
    double evaluation_seconds;
    uint32_t image_size;   /* edge in training */
    uint64_t order_digest; /* sampler_order_digest */
} EpochReport;

/* Returns true if the folder holds the tables of a run, but neither weights nor a checkpoint: the run stopped
 * before there were any, and nothing is lost if another begins there. Removes what a killed run was just
 * writing. */
bool record_has_only_begun(const char *folder);

/* Returns whether the folder holds what a run of ours has left without a checkpoint to go on from, and no
 * other file: another attempt may replace that, weights that diverged among it. Changes nothing. */
bool record_may_begin_again(const char *folder);

/* Returns whether the folder has the file of a run's lock: a run is at work there, or was when it was
 * killed. */
bool record_has_lock(const char *folder);

/* Returns the bytes on disk of an earlier run's weights and checkpoints in the folder, which a new run
 * replaces. */
uint64_t record_held_bytes(const char *folder);

/* Checks that a run may write to the folder. FSH_ERR_EXISTS: the folder is not empty (apart from the file of
 * a lock) and force is not set, or it is a dataset, or a file has its name. */
FshStatus record_check_folder(const char *folder, bool force, FshError *error);

/* Makes the folder (mkdir -p), removes the files of an earlier run (with force), writes args.json
 * (arguments_json) and the first line of summary.csv. */
FshStatus record_open(Record *record, const char *folder, bool force, const RecordShape *shape,
                      const char *arguments_json, FshError *error);
/* Opens the folder that an earlier part of the run made. Writes args.json anew, and drops the rows from step
 * `step` of epoch `epoch` on. */
FshStatus record_resume(Record *record, const char *folder, const RecordShape *shape,
                        const char *arguments_json, uint64_t epoch, uint64_t step, FshError *error);
/* Closes the tables. The record must have been opened or be RECORD_NONE; a zeroed struct is NOT fine. */
void record_close(Record *record);
#define RECORD_NONE                                                                                          \
    {                                                                                                        \
        .summary_descriptor = -1, .metrics_descriptor = -1                                                   \
    }

/* Append the rows of a step, and of an epoch. */
FshStatus record_step(Record *record, const StepReport *report, FshError *error);
FshStatus record_epoch(Record *record, const EpochReport *report, FshError *error);

/* Writes the path folder/name to buffer. */
FshStatus record_path(const Record *record, char *buffer, size_t buffer_bytes, const char *name,
                      FshError *error);

extern const char record_lock_name[];    /* .ftrain-lock: see folder_lock.h */
extern const char record_best_name[];    /* model_best.safetensors */
extern const char record_link_name[];    /* model.safetensors */
extern const char record_last_name[];    /* last.safetensors */
extern const char record_average_name[]; /* model_ema.safetensors: the averaged weights at their best epoch */
extern const char record_checkpoint_name[]; /* checkpoint.safetensors */
extern const char record_metrics_name[];    /* metrics.jsonl */
extern const char record_classes_name[];    /* per_class.csv: of the last evaluation */
/* per_class_best.csv, per_class_ema.csv: of the evaluations that model_best and model_ema are of */
extern const char record_best_classes_name[], record_average_classes_name[];
/* diverged.safetensors: the state before the step whose loss was not finite */
extern const char record_diverged_name[];
extern const char record_profile_name[]; /* PROFILE.txt: times of the layers, with --profile */

#endif
