/* Positions for images of another size: against timm's resample_abs_pos_embed (golden/make_golden.py), and on
 * their way from a file into a network. */
#include "trainer/checkpoint/position_grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "tests/trainer/golden.h"
#include "tests/trainer/network_support.h"
#include "trainer/checkpoint/weights.h"

static Tensor parameter_of(int64_t others, int64_t height, int64_t width, int64_t channels)
{
    return (Tensor){.name = "pos_embed",
                    .role = TENSOR_PARAMETER,
                    .rank = 3,
                    .shape = {1, others + height * width, channels},
                    .grid_height = height,
                    .grid_width = width};
}

TEST(test_positions_are_resampled_as_timm_does)
{
    json_t *document = golden_load("positions.json"), *c;
    size_t i;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        const json_t *spec = json_object_get(c, "input");
        const int64_t others = golden_integer(c, "others");
        int64_t shape[4];
        FshError error = {0};
        assert_int_equal(golden_shape(spec, shape), 3);
        const Tensor parameter =
            parameter_of(others, golden_integer(c, "height"), golden_integer(c, "width"), shape[2]);
        const SafetensorsEntry entry = {.rank = 3, .shape = {1, (uint64_t)shape[1], (uint64_t)shape[2]}};
        const int64_t edge = position_grid_edge(&entry, &parameter);
        const size_t count = (size_t)tensor_count(&parameter);
        float *stored = malloc(golden_count(spec) * sizeof *stored), *values = malloc(count * sizeof *values);
        assert_true(stored && values);
        assert_int_equal(edge * edge + others, shape[1]);
        golden_generate(spec, stored);
        assert_ok(position_grid_resample(&parameter, edge, stored, values, &error), &error);
        const double wrong = golden_error(json_object_get(c, "expected"), values, count);
        print_message("  %lld to %lld x %lld: %.1e\n", (long long)edge, (long long)parameter.grid_height,
                      (long long)parameter.grid_width, wrong);
        assert_true(wrong < 1e-5);
        free(stored);
        free(values);
    }
    assert_true(i > 3);
    json_decref(document);
}

TEST(test_what_is_no_square_of_positions_is_not_resampled)
{
    Tensor parameter = parameter_of(1, 2, 3, 8);
    SafetensorsEntry entry = {.rank = 3, .shape = {1, 10, 8}};
    assert_int_equal(position_grid_edge(&entry, &parameter), 3);
    entry.shape[1] = 11;
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
    entry.shape[1] = 1;
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
    entry.shape[1] = UINT64_MAX;
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
    entry = (SafetensorsEntry){.rank = 3, .shape = {1, 10, 16}};
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
    entry = (SafetensorsEntry){.rank = 2, .shape = {10, 8}};
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
    entry = (SafetensorsEntry){.rank = 3, .shape = {1, 10, 8}};
    parameter.role = TENSOR_OPTIMIZER;
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
    parameter.role = TENSOR_PARAMETER;
    parameter.grid_height = 0;
    assert_int_equal(position_grid_edge(&entry, &parameter), 0);
}

/* Sets values to the network's positions; returns their number. */
static size_t read_positions(State *state, const Graph *graph, float *values, size_t most)
{
    FshError error = {0};
    const size_t count = (size_t)tensor_count(graph_tensor(graph, graph_find(graph, "pos_embed")));
    assert_true(count <= most);
    assert_ok(state_read(state, "pos_embed", values, count, &error), &error);
    return count;
}

TEST_IN_FOLDER(test_weights_load_at_another_size_of_images, folder)
{
    enum { CHANNELS = 192, MOST = 37 * CHANNELS };
    static float small[MOST], large[MOST], again[MOST];
    const char *path = test_path(folder, "a.safetensors");
    const ModelSpec no_choice = {0};
    const WeightsInfo info = {.model = "vit_tiny_patch16", .spec = &no_choice, .dataset_id = "0"};
    const WeightsHead whole = {0};
    FshError error = {0};
    Backend *backend = test_backend(1);
    State *states[2];
    Graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        graphs[i] = test_model("vit_tiny_patch16", 1, i ? 96 : 64, false);
        assert_ok(state_new(&states[i], backend, graphs[i], &error), &error);
        assert_ok(state_initialize(states[i], 7, &error), &error);
    }
    assert_ok(weights_save(path, states[0], graphs[0], &info, &error), &error);
    assert_ok(weights_load(path, states[1], graphs[1], &whole, NULL, &error), &error);
    assert_int_equal(read_positions(states[0], graphs[0], small, MOST), 17 * CHANNELS);
    assert_int_equal(read_positions(states[1], graphs[1], large, MOST), 37 * CHANNELS);
    assert_memory_equal(small, large, CHANNELS * sizeof *small); /* that of the class token */
    assert_memory_not_equal(small + CHANNELS, large + CHANNELS, CHANNELS * sizeof *small);
    /* at their own size they come back as they were */
    assert_ok(weights_load(path, states[0], graphs[0], &whole, NULL, &error), &error);
    assert_int_equal(read_positions(states[0], graphs[0], again, MOST), 17 * CHANNELS);
    assert_memory_equal(small, again, 17 * CHANNELS * sizeof *small);
    for (int i = 0; i < 2; i++) {
        state_free(&states[i]);
        graph_free(&graphs[i]);
    }
    backend_close(&backend);
}
