/* predict.h - writes what a network gives for each sample of the evaluation split.
 *
 * Classes: a CSV with a row of class_rows.h for each sample. Pairs: a CSV "key,psnr,ssim,input_psnr", and a
 * folder with KEY.restored.png and KEY.input.png for each sample: the network's output and input.
 *
 * The CSV appears when it is complete (rename). Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_PREDICT_H
#define FSHARD_TRAINER_LOOP_PREDICT_H

#include "common/folder_lock.h"
#include "trainer/session/session.h"

typedef struct Predictor Predictor;

/* Opens the files to write. folder (--predict): images, and predictions.csv; csv_path (--export): the table
 * alone; either may be NULL. json: classes are written as JSON lines, predictions.jsonl. Makes folders;
 * replaces existing files only with force. FSH_ERR_EXISTS: a file is there, or another ftrain writes to the
 * folder. */
FshStatus predictor_new(Predictor **predictor, const Session *session, const char *folder,
                        const char *csv_path, bool json, bool force, FshError *error);
/* Writes the samples of one batch. The visit function of a SessionVisitor; context: the Predictor. */
FshStatus predictor_visit(void *context, const Batch *batch, const Evaluated *evaluated, FshError *error);
/* Moves the CSV to its place. */
FshStatus predictor_finish(Predictor *predictor, FshError *error);
/* Returns the lock on the folder; FOLDER_LOCK_NONE without one. */
const FolderLock *predictor_lock(const Predictor *predictor);
/* Returns how many text cells of the CSV a spreadsheet would run as formulas (csv.h). */
uint64_t predictor_formula_count(const Predictor *predictor);
/* Frees everything and discards an unfinished CSV. NULL is fine. */
void predictor_free(Predictor **predictor);

#endif
