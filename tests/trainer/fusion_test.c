/* Rewrites of the graph on the CPU: each changes no result. That each finds its pattern, and leaves alone
 * what it must, is in fuse_test; single ops fused in op_test,
 * gradients of a rewritten network against finite differences in gradient_test. */
#include <stddef.h>

#include "tests/support/support.h"
#include "tests/trainer/fusion_support.h"
#include "tests/trainer/network_support.h"
#include "trainer/backend/cpu/onednn.h"

static bool lacks_bf16(void)
{
    FshError error = {0};
    const bool lacks = dnn_check_type(DATA_BF16, &error) != FSH_OK;
    if (lacks)
        print_message("left out: %s\n", error.message);
    return lacks;
}

TEST(test_each_fusion_changes_no_result)
{
    Backend *backend = test_backend(2);
    for (unsigned fusion = 1; fusion <= FUSE_ALL; fusion *= 2)
        if (fusion & FUSE_ALL)
            compare_fusions(backend, DATA_F32, fusion, 1e-4);
    compare_fusions(backend, DATA_F32, FUSE_ALL, 1e-4);
    backend_close(&backend);
}

TEST(test_fusions_change_nothing_around_shortcuts)
{
    Backend *backend = test_backend(1);
    compare_strided(backend, DATA_F32, FUSE_ALL, 0, 1e-4);
    backend_close(&backend);
}

TEST(test_pools_find_what_is_largest_before_the_norm)
{
    Backend *backend = test_backend(2);
    compare_pooled(backend, DATA_F32, FUSE_ALL, 0, 1e-4);
    compare_pooled(backend, DATA_F32, FUSE_ALL, FUSE_ALL & ~(unsigned)FUSE_NORM_POOL, 1e-4);
    if (!lacks_bf16())
        compare_pooled(backend, DATA_BF16, FUSE_ALL, FUSE_ALL & ~(unsigned)FUSE_NORM_POOL, 0.03);
    backend_close(&backend);
}

TEST(test_gates_make_means_and_take_factors)
{
    Backend *backend = test_backend(2);
    compare_gated(backend, DATA_F32, FUSE_GATE_MEAN, 0, 1e-5);
    if (!lacks_bf16())
        compare_gated(backend, DATA_BF16, FUSE_GATE_MEAN, 0, 0.03);
    backend_close(&backend);
}

/* Alone where another would have changed the pattern first. */
TEST(test_gradient_sums_join_fused_norms)
{
    Backend *backend = test_backend(1);
    for (unsigned norms = 0; norms < FUSE_BIAS_NORM; norms++)
        compare_fusions(backend, DATA_F32, FUSE_GRADIENT_ADD | norms, 1e-4);
    backend_close(&backend);
}

/* Rounding before a ReLU or after it gives the same. A leaky one's values below 0 are rounded once less. */
TEST(test_a_relu_behind_a_convolution_changes_little_in_bf16)
{
    if (lacks_bf16())
        return;
    Backend *backend = test_backend(1);
    compare_fusions(backend, DATA_BF16, FUSE_CONV_BIAS_RELU, 0.01);
    backend_close(&backend);
}

TEST(test_each_fusion_is_as_near_in_bf16)
{
    if (lacks_bf16())
        return;
    Backend *backend = test_backend(1);
    for (unsigned fusion = 1; fusion <= FUSE_ALL; fusion *= 2)
        if (fusion & FUSE_ALL)
            compare_narrow_fusions(backend, DATA_BF16, fusion);
    compare_narrow_fusions(backend, DATA_BF16, FUSE_ALL);
    backend_close(&backend);
}

TEST(test_what_is_no_number_passes_a_fused_relu)
{
    Backend *backend = test_backend(1);
    check_no_number_passes(backend, DATA_F32);
    if (!lacks_bf16())
        check_no_number_passes(backend, DATA_BF16);
    backend_close(&backend);
}

TEST(test_images_made_again_give_the_same_bits)
{
    Backend *backend = test_backend(2);
    compare_images_again(backend, DATA_F32);
    backend_close(&backend);
}

TEST(test_the_backend_says_what_it_runs)
{
    Backend *backend = test_backend(1);
    assert_int_equal(backend_fusions(backend), FUSE_ALL);
    backend_close(&backend);
}
