/* models.h - each network is one builder function over graph.h, and a row in the registry. */
#ifndef FSHARD_TRAINER_MODELS_MODELS_H
#define FSHARD_TRAINER_MODELS_MODELS_H

#include "trainer/graph/graph.h"

/* What a network makes of an image. */
typedef enum TaskKind {
    TASK_CLASSIFICATION, /* a class */
    TASK_RESTORATION,    /* the image restored: datasets of pairs */
} TaskKind;

typedef struct ModelSpec {
    int64_t batch;         /* per rank */
    int64_t height, width; /* of the pixels that the network sees */
    int64_t channels;      /* 1 or 3 */
    int64_t classes;       /* classification */
    bool training;         /* batch statistics in the norms */
    /* What a network leaves open; 0 or NULL: its default. A network that does not have the option (Model.options) is refused. */
    int64_t depth, alpha;       /* pyramidnet: 110, 270 */
    int64_t base_channels;      /* unet, nafnet: channels at full resolution, --width; 32 */
    const char *encoder_blocks; /* nafnet: "1,1,1,28", blocks of each level from full resolution down */
    const char *middle_blocks;  /* nafnet: "1" */
    const char *decoder_blocks; /* nafnet: "1,1,1,1", from the lowest resolution up */
} ModelSpec;

/* Options of ModelSpec, for Model.options. */
enum { MODEL_DEPTH = 1, MODEL_ALPHA = 2, MODEL_BASE_CHANNELS = 4, MODEL_BLOCKS = 8 };

typedef struct Model {
    const char *name;    /* "resnet18", as torchvision and timm spell it */
    const char *summary; /* one line for --list-models, with its source */
    TaskKind task;
    unsigned options; /* those of ModelSpec that it has */
    /* Classification: x, normalised pixels [batch, height, width, channels] f32 -> logits [batch, classes]. Restoration: x, pixels
     * in 0..1 -> the image restored, of the same shape. Options and sizes that do not fit fail the graph. */
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
 * learning_rate input "learning_rate" is made here). For restoration: "image", and what the network makes of it (kept "restored");
 * training is refused. */
typedef struct ModelRecipe {
    double mean[4], deviation[4]; /* of full scale 0..1 */
    DataType compute_type;        /* of activations: graph_set_compute_type; f32 by default */
    float label_smoothing;        /* training only */
    Optimizer optimizer;          /* training only */
} ModelRecipe;
FshStatus model_graph(const Model *model, const ModelSpec *spec, const ModelRecipe *recipe, Graph **graph,
                      FshError *error);

#endif
