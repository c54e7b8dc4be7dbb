/* Pools and reflection pads in bf16 and f16 on the CUDA backend against the CPU backend in f32: every kernel
 * that the shape of a window chooses, sizes that leave rows without a window, channels that fill no
 * vector. */
#include <stdio.h>

#include "tests/trainer/cuda_narrow.h"

static TensorId max_pool_3_2_1(Graph *graph, TensorId x)
{
    return graph_max_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
}

static TensorId max_pool_2_2_0(Graph *graph, TensorId x)
{
    return graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
}

static TensorId max_pool_2_1_0(Graph *graph, TensorId x)
{
    return graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 1});
}

static TensorId max_pool_2_2_1(Graph *graph, TensorId x)
{
    return graph_max_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2, .padding = 1});
}

static TensorId max_pool_4_3_2(Graph *graph, TensorId x)
{
    return graph_max_pool(graph, x, &(Pool2d){.kernel = 4, .stride = 3, .padding = 2});
}

static TensorId avg_pool_2_2_0(Graph *graph, TensorId x)
{
    return graph_avg_pool(graph, x, &(Pool2d){.kernel = 2, .stride = 2});
}

static TensorId avg_pool_3_2_1(Graph *graph, TensorId x)
{
    return graph_avg_pool(graph, x, &(Pool2d){.kernel = 3, .stride = 2, .padding = 1});
}

static TensorId pad_1(Graph *graph, TensorId x)
{
    return graph_reflection_pad(graph, x, 1);
}

static TensorId pad_3(Graph *graph, TensorId x)
{
    return graph_reflection_pad(graph, x, 3);
}

/* Equal maxima in every window. */
static TensorId max_pool_of_relu(Graph *graph, TensorId x)
{
    return max_pool_3_2_1(graph, graph_relu(graph, x));
}

CUDA_TEST(test_narrow_windows_agree)
{
    static const int64_t shapes[][4] = {
        {1, 9, 11, 3}, {3, 8, 8, 16}, {5, 7, 13, 13}, {2, 12, 5, 40}, {2, 30, 35, 40}};
    static const struct {
        Layers layers;
        const char *name;
    } kinds[] = {{max_pool_3_2_1, "max pool 3/2, 1"},
                 {max_pool_2_2_0, "max pool 2/2"},
                 {max_pool_2_1_0, "max pool 2/1"},
                 {max_pool_2_2_1, "max pool 2/2, 1"},
                 {max_pool_4_3_2, "max pool 4/3, 2"},
                 {max_pool_of_relu, "max pool of relu"},
                 {avg_pool_2_2_0, "average pool 2/2"},
                 {avg_pool_3_2_1, "average pool 3/2, 1"},
                 {graph_global_avg_pool, "global pool"},
                 {pad_1, "pad 1"},
                 {pad_3, "pad 3"}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            compare_narrow(kinds[k].layers, kinds[k].name, 4, shapes[i], 1);
}

/* So many pixels that an image is pooled in parts. */
CUDA_TEST(test_narrow_pools_of_few_large_images_agree)
{
    static const int64_t shapes[][4] = {{2, 64, 48, 13}, {1, 40, 37, 264}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        compare_narrow(graph_global_avg_pool, "global pool", 4, shapes[i], 1);
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
