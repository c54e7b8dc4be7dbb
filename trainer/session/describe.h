/* describe.h - prints tables of networks and layers, and the run as JSON (memory_table.h: the tables of
 * memory). */
#ifndef FSHARD_TRAINER_SESSION_DESCRIBE_H
#define FSHARD_TRAINER_SESSION_DESCRIBE_H

#include <jansson.h>
#include <stdio.h>

#include "trainer/session/session.h"

/* Prints a table of layers, each with its output, parameters and MFLOP for one image, and then the table of
 * memory. Unless whole, neighbours whose names begin alike, as layer1, are one row where there are many. */
void describe_network(const Session *session, bool whole, FILE *stream);

/* Prints how the backend computes each node for which it had a choice, of the largest training graph, or of
 * the evaluation graph if nothing is trained. */
void describe_plans(const Session *session, FILE *stream);

/* Prints what train_run would do on stdout, for --dry-run; writes no files. With --device cuda on a machine
 * without a GPU it prints what can be foreseen, if the build knows CUDA. Of several ranks the first describes
 * the run of all, which it does not meet. Fails as train_run would before its first step, but for what it
 * would find in OUTPUT. */
FshStatus describe_run(const TrainOptions *given, FshError *error);

/* Prints a line for each network on stdout, for --list-models: its cost for the dataset options->shards, or
 * for the images that the model was made for. */
FshStatus describe_models(const TrainOptions *options, FshError *error);

/* Sets *text_ret to the text of args.json: options by name (with _ for -), what was chosen, dataset, network,
 * device. The caller frees it with free(). */
FshStatus describe_arguments(const TrainOptions *options, const Session *session, char **text_ret,
                             FshError *error);

/* Prints the object on stdout, indented, and releases it. NULL gives FSH_ERR_MEMORY. */
FshStatus describe_print_json(json_t *object, FshError *error);

#endif
