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
    /* What a network leaves open; 0 or NULL: its default. A network that does not have the option
     * (Model.options) is refused. */
    int64_t depth, alpha;       /* pyramidnet: 110, 270 */
    int64_t base_channels;      /* nafnet: channels at full resolution, unet: at half; --width; 32 */
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
    bool batch_norm;  /* it has batch norms */
    /* Classification: x, normalised pixels [batch, height, width, channels] f32 -> logits [batch, classes].
     * Restoration: x, pixels in 0..1 -> the image restored, of the same shape. Options and sizes that do not
     * fit fail the graph. */
    TensorId (*build)(Graph *graph, TensorId x, const ModelSpec *spec);
} Model;

/* NULL-terminated by name. */
extern const Model models[];

/* NULL if there is no such model. */
const Model *model_find(const char *name);
/* "conv8, resnet18" for messages. Returns buffer. */
const char *model_names(char *buffer, size_t buffer_bytes);

/* What training and evaluation need around a network. Inputs: "image" u8; of classes "label" i64 and, where
 * mixes, "label_mixed" i64 and "mix" f32; of pairs "target" u8 and "valid" f32; with spec->training
 * "learning_rate". Kept: "logits", or "restored" and each image's mean squared "error"; "loss"; with
 * spec->training what graph_update keeps. */
typedef struct ModelRecipe {
    double mean[4], deviation[4]; /* of full scale 0..1; for restoration 0 and 1 */
    LossKind loss;
    DataType compute_type; /* DATA_F32, DATA_BF16 or DATA_F16: of activations and products */
    float label_smoothing; /* training only */
    bool mixes;            /* training only: labels come in twos */
    unsigned fusions;      /* GraphFusion bits, of those the backend has (backend_fusions); 0: FUSE_ALL */
    Optimizer optimizer;   /* training only; its learning_rate is made here */
} ModelRecipe;
FshStatus model_graph(const Model *model, const ModelSpec *spec, const ModelRecipe *recipe, Graph **graph,
                      FshError *error);

#endif
