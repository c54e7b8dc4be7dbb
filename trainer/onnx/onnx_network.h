/* onnx_network.h - writes a network as an ONNX graph: its nodes in their order, each by the row of its op
 * (onnx_ops.h), with the weights in the same file.
 *
 * The graph takes "input", float32 [batch, channels, height, width], what the network's first layer sees:
 * pixels that are normalised already. It gives the kept tensor `output` under its name, images in the same
 * order. The batch is left open; of images of any size height and width are, too.
 *
 * Threads: one at a time. */
#ifndef FSHARD_TRAINER_ONNX_ONNX_NETWORK_H
#define FSHARD_TRAINER_ONNX_ONNX_NETWORK_H

#include "trainer/graph/graph.h"
#include "trainer/onnx/onnx_model.h"

/* Sets values to those of a parameter or buffer, in the order of its shape. */
typedef FshStatus (*OnnxRead)(void *context, const Tensor *tensor, float *values, FshError *error);

typedef struct OnnxNetwork {
    const char *name;
    /* for evaluation, in float32 and without fusions, for a batch of one; of images of any size one that was
     * built for an image of one pixel */
    const Graph *graph;
    const char *output; /* "logits", "restored" */
    bool any_size;
    const char *about_input, *about_output; /* for people */
    OnnxRead read;
    void *context;
} OnnxNetwork;

/* The message of protobuf that a model is may have no more bytes. */
enum { ONNX_BYTES_MAX = INT32_MAX };

/* Appends the graph. FSH_ERR_UNSUPPORTED: an op without a row, named with its layer; the weights are too many
 * for one file. FSH_ERR_MEMORY; what read returns. */
FshStatus onnx_network(OnnxWire *wire, const OnnxNetwork *network, FshError *error);

#endif
