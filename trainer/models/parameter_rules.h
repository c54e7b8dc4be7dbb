/* parameter_rules.h - which parameters of a network are trained, and with what part of the learning rate.
 *
 * A pattern is a glob, as fnmatch has it, that a parameter's name matches, or the name of a layer that it is
 * in: "layer1", "*.bias", "stages.[01]". * stands for dots, too. Patterns are separated by commas.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_MODELS_PARAMETER_RULES_H
#define FSHARD_TRAINER_MODELS_PARAMETER_RULES_H

#include "trainer/graph/graph.h"

/* Zeroed: all parameters are trained alike. */
typedef struct ParameterRules {
    const char *freeze; /* PATTERN,…: not trained; NULL: none. Borrowed */
    const char *rates;  /* PATTERN=FACTOR,… of the learning rate; the first that matches counts. Borrowed */
    double layer_decay; /* the learning rate of a layer is this times that of the next; 0: alike */
    bool head_only;     /* all but the last linear layer are frozen */
} ParameterRules;

/* Sets factors, and freezes, between building and graph_fuse. blocks: of the network (Model.blocks), NULL:
 * it has none. Mistakes fail the graph with FSH_ERR_USAGE: a pattern that matches no parameter, with names
 * that it may have meant; nothing left to train; layer decay without blocks. */
void parameter_rules_apply(Graph *graph, const ParameterRules *rules, const char *const *blocks);

/* Writes the layer of each parameter to layers [graph_tensor_count], -1 for other tensors, and returns their
 * number. Layer 0 is what stands before the first block, a block is a layer, and the last is what stands
 * behind: timm's group_matcher(coarse=False). blocks are the beginnings of names, "stages.#.blocks.#": # is a
 * number; "<norm" joins the layer before it. What stands between blocks joins the next one. */
int parameter_layers(const Graph *graph, const char *const *blocks, int *layers);

#endif
