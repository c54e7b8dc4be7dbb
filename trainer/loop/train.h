/* train.h - what ftrain does: train, evaluate, predict.
 *
 * Threads: one; it starts the loader's and the backend's. */
#ifndef FSHARD_TRAINER_LOOP_TRAIN_H
#define FSHARD_TRAINER_LOOP_TRAIN_H

#include "trainer/plan/train_options.h"

/* Trains options->shards into the folder options->output: args.json, summary.csv, metrics.jsonl, and after
 * each epoch last.safetensors, checkpoint.safetensors, model_best.safetensors where evaluation is best,
 * model_ema.safetensors. Nothing is written before dataset, options, network and memory have been found good.
 * A signal ends it after the step in hand, with the checkpoint written: FSH_ERR_INTERRUPTED. A disk that is
 * full costs a warning and leaves the old file; *partial_ret is true when weights of the end could not be
 * saved, or samples were skipped. A loss that is no number ends it: FSH_ERR_MISMATCH, with
 * diverged.safetensors and diverged.json. The result goes to stdout. */
FshStatus train_run(const TrainOptions *options, bool *partial_ret, FshError *error);

/* Evaluates options->weights on the evaluation split; the result goes to stdout. With options->predict or
 * export_path what it gives for each sample is written there. */
FshStatus train_evaluate(const TrainOptions *options, bool *partial_ret, FshError *error);

/* --bench-loader: the loader alone, with what it would do in training; the result goes to stdout.
 * *partial_ret: samples were skipped. */
FshStatus train_bench_loader(const TrainOptions *options, bool *partial_ret, FshError *error);

#endif
