/* models.h - each network is a file with a builder function over graph.h, its options and its row, and a name in
 * the registry (models.c).
 *
 * An option is a ModelOption of the network's file, which its builder reads with model_integer, model_real or
 * model_text. --help, config files and the "shape" in weights have it from there. */
#ifndef FSHARD_TRAINER_MODELS_MODELS_H
#define FSHARD_TRAINER_MODELS_MODELS_H

#include <jansson.h>

#include "common/options.h"
#include "trainer/graph/graph.h"

/* What a network makes of an image. */
typedef enum TaskKind {
    TASK_CLASSIFICATION, /* a class */
    TASK_RESTORATION,    /* the image restored: datasets of pairs */
} TaskKind;

enum { MODEL_OPTIONS_MAX = 32 };

/* An option of networks: how the user says it, and what becomes of it. */
typedef struct ModelOption {
    /* What the parser and --help need; its value is a ModelValue. An OPTION_INTEGER, OPTION_REAL or OPTION_TEXT
     * for which 0 or NULL means the network's default. */
    Option row;
    bool trains_only; /* weights do not depend on it: their files do not name it */
} ModelOption;

typedef union ModelValue {
    int64_t integer;
    double real;
    const char *text; /* borrowed */
} ModelValue;

/* The values of all options of all networks, by model_option's index; zeroed: every default. */
typedef struct ModelValues {
    ModelValue at[MODEL_OPTIONS_MAX];
} ModelValues;

typedef struct ModelSpec {
    int64_t batch;         /* per rank */
    int64_t height, width; /* of the pixels that the network sees */
    int64_t channels;      /* 1 or 3 */
    int64_t classes;       /* classification */
    bool training;         /* batch statistics in the norms */
    ModelValues options;   /* a value for an option that the network lacks is refused */
} ModelSpec;

typedef struct Model {
    const char *name;    /* "resnet18", as torchvision and timm spell it */
    const char *summary; /* one line for --list-models, with its source */
    TaskKind task;
    bool batch_norm; /* it has batch norms */
    /* Classification: x, normalised pixels [batch, height, width, channels] f32 -> logits [batch, classes].
     * Restoration: x, pixels in 0..1 -> the image restored, of the same shape. Options and sizes that do not
     * fit fail the graph. */
    TensorId (*build)(Graph *graph, TensorId x, const ModelSpec *spec);
    const ModelOption *const *options; /* its own, the last NULL; NULL: it has none */
    /* Restoration: returns what height and width are multiples of wherever the network halves them. */
    uint32_t (*multiple)(const ModelSpec *spec);
} Model;

/* Returns the networks one after the other: in the order of their files in models.c. NULL: past the last. */
const Model *model_at(size_t index);
/* NULL if there is no such model. */
const Model *model_find(const char *name);
/* "conv8, resnet18" for messages. Returns buffer. */
const char *model_names(char *buffer, size_t buffer_bytes);

/* Returns the options of all networks, each once, in the order of the networks. NULL: past the last. */
const ModelOption *model_option(size_t index);
/* Returns the place of the option of this name ("width", "encoder_blocks", "encoder-blocks") in values. NULL:
 * no network has one. */
ModelValue *model_value(ModelValues *values, const char *name);
/* Return the value of an option of the network, or fallback where it was not chosen. */
int64_t model_integer(const ModelSpec *spec, const ModelOption *option, int64_t fallback);
double model_real(const ModelSpec *spec, const ModelOption *option, double fallback);
const char *model_text(const ModelSpec *spec, const ModelOption *option, const char *fallback);
/* Returns true if some option shapes the network's weights. */
bool model_has_shapes(const Model *model);

/* Adds what shapes weights to an object as "depth": 0, "encoder_blocks": "", each option by its name. Returns
 * false: no memory. */
bool model_write_shape(const ModelValues *values, json_t *object);
/* Reads what model_write_shape wrote, into values; what is missing or of another kind is 0 or NULL. Texts point
 * into the object, which may be a stranger's: the network checks values where it is built. */
void model_read_shape(const json_t *object, ModelValues *values);
/* Sets each value that shapes weights and is not chosen in values to that of shape. */
void model_take_shape(ModelValues *values, const ModelValues *shape);

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
