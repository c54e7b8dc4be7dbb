/* Rewrites of the graph on the CPU: each changes no result. That each finds its pattern, and leaves alone what it must, is in
 * fuse_test; gradients of the rewritten graph against finite differences in gradient_test. */
#include <stddef.h>

#include "tests/support/support.h"
#include "tests/trainer/fusion_support.h"
#include "tests/trainer/network_support.h"

static void test_each_fusion_changes_no_result(void **state)
{
    (void)state;
    Backend *backend = test_backend(2);
    for (unsigned fusion = 1; fusion <= FUSE_ALL; fusion *= 2)
        if (fusion & FUSE_ALL)
            compare_fusions(backend, DATA_F32, fusion, 1e-4);
    compare_fusions(backend, DATA_F32, FUSE_ALL, 1e-4);
    backend_close(&backend);
}

/* Alone where another would have changed the pattern first. */
static void test_gradient_sums_join_fused_norms(void **state)
{
    (void)state;
    Backend *backend = test_backend(1);
    for (unsigned norms = 0; norms < FUSE_BIAS_NORM; norms++)
        compare_fusions(backend, DATA_F32, FUSE_GRADIENT_ADD | norms, 1e-4);
    backend_close(&backend);
}

static void test_the_backend_says_what_it_runs(void **state)
{
    (void)state;
    Backend *backend = test_backend(1);
    assert_int_equal(backend_fusions(backend), FUSE_ALL);
    backend_close(&backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fusion_changes_no_result),
        cmocka_unit_test(test_gradient_sums_join_fused_norms),
        cmocka_unit_test(test_the_backend_says_what_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
