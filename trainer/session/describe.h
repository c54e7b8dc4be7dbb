/* describe.h - ftrain about itself: tables of networks and layers, and the run as JSON. memory_table.h:
 * memory. */
#ifndef FSHARD_TRAINER_SESSION_DESCRIBE_H
#define FSHARD_TRAINER_SESSION_DESCRIBE_H

#include <jansson.h>
#include <stdio.h>

#include "trainer/session/session.h"

/* Prints a table: each layer with its output, parameters and GFLOP for one image; then where memory goes. */
void describe_network(const Session *session, FILE *stream);

/* How the backend computes each node of the largest training graph, or of evaluation's, as far as it had a
 * choice. */
void describe_plans(const Session *session, FILE *stream);

/* --dry-run: what train_run would do, on stdout; nothing is written. With --device cuda where there is no
 * GPU, but a build that knows it: what can be foreseen. */
FshStatus describe_run(const TrainOptions *options, FshError *error);

/* --list-models: a line for each network, on stdout: for the dataset options->shards, or for what the model
 * was made for. */
FshStatus describe_models(const TrainOptions *options, FshError *error);

/* args.json: options by name (with _ for -), what was chosen, dataset, network, device. *text_ret: owned by
 * the caller, free(). */
FshStatus describe_arguments(const TrainOptions *options, const Session *session, char **text_ret,
                             FshError *error);

/* Prints the object on stdout, indented, and takes it. NULL is "no memory". */
FshStatus describe_print_json(json_t *object, FshError *error);

#endif
