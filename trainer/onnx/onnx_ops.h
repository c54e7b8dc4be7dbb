/* onnx_ops.h - how each op is written in ONNX: the table, and what its rows are written with.
 *
 * ONNX convolves images with the channels first, [N, C, H, W]; matrix products and norms over channels want
 * them last, [N, H, W, C], as graphs have them. So a value may be there in either order: a row says in which
 * it reads one (onnx_take transposes it, once), and in which it gives one (onnx_give). A value that is no
 * image, [N, C], has one order, whatever is asked for.
 *
 * Texts that these functions return are good until the row is done. */
#ifndef FSHARD_TRAINER_ONNX_ONNX_OPS_H
#define FSHARD_TRAINER_ONNX_ONNX_OPS_H

#include "trainer/onnx/onnx_network.h"

typedef enum OnnxOrder { CHANNELS_FIRST, CHANNELS_LAST, ONNX_ORDERS } OnnxOrder;

enum { ONNX_NAMES = 32, ONNX_NAME_BYTES = GRAPH_NAME_MAX + 32 };

typedef struct OnnxGraph {
    OnnxWire *wire;
    const OnnxNetwork *network;
    const Graph *graph;
    const Node *node;           /* the row's */
    TensorId input;             /* what the ONNX graph takes; TENSOR_NONE before OP_NORMALIZE */
    bool (*there)[ONNX_ORDERS]; /* [tensors] in which orders it was written; of a weight: the first */
    char names[ONNX_NAMES][ONNX_NAME_BYTES]; /* that the row has asked for */
    size_t name_count, constant_count;
} OnnxGraph;

/* Writes a node of its kind. */
typedef void (*OnnxWrite)(OnnxGraph *onnx, const Node *node);
/* Returns the row of an op; NULL: it has none. */
OnnxWrite onnx_row(OpKind op);

/* ---- for rows (onnx_network.c) ---- */

extern const char onnx_input_name[];

/* Returns a name of the row's own, made from the name of its node's result. */
const char *onnx_part(OnnxGraph *onnx, const char *suffix);
/* Returns the name of a value in this order, which it is brought to. */
const char *onnx_take(OnnxGraph *onnx, TensorId tensor, OnnxOrder order);
/* Returns an order in which the value is there. */
OnnxOrder onnx_order(const OnnxGraph *onnx, TensorId tensor);
/* Returns the name under which the row writes the node's first output, in this order. */
const char *onnx_give(OnnxGraph *onnx, OnnxOrder order);
/* Writes a parameter or buffer and returns its name. shape is that in ONNX; transposed: of a matrix, whose
 * rows and columns are exchanged. */
const char *onnx_weight(OnnxGraph *onnx, TensorId id, int rank, const int64_t *shape, bool transposed);
/* Write constants and return their names. */
const char *onnx_numbers(OnnxGraph *onnx, const int64_t *values, size_t count);
const char *onnx_scalar(OnnxGraph *onnx, float value);

/* Begins a node, for attributes and wire_close. inputs ends with NULL; "": one is left out. The node is named
 * by its output. */
size_t onnx_begin(OnnxGraph *onnx, const char *type, const char *output, const char *const *inputs);
#define ONNX_BEGIN(onnx, type, output, ...)                                                                  \
    onnx_begin((onnx), (type), (output), (const char *const[]){__VA_ARGS__, NULL})
/* Writes a node without attributes, and returns its output. */
const char *onnx_plain(OnnxGraph *onnx, const char *type, const char *output, const char *const *inputs);
#define ONNX_PLAIN(onnx, type, output, ...)                                                                  \
    onnx_plain((onnx), (type), (output), (const char *const[]){__VA_ARGS__, NULL})
/* Writes a node whose attribute is a list of numbers, "perm", and returns its output. */
const char *onnx_listed(OnnxGraph *onnx, const char *type, const char *output, const char *input,
                        const char *attribute, const int64_t *values, size_t count);

#endif
