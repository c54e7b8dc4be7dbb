/* models.h - the networks. Each is a file with a builder function over graph.h, its options and its row, and
 * has a name in the registry (models.c).
 *
 * An option is a ModelOption in the network's file, which its builder reads with model_integer, model_real or
 * model_text. --help, config files and the "shape" of weights take it from there. */
#ifndef FSHARD_TRAINER_MODELS_MODELS_H
#define FSHARD_TRAINER_MODELS_MODELS_H

#include <jansson.h>

#include "common/options.h"
#include "trainer/graph/graph.h"
#include "trainer/models/parameter_rules.h"

/* What a network computes from an image. */
typedef enum TaskKind {
    TASK_CLASSIFICATION, /* a class */
    TASK_RESTORATION,    /* the restored image; its datasets hold pairs */
    TASK_SEGMENTATION,   /* a class of each pixel; its datasets hold images and masks */
} TaskKind;

enum { MODEL_OPTIONS_MAX = 32 };

/* An option of networks: how the user gives it, and whether weights depend on it. */
typedef struct ModelOption {
    /* For the parser and --help; its value is a ModelValue. An OPTION_INTEGER, OPTION_REAL or OPTION_TEXT for
     * which 0 or NULL means the network's default. */
    Option row;
    bool trains_only; /* weights do not depend on it, and their files do not have it */
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
    int64_t classes;       /* classification and segmentation */
    bool training;         /* batch statistics in the norms */
    ModelValues options;   /* a value for an option that the network lacks is refused */
} ModelSpec;

/* Pixels as they are stored, [height, width, channels]. */
typedef struct ModelImage {
    const uint8_t *pixels;
    int64_t height, width, channels;
} ModelImage;

/* What the network makes of pixels: (pixel / 255 - mean) / deviation, for each of the channels. */
typedef struct ModelPixelScale {
    const double *mean, *deviation; /* [channels] */
    int64_t channels;
} ModelPixelScale;

/* A parameter whose first values follow from images of the training split, by sums over them.
 *
 *   double sums[weight->sum_count(channels)] = {0};
 *   weight->add(&image, sums);              // for each image
 *   weight->compute(sums, &scale, values);
 *
 * Sums are whole numbers, so that neither the order of images nor the number of threads matters. */
typedef struct ModelFirstWeight {
    const char *parameter;
    uint64_t images; /* so many of them, or all that there are */
    size_t (*sum_count)(int64_t channels);
    void (*add)(const ModelImage *image, double *sums);
    /* Computes the values, as many as the parameter has. */
    void (*compute)(const double *sums, const ModelPixelScale *scale, float *values);
} ModelFirstWeight;

typedef struct Model {
    const char *name;    /* "resnet18", as torchvision and timm spell it */
    const char *summary; /* one line for --list-models, with its source */
    TaskKind task;
    bool batch_norm; /* the network has batch norms */
    /* Builds the network. Classification: from x, normalised pixels [batch, height, width, channels] f32, to
     * logits [batch, classes]; segmentation: to logits [batch, height, width, classes]. Restoration: from x,
     * pixels in 0..1, to the restored image of the same shape.
     * Options and sizes that do not fit fail the graph. */
    TensorId (*build)(Graph *graph, TensorId x, const ModelSpec *spec);
    const ModelOption *const *options; /* ends with NULL; NULL: no options */
    /* The beginnings of its blocks' names, for --layer-decay (parameter_layers); NULL: it has none. Ends with
     * NULL. */
    const char *const *blocks;
    const ModelFirstWeight *first_weight; /* NULL: all parameters are drawn */
    /* Restoration and segmentation: returns the number whose multiples the network can halve at every
     * level. */
    uint32_t (*multiple)(const ModelSpec *spec);
    /* Returns whether it learns the positions of tokens, so that a run trains and evaluates it at one size of
     * images; NULL: it does not. */
    bool (*learns_positions)(const ModelSpec *spec);
    const char *recipe; /* for runs by SGD to hear of, where it was published with AdamW; NULL: it was not */
} Model;

/* Returns network `index`, in the order of the files in models.c; NULL: past the last. */
const Model *model_at(size_t index);
/* Returns the network of this name; NULL: there is none. */
const Model *model_find(const char *name);
/* Writes those that may have been meant by a name of none to buffer, "resnet9 or resnet18": with the fewest
 * wrong letters, of three at most, whatever the case; "" if there are none. Returns buffer. */
const char *model_names_near(const char *name, char *buffer, size_t buffer_bytes);

/* Returns option `index` of all networks, each listed once, in the order of the networks; NULL: past the
 * last. */
const ModelOption *model_option(size_t index);
/* Returns whether the network has the option. */
bool model_has_option(const Model *model, const ModelOption *option);
/* Return the value of an option of the network, or fallback if it was not set. */
int64_t model_integer(const ModelSpec *spec, const ModelOption *option, int64_t fallback);
double model_real(const ModelSpec *spec, const ModelOption *option, double fallback);
const char *model_text(const ModelSpec *spec, const ModelOption *option, const char *fallback);
/* Refuses values for options that the network lacks; the message names all of them, and networks that have
 * them. FSH_ERR_USAGE. */
FshStatus model_check_options(const Model *model, const ModelValues *values, FshError *error);
/* Returns whether some option changes the shapes of the network's weights. */
bool model_has_shapes(const Model *model);

/* Adds the options that shape weights to an object, each by its name: "depth": 0, "encoder_blocks": "".
 * Returns false without memory. */
bool model_write_shape(const ModelValues *values, json_t *object);
/* Reads into values what model_write_shape wrote; missing values and those of another kind become 0 or NULL.
 * Texts point into the object, which may be hostile: the network checks values when it is built. */
void model_read_shape(const json_t *object, ModelValues *values);
/* Sets each value that shapes weights and is not set in values to that of shape. */
void model_take_shape(ModelValues *values, const ModelValues *shape);

/* Parts of training and evaluation around a network. Inputs: "image" u8; of classes "label" i64 and, with
 * mixes, "label_mixed" i64 and "mix" f32, or with rows "targets" f32 [batch, classes] and "valid" f32;
 * with weighs_classes "class_weights" and with weighs_positives "positive_weights" f32 [classes]; of
 * pairs and masks "target" u8 and "valid" f32; with spec->training "learning_rate" and, with
 * optimizer.cycles_momentum, "momentum". Outputs: "logits", or "restored" and each image's mean squared
 * "error", or of masks "classes" u8 [batch, height, width, 1], "sums" f32 [batch, MASK_SUMS] and, with
 * keeps_logits, "logits"; "loss"; with spec->training those of graph_update. */
typedef struct ModelRecipe {
    double mean[4], deviation[4]; /* of pixels at full scale 0..1; for restoration 0 and 1 */
    LossKind loss;
    DataType compute_type; /* DATA_F32, DATA_BF16 or DATA_F16: of activations and products */
    float label_smoothing; /* training only */
    float bce_threshold;   /* LOSS_BCE, with bce_binarizes: see ClassTargetsOf */
    bool bce_binarizes, bce_sums;
    bool rows;             /* of classes: a row of targets for each sample (graph_target_loss), not a label */
    bool mixes;            /* training only: each sample has two labels; of rows the host mixes them */
    bool weighs_classes;   /* training only: see graph_class_loss */
    bool weighs_positives; /* of rows, training only: see graph_target_loss */
    bool keeps_logits;     /* of masks: "logits" are an output too, many bytes that training never reads */
    bool sync_norms;       /* training only: see graph_set_sync_norms */
    int norm_sample;       /* training only: see graph_set_norm_sample */
    unsigned fusions;      /* GraphFusion bits that the backend has (backend_fusions); 0: FUSE_ALL */
    ParameterRules rules;  /* training only */
    Optimizer optimizer;   /* training only; model_graph adds its learning_rate */
} ModelRecipe;
FshStatus model_graph(const Model *model, const ModelSpec *spec, const ModelRecipe *recipe, Graph **graph,
                      FshError *error);

#endif
