/* The module around cuDNN's graph API, for a GPU that need not be here: cuDNN builds plans from the device's
 * properties alone. */
#include "tests/support/support.h"
#include "tests/trainer/cudnn_support.h"
#include "trainer/backend/cuda/device/cudnn_internal.h"

TEST_WITH(test_every_convolution_of_the_networks_has_a_plain_f32_plan, NULL, NULL, CudnnDevice *device)
{
    static const Case cases[] = {
        /* resnet18 at 160 px */
        {256, 3, 64, 160, 7, 2, 3},
        {256, 64, 64, 40, 3, 1, 1},
        {256, 64, 128, 40, 3, 2, 1},
        {256, 64, 128, 40, 1, 2, 0},
        {256, 128, 128, 20, 3, 1, 1},
        {256, 256, 512, 10, 3, 2, 1},
        {256, 512, 512, 5, 3, 1, 1},
        /* conv8 */
        {64, 1, 3, 30, 3, 2, 0},
        {64, 3, 3, 16, 3, 1, 0},
        {64, 3, 8, 16, 3, 2, 0},
        {64, 16, 32, 6, 3, 2, 0},
        /* odd ones */
        {1, 3, 5, 7, 3, 2, 1},
        {1, 1, 1, 1, 1, 1, 0},
        {3, 17, 13, 11, 5, 3, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int kind = CONVOLUTION_FORWARD; kind <= CONVOLUTION_BACKWARD_WEIGHT; kind++) {
            CudnnPlan *plan = NULL;
            FshError error = {0};
            if (case_build(device, &cases[i], (ConvolutionKind)kind, &plain_f32, &plan, &error))
                fail_msg("case %zu, kind %d: %s", i, kind, error.message);
            assert_int_equal(plan->candidate_count, 1);
            assert_true(cudnn_plan_workspace_bytes(plan) <= plain_f32.workspace_limit_bytes);
            cudnn_plan_free(&plan);
        }
}

TEST_WITH(test_more_candidates_are_built_when_they_are_to_be_timed, NULL, NULL, CudnnDevice *device)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    CudnnPolicy policy = plain_f32;
    policy.candidates = 8;
    assert_ok(case_build(device, &middle_case, CONVOLUTION_FORWARD, &policy, &plan, &error), &error);
    assert_true(plan->candidate_count > 1);
    cudnn_plan_free(&plan);
}

TEST_WITH(test_a_workspace_limit_is_kept, NULL, NULL, CudnnDevice *device)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    CudnnPolicy policy = plain_f32;
    assert_ok(case_build(device, &middle_case, CONVOLUTION_FORWARD, &policy, &plan, &error), &error);
    const uint64_t wanted = cudnn_plan_workspace_bytes(plan);
    cudnn_plan_free(&plan);
    assert_true(wanted > 0); /* or the case says nothing */
    policy.workspace_limit_bytes = wanted - 1;
    assert_ok(case_build(device, &middle_case, CONVOLUTION_FORWARD, &policy, &plan, &error), &error);
    assert_true(cudnn_plan_workspace_bytes(plan) < wanted);
    cudnn_plan_free(&plan);
}

TEST_WITH(test_narrow_convolutions_have_plans, NULL, NULL, CudnnDevice *device)
{
    static const cudnnDataType_t types[] = {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
    for (size_t i = 0; i < narrow_case_count; i++)
        for (int kind = CONVOLUTION_FORWARD; kind <= CONVOLUTION_BACKWARD_WEIGHT; kind++)
            for (int t = 0; t < 2; t++) {
                CudnnPlan *plan = NULL;
                FshError error = {0};
                assert_ok(case_describe_in(types[t], device, &narrow_cases[i], (ConvolutionKind)kind, &plan,
                                           &error),
                          &error);
                if (plan_build_unwatched(plan, &narrow_policy, &error))
                    fail_msg("case %zu, kind %d, type %d: %s", i, kind, t, error.message);
                assert_int_equal(plan->candidate_count, 1);
                cudnn_plan_free(&plan);
            }
}

/* conv -> sums and sums of squares of each channel; in fp16, where these engines need no compiler. */
TEST_WITH(test_convolutions_with_statistics_have_plans, NULL, NULL, CudnnDevice *device)
{
    static const Case cases[] = {
        {512, 64, 64, 40, 3, 1, 1},   {512, 64, 256, 40, 1, 1, 0}, {512, 128, 128, 40, 3, 2, 1},
        {512, 256, 512, 40, 1, 2, 0}, {64, 24, 24, 32, 3, 1, 1},   {512, 16, 64, 83, 4, 1, 0},
    };
    const CudnnPolicy policy = {CUDNN_NOTES_OF_TRANSFORMS, 1, UINT64_C(2) << 30};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CudnnPlan *plan = NULL;
        FshError error = {0};
        assert_ok(case_describe_in(CUDNN_DATA_HALF, device, &cases[i], CONVOLUTION_FORWARD, &plan, &error),
                  &error);
        int sum = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){1, cases[i].out, 1, 1});
        int square_sum = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){1, cases[i].out, 1, 1});
        cudnn_plan_statistics(plan, 2, sum, square_sum);
        if (plan_build_unwatched(plan, &policy, &error))
            fail_msg("case %zu: %s", i, error.message);
        cudnn_plan_free(&plan);
    }
}

static FshStatus describe_biased(const CudnnDevice *device, const Case *c, cudnnDataType_t type, float slope,
                                 CudnnPlan **plan, FshError *error)
{
    const int64_t size = case_size_out(c), out[4] = {c->batch, c->out, size, size};
    FshStatus status = cudnn_plan_new(plan, device, error);
    if (status)
        return status;
    int x = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->batch, c->in, c->size, c->size});
    int w = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->out, c->in, c->kernel, c->kernel});
    int y = cudnn_plan_tensor(*plan, type, out);
    int bias = cudnn_plan_tensor(*plan, type, (int64_t[4]){1, c->out, 1, 1}); /* none takes a float32 one */
    int inner = cudnn_plan_virtual(*plan, CUDNN_DATA_FLOAT, out),
        sum = cudnn_plan_virtual(*plan, CUDNN_DATA_FLOAT, out);
    cudnn_plan_convolution(*plan, CONVOLUTION_FORWARD, x, w, inner,
                           &(ConvolutionShape){c->stride, c->padding});
    cudnn_plan_bias(*plan, inner, bias, sum);
    cudnn_plan_relu(*plan, sum, slope, y);
    return FSH_OK;
}

TEST_WITH(test_convolutions_with_bias_and_relu_have_plans, NULL, NULL, CudnnDevice *device)
{
    static const Case cases[] = {
        {16, 64, 64, 64, 3, 1, 1}, {16, 128, 64, 64, 1, 1, 0}, {16, 16, 32, 64, 3, 2, 1}};
    const CudnnPolicy policy = {CUDNN_NOTES_OF_TRANSFORMS, 1, UINT64_C(2) << 30};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int t = 0; t < 2; t++) {
            CudnnPlan *plan = NULL;
            FshError error = {0};
            assert_ok(describe_biased(device, &cases[i], t ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF, 0, &plan,
                                      &error),
                      &error);
            if (plan_build_unwatched(plan, &policy, &error))
                fail_msg("case %zu, type %d: %s", i, t, error.message);
            cudnn_plan_free(&plan);
        }
}

/* More channels in x than in the filters. */
TEST_WITH(test_convolutions_in_groups_have_plans, NULL, NULL, CudnnDevice *device)
{
    static const struct {
        cudnnDataType_t type;
        int64_t in, out, groups;
        const CudnnPolicy *policy;
    } cases[] = {{CUDNN_DATA_FLOAT, 12, 8, 4, &plain_f32},
                 {CUDNN_DATA_FLOAT, 6, 6, 2, &plain_f32},
                 {CUDNN_DATA_HALF, 32, 32, 2, &narrow_policy},
                 {CUDNN_DATA_HALF, 64, 32, 4, &narrow_policy},
                 {CUDNN_DATA_BFLOAT16, 128, 128, 4, &narrow_policy}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int kind = CONVOLUTION_FORWARD; kind <= CONVOLUTION_BACKWARD_WEIGHT; kind++) {
            CudnnPlan *plan = NULL;
            FshError error = {0};
            assert_ok(cudnn_plan_new(&plan, device, &error), &error);
            int x = cudnn_plan_tensor(plan, cases[i].type, (int64_t[4]){4, cases[i].in, 16, 16});
            int w = cudnn_plan_tensor(plan, cases[i].type,
                                      (int64_t[4]){cases[i].out, cases[i].in / cases[i].groups, 3, 3});
            int y = cudnn_plan_tensor(plan, cases[i].type, (int64_t[4]){4, cases[i].out, 8, 8});
            cudnn_plan_convolution(plan, (ConvolutionKind)kind, x, w, y, &(ConvolutionShape){2, 1});
            if (plan_build_unwatched(plan, cases[i].policy, &error))
                fail_msg("case %zu, kind %d: %s", i, kind, error.message);
            cudnn_plan_free(&plan);
        }
}

/* Weight gradients of 16-bit tensors come in 16 bits only: cuDNN proposes nothing (9.19) or what must be
 * refused (9.14). */
TEST_WITH(test_a_pattern_without_an_engine_is_told, NULL, NULL, CudnnDevice *device)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    assert_ok(cudnn_plan_new(&plan, device, &error), &error);
    int x = cudnn_plan_tensor(plan, CUDNN_DATA_HALF, (int64_t[4]){4, 64, 16, 16});
    int w = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){64, 64, 3, 3});
    int y = cudnn_plan_tensor(plan, CUDNN_DATA_HALF, (int64_t[4]){4, 64, 16, 16});
    cudnn_plan_convolution(plan, CONVOLUTION_BACKWARD_WEIGHT, x, w, y, &(ConvolutionShape){1, 1});
    assert_int_equal(plan_build_unwatched(plan, &plain_f32, &error), FSH_ERR_LIBRARY);
    assert_contains(error.message, "has no engine for this: of ");
    cudnn_plan_free(&plan);
}

/* Of a forward convolution's proposals on this card most want the matrix units. */
TEST_WITH(test_refused_numerics_are_counted, NULL, NULL, CudnnDevice *device)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    CudnnPolicy policy = plain_f32;
    policy.refused_notes = UINT32_MAX;
    policy.workspace_limit_bytes = 0;
    assert_ok(case_describe(device, &middle_case, CONVOLUTION_BACKWARD_DATA, &plan, &error), &error);
    assert_int_equal(plan_build_unwatched(plan, &policy, &error), FSH_ERR_LIBRARY);
    assert_contains(error.message, "refused numerics");
    assert_contains_not(error.message, " 0 have refused numerics");
    cudnn_plan_free(&plan);
}

/* cuDNN's own words reach the caller, and calls after the first failure do nothing. */
TEST_WITH(test_shapes_that_contradict_each_other_are_told, NULL, NULL, CudnnDevice *device)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    assert_ok(cudnn_plan_new(&plan, device, &error), &error);
    int x = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){4, 8, 16, 16});
    int w = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){32, 8, 3, 3});
    int y = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){4, 31, 9, 9});
    cudnn_plan_convolution(plan, CONVOLUTION_FORWARD, x, w, y, &(ConvolutionShape){1, 1});
    cudnn_plan_convolution(plan, CONVOLUTION_FORWARD, x, w, y, &(ConvolutionShape){1, 1});
    assert_int_equal(cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){1, 1, 1, 1}), -1);
    assert_int_equal(cudnn_plan_build(plan, &plain_f32, &error), FSH_ERR_LIBRARY);
    assert_contains(error.message, "CUDNN_STATUS_");
    cudnn_plan_free(&plan);
}
