/* run_record.h - what a run leaves in its output folder beside the weights, for programs to read.
 *
 *   args.json       options, what was chosen, dataset, device, versions: enough to repeat the run
 *   summary.csv     a row for each epoch, timm's columns:
 *                   epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr (pairs: eval_psnr,eval_ssim in
 *                   their place; with an average of the weights its metrics behind as ema_top1 …)
 *   metrics.jsonl   an object for each logged step and each epoch
 *
 * Rows are appended whole: where the disk is full, the file ends with the row before. A run that goes on from
 * a checkpoint drops the rows that were written after it. Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_RUN_RECORD_H
#define FSHARD_TRAINER_REPORT_RUN_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/report/console.h"

/* Which columns summary.csv has. */
typedef struct RecordShape {
    bool pairs, averaged;
} RecordShape;

typedef struct Record {
    char *folder; /* owned */
    RecordShape shape;
    int summary_descriptor, metrics_descriptor; /* -1: not open */
} Record;

/* One epoch at its end. */
typedef struct EpochReport {
    uint64_t epoch;
    double seconds; /* since training began, evaluation included */
    Metrics train;
    bool evaluated, averaged;
    Metrics evaluation, average; /* average: of the averaged weights */
    double learning_rate;        /* of the last step */
    double images_per_second;    /* of training */
    double step_seconds;         /* in this epoch's steps */
    double loader_wait_seconds;  /* of them */
    double evaluation_seconds;
    uint32_t image_size;   /* edge in training */
    uint64_t order_digest; /* sampler_order_digest */
} EpochReport;

/* True if the folder holds tables of a run of ours, and no weights or checkpoint: it was stopped before there
 * were any, and nothing is lost where it begins again. What a killed run was writing at that moment is
 * removed. */
bool record_has_only_begun(const char *folder);

/* Returns whether a run is at work in the folder, or was when it was killed: the file of its lock is
 * there. */
bool record_has_lock(const char *folder);

/* Returns how much of the disk the weights and checkpoints of an earlier run in the folder take: they are
 * replaced. */
uint64_t record_held_bytes(const char *folder);

/* Checks that a run may write there. FSH_ERR_EXISTS: folder is there and not empty (the file of a lock
 * aside), and force was not given (a file by that name: always). */
FshStatus record_check_folder(const char *folder, bool force, FshError *error);

/* Makes the folder (mkdir -p), removes the files of an earlier run (with force), writes args.json (a JSON
 * text) and the first line of summary.csv. */
FshStatus record_open(Record *record, const char *folder, bool force, const RecordShape *shape,
                      const char *arguments_json, FshError *error);
/* Goes on in a folder that an earlier part of the run made: args.json is written anew, rows of epoch `epoch`
 * and later and of steps from `step` of that epoch on are dropped. */
FshStatus record_resume(Record *record, const char *folder, const RecordShape *shape,
                        const char *arguments_json, uint64_t epoch, uint64_t step, FshError *error);
/* Closes; a zeroed struct is NOT fine, RECORD_NONE is. */
void record_close(Record *record);
#define RECORD_NONE                                                                                          \
    {                                                                                                        \
        .summary_descriptor = -1, .metrics_descriptor = -1                                                   \
    }

FshStatus record_step(Record *record, const StepReport *report, FshError *error);
FshStatus record_epoch(Record *record, const EpochReport *report, FshError *error);

/* folder/name into buffer. */
FshStatus record_path(const Record *record, char *buffer, size_t buffer_bytes, const char *name,
                      FshError *error);

extern const char record_lock_name[]; /* .ftrain-lock: see folder_lock.h */
extern const char record_best_name[]; /* model_best.safetensors */
extern const char record_last_name[]; /* last.safetensors */
extern const char
    record_average_name[]; /* model_ema.safetensors: of the best epoch of the averaged weights */
extern const char record_checkpoint_name[]; /* checkpoint.safetensors */
extern const char record_metrics_name[];    /* metrics.jsonl */
extern const char record_classes_name[];    /* per_class.csv */
/* diverged.safetensors: the state before a step whose loss is no number. */
extern const char record_diverged_name[];
extern const char record_profile_name[]; /* PROFILE.txt: the layers' times, of --profile */

#endif
