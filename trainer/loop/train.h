/* train.h - what ftrain does: trains, evaluates, predicts.
 *
 * Threads: call from one; the loader and the backend start theirs. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_H
#define FSHARD_TRAINER_LOOP_TRAIN_H

#include "trainer/plan/train_options.h"

/* Trains on options->shards and writes to the folder options->output: args.json, summary.csv, metrics.jsonl,
 * and after each epoch last.safetensors, checkpoint.safetensors, and for the best evaluation
 * model_best.safetensors and model_ema.safetensors. Nothing is written before dataset, options, network and
 * memory have been checked. The result goes to stdout.
 *
 * A signal ends it after the current step, with the checkpoint written: FSH_ERR_INTERRUPTED. A full disk
 * costs a warning and leaves the old file. A loss that is not finite ends it: FSH_ERR_MISMATCH, with
 * diverged.safetensors and diverged.json. *partial_ret is set to true if the last weights could not be saved,
 * or samples were skipped. */
FshStatus train_run(const TrainOptions *options, bool *partial_ret, FshError *error);

/* Evaluates options->weights on the evaluation split, and prints the result on stdout. With --predict or
 * --export it also writes the prediction for each sample there. *partial_ret: samples were skipped. */
FshStatus train_evaluate(const TrainOptions *options, bool *partial_ret, FshError *error);

/* Times the loader alone, doing what it would do in training (--bench-loader), and prints the result on
 * stdout. *partial_ret: samples were skipped. */
FshStatus train_bench_loader(const TrainOptions *options, bool *partial_ret, FshError *error);

#endif
