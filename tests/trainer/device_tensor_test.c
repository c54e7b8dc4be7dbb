/* How tensors lie in device memory: descriptions alone, for which no GPU need be here. */
#include "trainer/backend/cuda/lowering/tensors.h"

#include "tests/support/support.h"
#include "tests/trainer/odd_network.h"

static void check(const Graph *graph, const char *name, ElementType element, int64_t rows, int64_t pitch,
                  uint64_t bytes)
{
    const TensorId id = graph_find(graph, name);
    assert_true(id != TENSOR_NONE);
    const DeviceTensor tensor = device_tensor_describe(graph, id);
    assert_int_equal(tensor.element, element);
    assert_int_equal(tensor.rows, rows);
    assert_int_equal(tensor.pitch, pitch);
    assert_int_equal(device_tensor_bytes(&tensor), bytes);
    assert_int_equal(device_tensor_room_bytes(&tensor) % TENSOR_ALIGNMENT_BYTES, 0);
    assert_in_range(device_tensor_room_bytes(&tensor) - bytes, 0, TENSOR_ALIGNMENT_BYTES - 1);
    assert_int_equal(device_tensor_count(&tensor), tensor_count(graph_tensor(graph, id)));
}

TEST(test_narrow_tensors_are_padded_to_eight_channels)
{
    static const struct {
        DataType type;
        ElementType element;
    } types[] = {{DATA_BF16, ELEMENT_BF16}, {DATA_F16, ELEMENT_F16}};
    for (size_t i = 0; i < 2; i++) {
        Graph *graph = odd_network(types[i].type, 3);
        check(graph, "image", ELEMENT_U8, 60, 3, 180);
        check(graph, "normalized", types[i].element, 60, 8, 960);
        graph_free(&graph);
    }
}

TEST(test_gradients_of_narrow_products_are_padded_in_both_channel_counts)
{
    Graph *graph = odd_network(DATA_BF16, 3);
    check(graph, "conv.weight.grad", ELEMENT_BF16, 16 * 9, 8, 16 * 9 * 8 * 2);
    check(graph, "linear.weight.grad", ELEMENT_BF16, 24, 16, 24 * 16 * 2);
    check(graph, "grouped.weight.grad", ELEMENT_F32, 81, 3, 81 * 3 * 4);
    check(graph, "conv.bias.grad", ELEMENT_F32, 1, 9, 36);
    check(graph, "norm.weight.grad", ELEMENT_F32, 1, 9, 36);
    graph_free(&graph);
}

TEST(test_masters_and_f32_networks_are_packed)
{
    static const DataType types[] = {DATA_BF16, DATA_F32};
    for (size_t i = 0; i < 2; i++) {
        Graph *graph = odd_network(types[i], 3);
        check(graph, "conv.weight", ELEMENT_F32, 81, 3, 81 * 3 * 4);
        check(graph, "linear.weight", ELEMENT_F32, 19, 9, 19 * 9 * 4);
        if (types[i] == DATA_F32) {
            check(graph, "normalized", ELEMENT_F32, 60, 3, 720);
            check(graph, "conv.weight.grad", ELEMENT_F32, 81, 3, 81 * 3 * 4);
            check(graph, "linear.weight.grad", ELEMENT_F32, 19, 9, 19 * 9 * 4);
        }
        graph_free(&graph);
    }
}

/* Filters are OIHW to the graph and OHWI here. */
TEST(test_filters_have_their_input_channels_last)
{
    Graph *graph = odd_network(DATA_BF16, 3);
    const DeviceTensor weight = device_tensor_describe(graph, graph_find(graph, "conv.weight"));
    assert_true(weight.is_filter);
    assert_memory_equal(weight.shape, ((int64_t[4]){9, 3, 3, 3}), sizeof weight.shape);
    assert_false(device_tensor_describe(graph, graph_find(graph, "linear.weight")).is_filter);
    graph_free(&graph);
}

TEST(test_narrow_copies_lie_as_the_gradients_do)
{
    static const char *const names[][2] = {{"conv.weight", "conv.weight.grad"},
                                           {"linear.weight", "linear.weight.grad"}};
    Graph *graph = odd_network(DATA_BF16, 3);
    for (size_t i = 0; i < 2; i++) {
        const DeviceTensor weight = device_tensor_describe(graph, graph_find(graph, names[i][0]));
        const DeviceTensor gradient = device_tensor_describe(graph, graph_find(graph, names[i][1]));
        const DeviceTensor copy = device_tensor_narrow(&weight, ELEMENT_BF16);
        assert_int_equal(copy.element, gradient.element);
        assert_int_equal(copy.rows, gradient.rows);
        assert_int_equal(copy.pitch, gradient.pitch);
        assert_memory_equal(copy.shape, weight.shape, sizeof copy.shape);
    }
    const DeviceTensor bias = device_tensor_describe(graph, graph_find(graph, "linear.bias"));
    const DeviceTensor copy = device_tensor_narrow(&bias, ELEMENT_BF16);
    assert_int_equal(copy.rows, 1);
    assert_int_equal(copy.pitch, 24);
    graph_free(&graph);
}
