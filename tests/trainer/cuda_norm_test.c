/* Batch norm in bf16 and f16 on the CUDA backend against the CPU backend in f32, at shapes that deal rows and
 * channels out in every way; and rewrites of the graph against the graph without them, on the GPU itself. */
#include <stdio.h>

#include "tests/trainer/cuda_narrow.h"
#include "tests/trainer/fusion_support.h"

static const BatchNorm trains = {.training = true}, frozen = {.training = false};

static TensorId norm_alone(Graph *graph, TensorId x)
{
    return graph_batch_norm(graph, "norm", x, &trains);
}

static TensorId norm_relu(Graph *graph, TensorId x)
{
    return graph_relu(graph, graph_batch_norm(graph, "norm", x, &trains));
}

static TensorId norm_add_leaky_relu(Graph *graph, TensorId x)
{
    return graph_leaky_relu(graph, graph_add(graph, graph_batch_norm(graph, "norm", x, &trains), x), 0.25F);
}

static TensorId norm_add(Graph *graph, TensorId x)
{
    return graph_add(graph, x, graph_batch_norm(graph, "norm", x, &trains));
}

/* The addend wants no gradient: the backward pass keeps no gradient for it. */
static TensorId norm_add_input_relu(Graph *graph, TensorId x)
{
    const Tensor *like = graph_tensor(graph, x);
    const TensorId other = graph_input(graph, "other", DATA_F32, like->rank, like->shape);
    return graph_relu(graph, graph_add(graph, graph_batch_norm(graph, "norm", x, &trains),
                                       graph_cast(graph, other, graph_tensor(graph, x)->type)));
}

static TensorId frozen_norm_relu(Graph *graph, TensorId x)
{
    return graph_relu(graph, graph_batch_norm(graph, "norm", x, &frozen));
}

/* Results are rounded once, dx where it is a sum twice. */
CUDA_TEST(test_narrow_norms_agree)
{
    static const int64_t shapes[][4] = {{1, 9, 11, 7},    {1, 2, 3, 3},    {5, 17, 13, 12}, {3, 8, 8, 264},
                                        {32, 12, 12, 40}, {2, 5, 5, 2048}, {2, 2, 2, 8},    {64, 8, 8, 286}};
    static const struct {
        Layers layers;
        const char *name;
    } kinds[] = {{norm_alone, "norm"},
                 {norm_relu, "norm, relu"},
                 {norm_add_leaky_relu, "norm, add, leaky relu"},
                 {norm_add, "norm, add"},
                 {frozen_norm_relu, "frozen norm, relu"}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            compare_narrow(kinds[k].layers, kinds[k].name, 4, shapes[i], 2);
}

CUDA_TEST(test_narrow_norms_of_matrices_agree)
{
    static const int64_t shapes[][2] = {{1024, 512}, {64, 19}, {7, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        compare_narrow(norm_relu, "norm of a matrix, relu", 2, shapes[i], 2);
}

/* Enough rows for every block of a sum to walk over several lines. The first is too large for one launch; of
 * the others, some do not stay in shared memory whole (rows_whole.cuh). */
CUDA_TEST(test_norms_of_many_rows)
{
    static const int64_t shapes[][4] = {
        {16, 104, 104, 88}, {16, 80, 80, 88}, {16, 80, 80, 64}, {64, 40, 40, 24}, {4, 64, 64, 256}};
    static const int64_t of_input[] = {16, 80, 80, 64}, large[] = {16, 96, 96, 96};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        compare_narrow(norm_relu, "norm, relu", 4, shapes[i], 2);
        compare_narrow(norm_add_leaky_relu, "norm, add, leaky relu", 4, shapes[i], 2);
    }
    compare_narrow(norm_add_input_relu, "norm, add an input, relu", 4, of_input, 2);
    compare_narrow(norm_alone, "norm", 4, large, 2);
}

CUDA_TEST(test_fusions_change_no_result_agree)
{
    for (unsigned fusion = 1; fusion <= FUSE_ALL; fusion *= 2)
        if (fusion & FUSE_ALL)
            compare_fusions(backends[CUDA], DATA_F32, fusion, 1e-4);
    for (unsigned norms = 0; norms < FUSE_BIAS_NORM; norms++)
        compare_fusions(backends[CUDA], DATA_F32, FUSE_GRADIENT_ADD | norms, 1e-4);
    compare_fusions(backends[CUDA], DATA_F32, FUSE_NORM_ADD | FUSE_PAD_ADD, 1e-4);
    compare_fusions(backends[CUDA], DATA_F32, FUSE_GRADIENT_ADD | FUSE_PAD_ADD, 1e-4);
    compare_fusions(backends[CUDA], DATA_F32, FUSE_ALL, 1e-4);
    compare_fusions(backends[CUDA], DATA_F32, FUSE_ALL | FUSE_PAD_ADD, 1e-4);
}

CUDA_TEST(test_fusions_change_little_of_narrow_results_agree)
{
    const unsigned all = backend_fusions(backends[CUDA]);
    for (unsigned fusion = 1; fusion <= all; fusion *= 2)
        if (fusion & all)
            compare_narrow_fusions(backends[CUDA], DATA_F16, fusion);
    compare_narrow_fusions(backends[CUDA], DATA_F16, all);
    compare_narrow_fusions(backends[CUDA], DATA_BF16, all);
}

CUDA_TEST(test_what_is_no_number_passes_a_fused_relu)
{
    static const DataType types[] = {DATA_F32, DATA_BF16, DATA_F16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_no_number_passes(backends[CUDA], types[i]);
        check_no_number_passes(backends[CUDA_TIMED], types[i]);
    }
}

CUDA_TEST(test_images_made_again_give_the_same_bits)
{
    compare_images_again(backends[CUDA], DATA_F16);
}

CUDA_TEST(test_every_op_was_compared)
{
    expect_every_op_was_compared();
}
