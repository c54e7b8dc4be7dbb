#include "trainer/onnx/onnx_network.h"

#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/network_support.h"
#include "trainer/models/models.h"

/* ---- the wire format ---- */

TEST(test_fields_are_written_as_protocol_buffers_say)
{
    /* 150 is the example of the specification: 96 01 */
    static const uint8_t wanted[] = {0x08, 0x96, 0x01, 0x12, 0x02, 'a', 'b', 0x1d, 0, 0, 0x80, 0x3f};
    OnnxWire wire = {0};
    wire_integer(&wire, 1, 150);
    wire_text(&wire, 2, "ab");
    wire_float(&wire, 3, 1);
    assert_int_equal(wire.bytes.length, sizeof wanted);
    assert_memory_equal(wire.bytes.bytes, wanted, sizeof wanted);
    wire_free(&wire);
}

TEST(test_a_negative_number_takes_ten_bytes)
{
    static const uint8_t wanted[] = {0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
    OnnxWire wire = {0};
    wire_integer(&wire, 3, -1);
    assert_int_equal(wire.bytes.length, sizeof wanted);
    assert_memory_equal(wire.bytes.bytes, wanted, sizeof wanted);
    wire_free(&wire);
}

/* The length of a message is known when it ends, and a longer one moves what is behind it. */
TEST(test_messages_lie_in_messages)
{
    enum { BYTES = 200, HEAD = 3 }; /* a tag, and 200 in two bytes */
    char text[BYTES + 1];
    memset(text, 'x', BYTES);
    text[BYTES] = '\0';
    OnnxWire wire = {0};
    const size_t outer = wire_open(&wire, 1), inner = wire_open(&wire, 2);
    wire_text(&wire, 3, text);
    wire_close(&wire, inner);
    wire_close(&wire, outer);
    /* 206, 203 and 200 in two bytes each */
    static const uint8_t wanted[] = {0x0a, 0xce, 1, 0x12, 0xcb, 1, 0x1a, 0xc8, 1, 'x'};
    assert_int_equal(wire.bytes.length, BYTES + 3 * HEAD);
    assert_memory_equal(wire.bytes.bytes, wanted, sizeof wanted);
    assert_int_equal(wire.bytes.bytes[BYTES + 3 * HEAD - 1], 'x');
    wire_free(&wire);
}

/* ---- networks ---- */

static FshStatus read_zeros(void *context, const Tensor *tensor, float *values, FshError *error)
{
    (void)context;
    (void)error;
    memset(values, 0, (size_t)tensor_count(tensor) * sizeof *values);
    return FSH_OK;
}

static FshStatus read_nothing(void *context, const Tensor *tensor, float *values, FshError *error)
{
    (void)context;
    (void)values;
    return fsh_error_set(error, FSH_ERR_CORRUPT, "no %s", tensor->name);
}

static FshStatus write(const Graph *graph, const char *output, bool any_size, OnnxRead read, OnnxWire *wire,
                       FshError *error)
{
    const OnnxNetwork network = {.name = "network",
                                 .graph = graph,
                                 .output = output,
                                 .any_size = any_size,
                                 .about_input = "",
                                 .about_output = "",
                                 .read = read};
    return onnx_network(wire, &network, error);
}

static Graph *graph_of(const Model *model)
{
    const bool restores = model->task == TASK_RESTORATION;
    const int64_t edge = model->task == TASK_CLASSIFICATION ? 64 : 1;
    const ModelSpec spec = {
        .batch = 1, .height = edge, .width = edge, .channels = 3, .classes = restores ? 0 : 10};
    const ModelRecipe recipe = {.deviation = {1, 1, 1, 1},
                                .loss = restores ? LOSS_L1 : LOSS_CROSS_ENTROPY,
                                .keeps_logits = true,
                                .fusions = FUSE_NONE};
    Graph *graph = NULL;
    FshError error = {0};
    assert_ok(model_graph(model, &spec, &recipe, &graph, &error), &error);
    return graph;
}

/* onnx_runtime_test compares what they compute. */
TEST(test_every_op_of_every_network_has_a_row)
{
    const Model *model = NULL;
    for (size_t m = 0; (model = model_at(m)); m++) {
        const bool any_size = model->task != TASK_CLASSIFICATION;
        const char *output = model->task == TASK_RESTORATION ? "restored" : "logits";
        Graph *graph = graph_of(model);
        OnnxWire wire = {0};
        FshError error = {0};
        const size_t bytes = (size_t)graph_parameter_count(graph) * sizeof(float);
        if (bytes >= (size_t)2 << 30) {
            assert_int_equal(write(graph, output, any_size, read_zeros, &wire, &error), FSH_ERR_UNSUPPORTED);
            assert_contains(error.message, "a file of ONNX holds less than 2 GiB");
        } else if (!test_model_is_large(model)) {
            if (write(graph, output, any_size, read_zeros, &wire, &error))
                fail_msg("%s: %s", model->name, error.message);
            assert_true(wire.bytes.length > bytes);
        }
        wire_free(&wire);
        graph_free(&graph);
    }
}

TEST(test_a_weight_that_cannot_be_read_is_the_failure)
{
    Graph *graph = graph_of(model_find("conv8"));
    OnnxWire wire = {0};
    FshError error = {0};
    assert_int_equal(write(graph, "logits", false, read_nothing, &wire, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "no model.");
    wire_free(&wire);
    graph_free(&graph);
}

/* Appends what every graph begins with. */
static TensorId begin(Graph *graph)
{
    static const double mean[] = {0, 0, 0}, deviation[] = {1, 1, 1};
    return graph_normalize(graph, graph_input(graph, "image", DATA_U8, 4, (int64_t[]){1, 8, 8, 3}), mean,
                           deviation);
}

TEST(test_an_op_without_a_row_is_named_with_its_layer)
{
    Graph *graph = graph_new();
    TensorId x =
        graph_conv2d(graph, "stem", begin(graph), &(Conv2d){.channels = 4, .kernel = 1, .stride = 1});
    graph_keep(graph, graph_cast(graph, graph_cast(graph, x, DATA_BF16), DATA_F32), "logits");
    OnnxWire wire = {0};
    FshError error = {0};
    assert_ok(graph_check(graph, &error), &error);
    assert_int_equal(write(graph, "logits", false, read_zeros, &wire, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "stem");
    assert_contains(error.message, "there is no way to write cast in ONNX");
    wire_free(&wire);
    graph_free(&graph);
}

/* Nothing of it is read or written. */
TEST(test_weights_of_two_gigabytes_are_refused)
{
    Graph *graph = graph_new();
    TensorId x = graph_flatten(graph, begin(graph));
    graph_keep(graph, graph_linear(graph, "head", x, INT64_C(1) << 22, false), "logits");
    OnnxWire wire = {0};
    FshError error = {0};
    assert_ok(graph_check(graph, &error), &error);
    assert_int_equal(write(graph, "logits", false, read_nothing, &wire, &error), FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "network has weights of 3072 MiB; a file of ONNX holds less than 2 GiB");
    assert_int_equal(wire.bytes.length, 0);
    wire_free(&wire);
    graph_free(&graph);
}
