/* Rewrites of the graph against the graph without them, on the CUDA backend itself. Usage: cuda_support.h. */
#include "tests/trainer/cuda_support.h"
#include "tests/trainer/fusion_graphs.h"
#include "tests/trainer/fusion_support.h"

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

CUDA_TEST(test_pools_find_what_is_largest_before_the_norm_agree)
{
    static const struct {
        DataType type;
        double tolerance;
    } types[] = {{DATA_F32, 1e-4}, {DATA_BF16, 0.04}, {DATA_F16, 0.01}};
    const unsigned others = backend_fusions(backends[CUDA]) & ~(unsigned)FUSE_NORM_POOL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int timed = 0; timed < 2; timed++)
            compare_pooled(backends[timed ? CUDA_TIMED : CUDA], types[i].type, others | FUSE_NORM_POOL,
                           others, types[i].tolerance);
}

/* Of small images, where a pair is one launch, of ones that its blocks fetch again, and of large ones, where
 * the sums of x come from a convolution or, in bf16, do not. */
CUDA_TEST(test_norms_in_a_row_are_one_agree)
{
    const unsigned all = backend_fusions(backends[CUDA]), others = all & ~(unsigned)FUSE_NORM_PAIR;
    assert_int_not_equal(all, others);
    for (int size = 0; size < 3; size++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const DataType type = bf16 ? DATA_BF16 : DATA_F16;
            compare_paired(backends[CUDA], size, type, all, others, bf16 ? 0.03 : 0.01);
            compare_paired(backends[CUDA_TIMED], size, type, all, others, bf16 ? 0.03 : 0.01);
        }
}

/* With the one, the other, and both rewrites of gates and scales. */
CUDA_TEST(test_gates_make_means_take_factors_and_sum_biases_agree)
{
    static const struct {
        DataType type;
        double tolerance;
    } types[] = {{DATA_F32, 1e-5}, {DATA_BF16, 0.03}, {DATA_F16, 0.01}};
    const unsigned rewrites = FUSE_GATE_MEAN | FUSE_FUNCTION_BIAS, all = backend_fusions(backends[CUDA]);
    assert_int_equal(all & rewrites, rewrites);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        compare_gated(backends[CUDA], types[i].type, all, all & ~rewrites, types[i].tolerance);
        compare_gated(backends[CUDA], types[i].type, FUSE_GATE_MEAN, 0, types[i].tolerance);
        compare_gated(backends[CUDA], types[i].type, FUSE_FUNCTION_BIAS, 0, types[i].tolerance);
    }
}

/* Weights are rounded behind their factors in the one, results in front of them in the other. */
CUDA_TEST(test_layers_multiply_their_weights_by_the_scale_agree)
{
    static const struct {
        DataType type;
        double tolerance;
    } types[] = {{DATA_F32, 1e-4}, {DATA_BF16, 0.03}};
    const unsigned all = backend_fusions(backends[CUDA]), others = all & ~(unsigned)FUSE_LINEAR_SCALE;
    assert_int_not_equal(all, others);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int timed = 0; timed < 2; timed++) {
            Backend *backend = backends[timed ? CUDA_TIMED : CUDA];
            compare_scaled(backend, types[i].type, all, others, types[i].tolerance);
            compare_scaled(backend, types[i].type, FUSE_LINEAR_SCALE, 0, types[i].tolerance);
        }
}

/* Both make the same dx; its products with the images are added up in another order. */
CUDA_TEST(test_stems_multiply_the_gradients_of_their_pools_agree)
{
    const unsigned all = backend_fusions(backends[CUDA]);
    assert_true(all & FUSE_NORM_POOL && all & FUSE_STEM_GRADIENT);
    for (int bf16 = 0; bf16 < 2; bf16++)
        compare_stem(backends[CUDA], bf16 ? DATA_BF16 : DATA_F16, all, all & ~(unsigned)FUSE_STEM_GRADIENT,
                     bf16 ? 4e-3 : 5e-4);
}

/* Products are added up by other blocks, and cuDNN's kernels may take part in one of both. */
CUDA_TEST(test_few_channels_pad_by_reflection_and_read_bytes_agree)
{
    const unsigned all = backend_fusions(backends[CUDA]), both = FUSE_PAD_CONV | FUSE_NORMALIZE_CONV;
    assert_int_equal(all & both, both);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int way = 1; way < 4; way++) {
            const unsigned left_out = (way & 1 ? FUSE_PAD_CONV : 0) | (way & 2 ? FUSE_NORMALIZE_CONV : 0);
            compare_padded(backends[CUDA], bf16 ? DATA_BF16 : DATA_F16, all, all & ~left_out,
                           bf16 ? 0.04 : 0.01);
        }
}

/* cuDNN may add up the products of the smaller gradient in another order: values in 16 bits may be rounded
 * the other way. */
CUDA_TEST(test_shortcuts_of_stride_2_pass_on_the_same_gradients)
{
    const unsigned all = backend_fusions(backends[CUDA]) & ~(unsigned)FUSE_CONV_STATISTICS;
    assert_true(all & FUSE_GRADIENT_STRIDE);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int way = 0; way < 4; way++) {
            const unsigned left_out = (way & 1 ? FUSE_GRADIENT_CONV : 0) | (way & 2 ? FUSE_NORM_SIGNS : 0);
            compare_strided(backends[CUDA], bf16 ? DATA_BF16 : DATA_F16, all & ~left_out,
                            all & ~(left_out | FUSE_GRADIENT_STRIDE), bf16 ? 0.04 : 0.02);
        }
}

/* Asserts the same bits with a fusion as without. Sums of convolutions are left out: cuDNN makes them by
 * atomics. */
static void compare_bits_without(unsigned fusion)
{
    const unsigned all = backend_fusions(backends[CUDA]) & ~(unsigned)FUSE_CONV_STATISTICS;
    assert_true(all & fusion);
    for (int bf16 = 0; bf16 < 2; bf16++)
        compare_bits_of_fusions(backends[CUDA], bf16 ? DATA_BF16 : DATA_F16, all, all & ~fusion);
}

CUDA_TEST(test_stems_give_the_same_bits_of_bytes)
{
    compare_bits_without(FUSE_NORMALIZE_CONV);
}

CUDA_TEST(test_losses_of_narrow_scores_give_the_same_bits)
{
    compare_bits_without(FUSE_CAST_LOSS);
}

/* Returns how many norms of the network leave signs with these fusions. */
static size_t count_signs(DataType type, unsigned fusions)
{
    size_t count = 0;
    Graph *graph = fusion_graph(fusions, type);
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        count += node->op == OP_BATCH_NORM && node->outputs[NORM_SIGNS] != TENSOR_NONE;
    }
    graph_free(&graph);
    return count;
}

CUDA_TEST(test_signs_gate_as_the_values_do)
{
    const unsigned all = backend_fusions(backends[CUDA]);
    assert_true(all & FUSE_NORM_SIGNS);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const DataType type = bf16 ? DATA_BF16 : DATA_F16;
        assert_int_equal(count_signs(type, all), 2); /* of the blocks of 64 channels */
        assert_int_equal(count_signs(type, all & ~(unsigned)FUSE_NORM_SIGNS), 0);
        compare_bits_of_fusions(backends[CUDA], type, all, all & ~(unsigned)FUSE_NORM_SIGNS);
        compare_bits_of_fusions(backends[CUDA], type, all & ~(unsigned)FUSE_GRADIENT_CONV,
                                all & ~(unsigned)(FUSE_GRADIENT_CONV | FUSE_NORM_SIGNS));
        compare_bits_of_fusions(backends[CUDA], type, all & ~(unsigned)FUSE_CONV_STATISTICS,
                                all & ~(unsigned)(FUSE_CONV_STATISTICS | FUSE_NORM_SIGNS));
    }
}
