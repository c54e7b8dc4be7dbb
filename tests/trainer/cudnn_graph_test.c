/* The module around cuDNN's graph API, for a GPU that need not be here: cuDNN builds plans from the device's
 * properties alone. */
#include "trainer/backend/cuda/cudnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "common/file.h"
#include "tests/support/support.h"

static const CudnnPolicy plain_f32 = {CUDNN_NOTES_OF_TF32 | CUDNN_NOTES_OF_TRANSFORMS | CUDNN_NOTES_OF_CHANCE,
                                      1, UINT64_C(2) << 30};

/* A square convolution. */
typedef struct Case {
    int64_t batch, in, out, size, kernel, stride, padding;
} Case;

static FshStatus describe(const CudnnDevice *device, const Case *c, ConvolutionKind kind, CudnnPlan **plan,
                          FshError *error)
{
    int64_t size = (c->size + 2 * c->padding - c->kernel) / c->stride + 1;
    FshStatus status = cudnn_plan_new(plan, device, error);
    if (status)
        return status;
    int x = cudnn_plan_tensor(*plan, CUDNN_DATA_FLOAT, (int64_t[4]){c->batch, c->in, c->size, c->size});
    int w = cudnn_plan_tensor(*plan, CUDNN_DATA_FLOAT, (int64_t[4]){c->out, c->in, c->kernel, c->kernel});
    int y = cudnn_plan_tensor(*plan, CUDNN_DATA_FLOAT, (int64_t[4]){c->batch, c->out, size, size});
    cudnn_plan_convolution(*plan, kind, x, w, y, &(ConvolutionShape){c->stride, c->padding});
    return FSH_OK;
}

static FshStatus build(const CudnnDevice *device, const Case *c, ConvolutionKind kind,
                       const CudnnPolicy *policy, CudnnPlan **plan, FshError *error)
{
    FshStatus status = describe(device, c, kind, plan, error);
    return status ? status : cudnn_plan_build(*plan, policy, error);
}

static const Case middle = {64, 64, 128, 40, 3, 2, 1};

#ifdef __SANITIZE_ADDRESS__
/* Some precompiled engines make a cuBLASLt handle of their own and keep it: not ours to free. What we forget would show with
 * libcudnn_graph alone. */
FSH_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcudnn_engines_precompiled\n";
}
#endif

static void watch_leaks(bool watch)
{
#ifdef __SANITIZE_ADDRESS__
    if (watch)
        __lsan_enable();
    else
        __lsan_disable();
#endif
    (void)watch;
}

/* The fallback heuristics load NVRTC and unload it again, which loses memory that is not ours. */
static FshStatus build_unwatched(CudnnPlan *plan, const CudnnPolicy *policy, FshError *error)
{
    watch_leaks(false);
    FshStatus status = cudnn_plan_build(plan, policy, error);
    watch_leaks(true);
    return status;
}

/* Makes the device, and a first plan: what cuDNN's libraries keep for good when they are loaded is not watched. */
static int setup(void **state)
{
    static CudnnDevice device;
    FshError error = {0};
    Buffer json = {0};
    CudnnPlan *plan = NULL;
    char path[4096];
    watch_leaks(false);
    (void)snprintf(path, sizeof path, "%s/tests/trainer/h200_deviceprop.json", getenv("FSHARD_SOURCE"));
    if (file_read(path, &json, &error) || buffer_append(&json, "", 1, &error) ||
        CUDNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device.properties),
                  &error) ||
        CUDNN_TRY(cudnnBackendSetAttribute(device.properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                           CUDNN_TYPE_CHAR, (int64_t)json.length, json.bytes),
                  &error) ||
        CUDNN_TRY(cudnnBackendFinalize(device.properties), &error) ||
        build(&device, &middle, CONVOLUTION_FORWARD, &plain_f32, &plan, &error)) {
        print_error("%s\n", error.message);
        return -1;
    }
    cudnn_plan_free(&plan);
    buffer_free(&json);
    watch_leaks(true);
    *state = &device;
    return 0;
}

static int teardown(void **state)
{
    return (int)cudnnBackendDestroyDescriptor(((CudnnDevice *)*state)->properties);
}

static void test_every_convolution_of_the_networks_has_a_plain_f32_plan(void **state)
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
            if (build(*state, &cases[i], (ConvolutionKind)kind, &plain_f32, &plan, &error))
                fail_msg("case %zu, kind %d: %s", i, kind, error.message);
            assert_int_equal(cudnn_plan_candidates(plan), 1);
            assert_true(cudnn_plan_workspace_bytes(plan) <= plain_f32.workspace_limit_bytes);
            cudnn_plan_free(&plan);
        }
}

static void test_more_candidates_are_built_when_they_are_to_be_timed(void **state)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    CudnnPolicy policy = plain_f32;
    policy.candidates = 8;
    assert_ok(build(*state, &middle, CONVOLUTION_FORWARD, &policy, &plan, &error), &error);
    assert_true(cudnn_plan_candidates(plan) > 1);
    cudnn_plan_free(&plan);
}

static void test_a_workspace_limit_is_kept(void **state)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    CudnnPolicy policy = plain_f32;
    assert_ok(build(*state, &middle, CONVOLUTION_FORWARD, &policy, &plan, &error), &error);
    const uint64_t wanted = cudnn_plan_workspace_bytes(plan);
    cudnn_plan_free(&plan);
    assert_true(wanted > 0); /* or the case says nothing */
    policy.workspace_limit_bytes = wanted - 1;
    assert_ok(build(*state, &middle, CONVOLUTION_FORWARD, &policy, &plan, &error), &error);
    assert_true(cudnn_plan_workspace_bytes(plan) < wanted);
    cudnn_plan_free(&plan);
}

/* Weight gradients of 16-bit tensors come in 16 bits only: cuDNN proposes nothing (9.19) or what must be refused (9.14). */
static void test_a_pattern_without_an_engine_is_told(void **state)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    assert_ok(cudnn_plan_new(&plan, *state, &error), &error);
    int x = cudnn_plan_tensor(plan, CUDNN_DATA_HALF, (int64_t[4]){4, 64, 16, 16});
    int w = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){64, 64, 3, 3});
    int y = cudnn_plan_tensor(plan, CUDNN_DATA_HALF, (int64_t[4]){4, 64, 16, 16});
    cudnn_plan_convolution(plan, CONVOLUTION_BACKWARD_WEIGHT, x, w, y, &(ConvolutionShape){1, 1});
    assert_int_equal(build_unwatched(plan, &plain_f32, &error), FSH_ERR_LIBRARY);
    assert_contains(error.message, "has no engine for this: of ");
    cudnn_plan_free(&plan);
}

/* Of a forward convolution's proposals on this card most want the matrix units. */
static void test_refused_numerics_are_counted(void **state)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    CudnnPolicy policy = plain_f32;
    policy.refused_notes = UINT32_MAX;
    policy.workspace_limit_bytes = 0;
    assert_ok(describe(*state, &middle, CONVOLUTION_BACKWARD_DATA, &plan, &error), &error);
    assert_int_equal(build_unwatched(plan, &policy, &error), FSH_ERR_LIBRARY);
    assert_contains(error.message, "refused numerics");
    assert_contains_not(error.message, " 0 have refused numerics");
    cudnn_plan_free(&plan);
}

/* cuDNN's own words reach the caller, and calls after the first failure do nothing. */
static void test_shapes_that_contradict_each_other_are_told(void **state)
{
    CudnnPlan *plan = NULL;
    FshError error = {0};
    assert_ok(cudnn_plan_new(&plan, *state, &error), &error);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_convolution_of_the_networks_has_a_plain_f32_plan),
        cmocka_unit_test(test_more_candidates_are_built_when_they_are_to_be_timed),
        cmocka_unit_test(test_a_workspace_limit_is_kept),
        cmocka_unit_test(test_a_pattern_without_an_engine_is_told),
        cmocka_unit_test(test_refused_numerics_are_counted),
        cmocka_unit_test(test_shapes_that_contradict_each_other_are_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
