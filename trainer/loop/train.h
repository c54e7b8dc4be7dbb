/* train.h - what ftrain does: train, evaluate, say what would be done.
 *
 * Threads: one; it starts the loader's and the backend's. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_H
#define FSHARD_TRAINER_LOOP_TRAIN_H

#include "trainer/loop/train_options.h"

/* Trains options->shards into the folder options->output: args.json, summary.csv, metrics.jsonl,
 * last.safetensors after each epoch, model_best.safetensors where evaluation is best. Nothing is written
 * before dataset, options, network and memory have been found good. A signal ends it after the step in hand,
 * with last.safetensors written: FSH_ERR_INTERRUPTED. A disk that is full costs a warning and leaves the old
 * file; *partial_ret is true when weights of the end could not be saved, or samples were skipped. The result
 * goes to stdout. */
FshStatus train_run(const TrainOptions *options, bool *partial_ret, FshError *error);

/* Evaluates options->weights on the evaluation split; the result goes to stdout. */
FshStatus train_evaluate(const TrainOptions *options, bool *partial_ret, FshError *error);

#endif
