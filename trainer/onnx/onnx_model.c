#include "trainer/onnx/onnx_model.h"

/* Numbers of fields, in the order of onnx.proto. */
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_OP_TYPE, NODE_ATTRIBUTE };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F, ATTRIBUTE_I, ATTRIBUTE_S, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20 };
enum { TENSOR_DIMS = 1, TENSOR_DATA_TYPE, TENSOR_NAME = 8, TENSOR_RAW_DATA };
enum { GRAPH_NODE = 1, GRAPH_NAME, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT };
enum { VALUE_NAME = 1, VALUE_TYPE, VALUE_DOC_STRING };
enum { TYPE_TENSOR = 1 };
enum { TENSOR_TYPE_ELEMENT = 1, TENSOR_TYPE_SHAPE };
enum { SHAPE_DIM = 1 };
enum { DIM_VALUE = 1, DIM_PARAM };
enum {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER_NAME,
    MODEL_PRODUCER_VERSION,
    MODEL_DOC_STRING = 6,
    MODEL_GRAPH,
    MODEL_OPSET_IMPORT,
    MODEL_METADATA = 14
};
enum { OPSET_VERSION = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE };

/* AttributeProto.AttributeType */
enum { IS_FLOAT = 1, IS_INT = 2, IS_STRING = 3, IS_INTS = 7 };
/* TensorProto.DataType */
enum { ELEMENT_FLOAT = 1, ELEMENT_INT64 = 7 };

size_t onnx_begin_graph(OnnxWire *wire, const char *name)
{
    const size_t graph = wire_open(wire, MODEL_GRAPH);
    wire_text(wire, GRAPH_NAME, name);
    return graph;
}

size_t onnx_begin_node(OnnxWire *wire, const char *type, const char *name, const char *const *inputs,
                       size_t input_count, const char *const *outputs, size_t output_count)
{
    const size_t node = wire_open(wire, GRAPH_NODE);
    for (size_t i = 0; i < input_count; i++)
        wire_text(wire, NODE_INPUT, inputs[i]);
    for (size_t i = 0; i < output_count; i++)
        wire_text(wire, NODE_OUTPUT, outputs[i]);
    wire_text(wire, NODE_NAME, name);
    wire_text(wire, NODE_OP_TYPE, type);
    return node;
}

static size_t begin_attribute(OnnxWire *wire, const char *name, int64_t type)
{
    const size_t attribute = wire_open(wire, NODE_ATTRIBUTE);
    wire_text(wire, ATTRIBUTE_NAME, name);
    wire_integer(wire, ATTRIBUTE_TYPE, type);
    return attribute;
}

void onnx_node_integer(OnnxWire *wire, const char *name, int64_t value)
{
    const size_t attribute = begin_attribute(wire, name, IS_INT);
    wire_integer(wire, ATTRIBUTE_I, value);
    wire_close(wire, attribute);
}

void onnx_node_integers(OnnxWire *wire, const char *name, const int64_t *values, size_t count)
{
    const size_t attribute = begin_attribute(wire, name, IS_INTS);
    for (size_t i = 0; i < count; i++)
        wire_integer(wire, ATTRIBUTE_INTS, values[i]);
    wire_close(wire, attribute);
}

void onnx_node_float(OnnxWire *wire, const char *name, float value)
{
    const size_t attribute = begin_attribute(wire, name, IS_FLOAT);
    wire_float(wire, ATTRIBUTE_F, value);
    wire_close(wire, attribute);
}

void onnx_node_text(OnnxWire *wire, const char *name, const char *value)
{
    const size_t attribute = begin_attribute(wire, name, IS_STRING);
    wire_text(wire, ATTRIBUTE_S, value);
    wire_close(wire, attribute);
}

/* Appends a tensor and returns its bytes, to be filled. */
static void *append_tensor(OnnxWire *wire, const char *name, int64_t element, size_t element_bytes, int rank,
                           const int64_t *shape)
{
    size_t bytes = element_bytes;
    const size_t tensor = wire_open(wire, GRAPH_INITIALIZER);
    for (int i = 0; i < rank; i++) {
        wire_integer(wire, TENSOR_DIMS, shape[i]);
        bytes *= (size_t)shape[i];
    }
    wire_integer(wire, TENSOR_DATA_TYPE, element);
    wire_text(wire, TENSOR_NAME, name);
    (void)wire_room(wire, TENSOR_RAW_DATA, bytes);
    wire_close(wire, tensor);
    return wire_check(wire, NULL) ? NULL : wire->bytes.bytes + wire->bytes.length - bytes;
}

void *onnx_floats(OnnxWire *wire, const char *name, int rank, const int64_t *shape)
{
    return append_tensor(wire, name, ELEMENT_FLOAT, sizeof(float), rank, shape);
}

void *onnx_integers(OnnxWire *wire, const char *name, size_t count)
{
    return append_tensor(wire, name, ELEMENT_INT64, sizeof(int64_t), 1, (int64_t[]){(int64_t)count});
}

void onnx_value(OnnxWire *wire, OnnxPlace place, const char *name, int rank, const OnnxSide *sides,
                const char *about)
{
    const size_t value = wire_open(wire, place == ONNX_INPUT ? GRAPH_INPUT : GRAPH_OUTPUT);
    wire_text(wire, VALUE_NAME, name);
    wire_text(wire, VALUE_DOC_STRING, about);
    const size_t type = wire_open(wire, VALUE_TYPE), tensor = wire_open(wire, TYPE_TENSOR);
    wire_integer(wire, TENSOR_TYPE_ELEMENT, ELEMENT_FLOAT);
    const size_t shape = wire_open(wire, TENSOR_TYPE_SHAPE);
    for (int i = 0; i < rank; i++) {
        const size_t side = wire_open(wire, SHAPE_DIM);
        if (sides[i].length)
            wire_integer(wire, DIM_VALUE, sides[i].length);
        else
            wire_text(wire, DIM_PARAM, sides[i].name);
        wire_close(wire, side);
    }
    wire_close(wire, shape);
    wire_close(wire, tensor);
    wire_close(wire, type);
    wire_close(wire, value);
}

void onnx_model(OnnxWire *wire, const char *about)
{
    wire_integer(wire, MODEL_IR_VERSION, ONNX_IR_VERSION);
    wire_text(wire, MODEL_PRODUCER_NAME, "fshard");
    wire_text(wire, MODEL_PRODUCER_VERSION, FSHARD_VERSION);
    wire_text(wire, MODEL_DOC_STRING, about);
    const size_t opset = wire_open(wire, MODEL_OPSET_IMPORT);
    wire_integer(wire, OPSET_VERSION, ONNX_OPSET);
    wire_close(wire, opset);
}

void onnx_metadata(OnnxWire *wire, const char *key, const char *value)
{
    const size_t entry = wire_open(wire, MODEL_METADATA);
    wire_text(wire, ENTRY_KEY, key);
    wire_text(wire, ENTRY_VALUE, value);
    wire_close(wire, entry);
}
