/* run_record.h - what a run leaves in its output folder beside the weights, for programs to read.
 *
 *   args.json       options, what was chosen, dataset, device, versions: enough to repeat the run
 *   summary.csv     a row for each epoch, timm's columns:
 *                   epoch,time,train_loss,eval_loss,eval_top1,eval_top5,lr
 *   metrics.jsonl   an object for each logged step and each epoch
 *
 * Rows are appended whole: where the disk is full, the file ends with the row before. Threads: one. */
#ifndef FSHARD_TRAINER_REPORT_RUN_RECORD_H
#define FSHARD_TRAINER_REPORT_RUN_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "trainer/report/console.h"

typedef struct Record {
    char *folder;                               /* owned */
    int summary_descriptor, metrics_descriptor; /* -1: not open */
} Record;

/* One epoch at its end. */
typedef struct EpochReport {
    uint64_t epoch;
    double seconds; /* since training began, evaluation included */
    double train_loss, train_top1, train_top5;
    bool evaluated;
    double eval_loss, eval_top1, eval_top5;
    double learning_rate;       /* of the last step */
    double images_per_second;   /* of training */
    double loader_wait_seconds; /* in this epoch */
    uint64_t order_digest;      /* sampler_order_digest */
} EpochReport;

/* FSH_ERR_EXISTS: folder is there and not empty, and force was not given (a file by that name: always). */
FshStatus record_check_folder(const char *folder, bool force, FshError *error);

/* Makes the folder (mkdir -p), removes the files of an earlier run (with force), writes args.json (a JSON
 * text) and the first line of summary.csv. */
FshStatus record_open(Record *record, const char *folder, bool force, const char *arguments_json,
                      FshError *error);
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

extern const char record_best_name[]; /* model_best.safetensors */
extern const char record_last_name[]; /* last.safetensors */

#endif
