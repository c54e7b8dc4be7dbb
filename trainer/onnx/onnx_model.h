/* onnx_model.h - writes the messages of ONNX (onnx.proto): a model of one graph, with its nodes, the tensors
 * that it holds, its inputs and outputs.
 *
 *   OnnxWire wire = {0};
 *   const size_t graph = onnx_begin_graph(&wire, "resnet18");
 *   onnx_floats(&wire, "fc.weight", 2, shape, values);
 *   const size_t node = onnx_begin_node(&wire, "Gemm", "fc", inputs, 3, outputs, 1);
 *   onnx_node_integer(&wire, "transB", 1);
 *   wire_close(&wire, node);
 *   onnx_value(&wire, ONNX_INPUT, "input", 4, sides, "float32 RGB");
 *   wire_close(&wire, graph);
 *   onnx_model(&wire, …);
 *
 * Fields of a message may come in any order, and repeated ones between others: so nodes and tensors are
 * written as they come, and nothing is kept twice. Threads: one at a time. */
#ifndef FSHARD_TRAINER_ONNX_ONNX_MODEL_H
#define FSHARD_TRAINER_ONNX_ONNX_MODEL_H

#include "trainer/onnx/onnx_wire.h"

/* The oldest operators that hold all that networks need, LayerNormalization above all: runtimes since 2022
 * read them. */
enum { ONNX_OPSET = 17, ONNX_IR_VERSION = 8 };

/* Begins the graph of a model; wire_close ends it. */
size_t onnx_begin_graph(OnnxWire *wire, const char *name);

/* Begins a node; attributes follow, and wire_close ends it. A name of "" as an input: it is left out. */
size_t onnx_begin_node(OnnxWire *wire, const char *type, const char *name, const char *const *inputs,
                       size_t input_count, const char *const *outputs, size_t output_count);
void onnx_node_integer(OnnxWire *wire, const char *name, int64_t value);
void onnx_node_integers(OnnxWire *wire, const char *name, const int64_t *values, size_t count);
void onnx_node_float(OnnxWire *wire, const char *name, float value);
void onnx_node_text(OnnxWire *wire, const char *name, const char *value);

/* Appends a tensor of float32 to the graph and returns its values, to be filled before the next call; NULL
 * after a failure. They may lie at any address. */
void *onnx_floats(OnnxWire *wire, const char *name, int rank, const int64_t *shape);
/* Does the same for a tensor of int64 with one dimension. */
void *onnx_integers(OnnxWire *wire, const char *name, size_t count);

/* A side of an input or output. */
typedef struct OnnxSide {
    int64_t length;   /* 0: any */
    const char *name; /* of a length that is left open */
} OnnxSide;
typedef enum OnnxPlace { ONNX_INPUT, ONNX_OUTPUT } OnnxPlace;
/* Says that float32 values of this name go into the graph or come out of it. about: for people. */
void onnx_value(OnnxWire *wire, OnnxPlace place, const char *name, int rank, const OnnxSide *sides,
                const char *about);

/* Appends what a model has beside its graph: versions, and who wrote it. */
void onnx_model(OnnxWire *wire, const char *about);
/* Appends a text to the model's metadata. */
void onnx_metadata(OnnxWire *wire, const char *key, const char *value);

#endif
