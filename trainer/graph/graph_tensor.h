/* graph_tensor.h - the values of a graph: ids, types, roles and shapes. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_TENSOR_H
#define FSHARD_TRAINER_GRAPH_GRAPH_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Graph Graph;
typedef int32_t TensorId;
typedef int32_t NodeId;
#define TENSOR_NONE ((TensorId)-1)
#define NODE_NONE   ((NodeId)-1)

enum {
    GRAPH_RANK_MAX = 4,
    GRAPH_NAME_MAX = 96,
    NODE_INPUTS_MAX = 13,
    NODE_OUTPUTS_MAX = 10,
    GRAPH_CHANNELS_MAX = 4
};

/* bf16 and f16 are for activations alone: parameters, buffers, the optimizer's state, statistics and losses
 * are f32. */
typedef enum DataType { DATA_F32, DATA_U8, DATA_I64, DATA_BF16, DATA_F16 } DataType;
size_t data_type_bytes(DataType type);
const char *data_type_name(DataType type);
/* Returns true for f32, bf16 and f16. */
bool data_type_is_float(DataType type);
/* Returns whether it is a float type of 16 bits. */
bool data_type_is_narrow(DataType type);

typedef enum TensorRole {
    TENSOR_INPUT,      /* written from outside before a run: images, labels, learning rate */
    TENSOR_PARAMETER,  /* trained; lives in the State from run to run */
    TENSOR_BUFFER,     /* lives in the State, not trained: running_mean, running_var */
    TENSOR_OPTIMIZER,  /* a parameter's or buffer's, shaped like it; lives in the State: NAME.exp_avg */
    TENSOR_ACTIVATION, /* computed in each run, forward or backward; placed by the memory plan */
    TENSOR_GRADIENT,   /* of a parameter; all in one arena in parameter order, for optimizer and all-reduce */
} TensorRole;

typedef struct Initializer {
    enum {
        INIT_ZEROS,
        INIT_ONES,
        INIT_NORMAL,
        INIT_UNIFORM,
        INIT_CONSTANT,
        /* Of a convolution with an odd kernel: filter i passes on channel i (torch.nn.init.dirac_); those of
         * which there is no channel are uniform. */
        INIT_DIRAC
    } kind;
    double scale; /* standard deviation, half-width of the interval around 0, or the constant */
} Initializer;

typedef struct Tensor {
    /* Unique for all but activations that are not kept; those are named after what made them, "bn1.relu". */
    char name[GRAPH_NAME_MAX];
    TensorRole role;
    DataType type;
    int rank;
    int64_t shape[GRAPH_RANK_MAX];
    NodeId producer; /* NODE_NONE for inputs, parameters, buffers */
    /* For gradients, the tensor that they are the gradient of; for TENSOR_OPTIMIZER, its parameter or buffer;
     * else TENSOR_NONE. */
    TensorId of;
    bool keep;               /* readable after a run: loss, logits */
    bool decays;             /* TENSOR_PARAMETER: weight decay applies (off for norms and biases) */
    bool frozen;             /* TENSOR_PARAMETER: it is not trained (graph_freeze) */
    double rate, decay;      /* TENSOR_PARAMETER: factors of learning rate and weight decay, 1 at first */
    bool muon;               /* TENSOR_PARAMETER: Muon's, not the rest's (graph_update marks it: muon.h) */
    Initializer initializer; /* TENSOR_PARAMETER, TENSOR_BUFFER, TENSOR_OPTIMIZER */
    bool saved_without_ones; /* TENSOR_PARAMETER: files of weights have its shape without dimensions of 1 */
    float drop_rate;         /* TENSOR_INPUT of graph_drop_path: its rate; other tensors: 0 */
    /* TENSOR_PARAMETER that has a row for each pixel of an image, its last ones: the image's height and width
     * (graph_tokens); other tensors: 0. */
    int64_t grid_height, grid_width;
} Tensor;

/* Returns the number of elements. */
int64_t tensor_count(const Tensor *tensor);
/* Writes the shape for messages, "64 x 32 x 32 x 3". Returns buffer. */
const char *tensor_shape_text(const Tensor *tensor, char *buffer, size_t buffer_bytes);
/* Returns true for what a file of weights holds: parameters, and the buffers that layers name; not the
 * counters of the update, "optimizer.step", "scaler.scale", …. */
bool tensor_is_weight(const Tensor *tensor);

#endif
