/* models.h - each network is one builder function over graph.h, and a row in the registry. */
#ifndef FSHARD_TRAINER_MODELS_MODELS_H
#define FSHARD_TRAINER_MODELS_MODELS_H

#include "trainer/graph/graph.h"

typedef struct ModelSpec {
    int64_t batch;         /* per rank */
    int64_t height, width; /* of the pixels that the network sees */
    int64_t channels;      /* 1 or 3 */
    int64_t classes;
    bool training; /* batch statistics in the norms */
} ModelSpec;

typedef struct Model {
    const char *name;    /* "resnet18", as torchvision and timm spell it */
    const char *summary; /* one line for --list-models, with its source */
    /* x: normalised pixels [batch, height, width, channels] f32 -> logits [batch, classes]. */
    TensorId (*build)(Graph *graph, TensorId x, const ModelSpec *spec);
} Model;

/* NULL-terminated by name. */
extern const Model models[];

/* NULL if there is no such model. */
const Model *model_find(const char *name);
/* "conv8, resnet18" for messages. Returns buffer. */
const char *model_names(char *buffer, size_t buffer_bytes);

/* What training and evaluation need around a network: input "image" (u8) and "label", normalisation, logits
 * (kept "logits"), loss (kept "loss"), and with spec->training gradients and the update (its
 * learning_rate input "learning_rate" is made here). */
typedef struct ModelRecipe {
    double mean[4], deviation[4]; /* of full scale 0..1 */
    float label_smoothing;        /* training only */
    Optimizer optimizer;          /* training only */
} ModelRecipe;
FshStatus model_graph(const Model *model, const ModelSpec *spec, const ModelRecipe *recipe, Graph **graph,
                      FshError *error);

#endif
