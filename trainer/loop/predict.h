/* predict.h - what a network makes of each sample of the evaluation split, written down.
 *
 * Classes: a CSV, a row of class_rows.h for each. Pairs: a CSV, "key,psnr,ssim,input_psnr", and in a folder
 * for each sample KEY.restored.png beside KEY.input.png, both as the network saw and gave them.
 *
 * The CSV appears when it is complete (rename). Threads: one. */
#ifndef FSHARD_TRAINER_LOOP_PREDICT_H
#define FSHARD_TRAINER_LOOP_PREDICT_H

#include "common/folder_lock.h"
#include "trainer/session/session.h"

typedef struct Predictor Predictor;

/* Begins what is to be written. folder (--predict): images, and predictions.csv; csv_path (--export): the
 * table alone; either may be NULL. json: of classes, JSON lines, predictions.jsonl. Makes folders; files of
 * these names are replaced only with force. FSH_ERR_EXISTS: one is there, or another ftrain writes into the
 * folder. */
FshStatus predictor_new(Predictor **predictor, const Session *session, const char *folder,
                        const char *csv_path, bool json, bool force, FshError *error);
/* For session_evaluate; context: the Predictor. */
FshStatus predictor_visit(void *context, const Batch *batch, const Evaluated *evaluated, FshError *error);
/* Puts the CSV in its place. */
FshStatus predictor_finish(Predictor *predictor, FshError *error);
/* Returns the lock on the folder; FOLDER_LOCK_NONE without one. */
const FolderLock *predictor_lock(const Predictor *predictor);
/* Returns how many text cells of the CSV a spreadsheet would run as formulas (csv.h). */
uint64_t predictor_formula_count(const Predictor *predictor);
/* Frees; a CSV that is not finished is gone. NULL is fine. */
void predictor_free(Predictor **predictor);

#endif
