/* The module around cuDNN's graph API, for a GPU that need not be here: cuDNN builds plans from the device's
 * properties alone. */
#include "trainer/backend/cuda/cudnn_cache.h"

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

static int64_t size_out(const Case *c)
{
    return (c->size + 2 * c->padding - c->kernel) / c->stride + 1;
}

static FshStatus describe_in(cudnnDataType_t type, const CudnnDevice *device, const Case *c,
                             ConvolutionKind kind, CudnnPlan **plan, FshError *error)
{
    const int64_t size = size_out(c);
    FshStatus status = cudnn_plan_new(plan, device, error);
    if (status)
        return status;
    int x = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->batch, c->in, c->size, c->size});
    int w = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->out, c->in, c->kernel, c->kernel});
    int y = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->batch, c->out, size, size});
    cudnn_plan_convolution(*plan, kind, x, w, y, &(ConvolutionShape){c->stride, c->padding});
    return FSH_OK;
}

static FshStatus describe(const CudnnDevice *device, const Case *c, ConvolutionKind kind, CudnnPlan **plan,
                          FshError *error)
{
    return describe_in(CUDNN_DATA_FLOAT, device, c, kind, plan, error);
}

static FshStatus build(const CudnnDevice *device, const Case *c, ConvolutionKind kind,
                       const CudnnPolicy *policy, CudnnPlan **plan, FshError *error)
{
    FshStatus status = describe(device, c, kind, plan, error);
    return status ? status : cudnn_plan_build(*plan, policy, error);
}

static const Case middle = {64, 64, 128, 40, 3, 2, 1};

#ifdef __SANITIZE_ADDRESS__
/* Some precompiled engines make a cuBLASLt handle of their own and keep it, the heuristics descriptors: not ours to free. What we
 * forget would show with libcudnn_graph alone. */
FSH_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcudnn_engines_precompiled\nleak:libcudnn_heuristic\n";
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

/* As lowered: channels padded to 8. One candidate each would do; the policy is that of --deterministic. */
static const CudnnPolicy narrow_policy = {CUDNN_NOTES_OF_TRANSFORMS | CUDNN_NOTES_OF_CHANCE, 1,
                                          UINT64_C(2) << 30};
static const Case narrow_cases[] = {
    /* resnet50 at 160 px, the stem plain and as space to depth */
    {512, 8, 64, 160, 7, 2, 3},
    {512, 16, 64, 83, 4, 1, 0},
    {512, 64, 64, 40, 1, 1, 0},
    {512, 64, 64, 40, 3, 1, 1},
    {512, 64, 256, 40, 1, 1, 0},
    {512, 256, 128, 40, 1, 1, 0},
    {512, 128, 128, 40, 3, 2, 1},
    {512, 256, 512, 40, 1, 2, 0},
    {512, 512, 512, 10, 3, 2, 1},
    {512, 512, 2048, 5, 1, 1, 0},
    /* pyramidnet-110-270: 16, then 16 + 5 k channels of 32 px and so on, padded */
    {64, 8, 16, 32, 3, 1, 1},
    {64, 16, 24, 32, 1, 1, 0},
    {64, 24, 24, 32, 3, 1, 1},
    {64, 72, 288, 32, 1, 1, 0},
    {64, 424, 112, 32, 1, 1, 0},
    {64, 112, 112, 32, 3, 2, 1},
    {64, 1080, 272, 8, 1, 1, 0},
    {64, 272, 272, 8, 3, 1, 1},
    /* batch 1, odd images */
    {1, 8, 16, 9, 5, 2, 2},
    {1, 24, 8, 11, 7, 1, 3},
};

static void test_narrow_convolutions_have_plans(void **state)
{
    static const cudnnDataType_t types[] = {CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
    for (size_t i = 0; i < sizeof narrow_cases / sizeof narrow_cases[0]; i++)
        for (int kind = CONVOLUTION_FORWARD; kind <= CONVOLUTION_BACKWARD_WEIGHT; kind++)
            for (int t = 0; t < 2; t++) {
                CudnnPlan *plan = NULL;
                FshError error = {0};
                assert_ok(
                    describe_in(types[t], *state, &narrow_cases[i], (ConvolutionKind)kind, &plan, &error),
                    &error);
                if (build_unwatched(plan, &narrow_policy, &error))
                    fail_msg("case %zu, kind %d, type %d: %s", i, kind, t, error.message);
                assert_int_equal(cudnn_plan_candidates(plan), 1);
                cudnn_plan_free(&plan);
            }
}

/* conv -> sums and sums of squares of each channel; in fp16, where these engines need no compiler. */
static void test_convolutions_with_statistics_have_plans(void **state)
{
    static const Case cases[] = {
        {512, 64, 64, 40, 3, 1, 1},   {512, 64, 256, 40, 1, 1, 0}, {512, 128, 128, 40, 3, 2, 1},
        {512, 256, 512, 40, 1, 2, 0}, {64, 24, 24, 32, 3, 1, 1},   {512, 16, 64, 83, 4, 1, 0},
    };
    const CudnnPolicy policy = {CUDNN_NOTES_OF_TRANSFORMS, 1, UINT64_C(2) << 30};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CudnnPlan *plan = NULL;
        FshError error = {0};
        assert_ok(describe_in(CUDNN_DATA_HALF, *state, &cases[i], CONVOLUTION_FORWARD, &plan, &error),
                  &error);
        int sum = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){1, cases[i].out, 1, 1});
        int square_sum = cudnn_plan_tensor(plan, CUDNN_DATA_FLOAT, (int64_t[4]){1, cases[i].out, 1, 1});
        cudnn_plan_statistics(plan, 2, sum, square_sum);
        if (build_unwatched(plan, &policy, &error))
            fail_msg("case %zu: %s", i, error.message);
        cudnn_plan_free(&plan);
    }
}

static FshStatus describe_biased(const CudnnDevice *device, const Case *c, cudnnDataType_t type, float slope,
                                 CudnnPlan **plan, FshError *error)
{
    const int64_t size = size_out(c), out[4] = {c->batch, c->out, size, size};
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

static void test_convolutions_with_bias_and_relu_have_plans(void **state)
{
    static const Case cases[] = {
        {16, 64, 64, 64, 3, 1, 1}, {16, 128, 64, 64, 1, 1, 0}, {16, 16, 32, 64, 3, 2, 1}};
    const CudnnPolicy policy = {CUDNN_NOTES_OF_TRANSFORMS, 1, UINT64_C(2) << 30};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int t = 0; t < 2; t++) {
            CudnnPlan *plan = NULL;
            FshError error = {0};
            assert_ok(describe_biased(*state, &cases[i], t ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF, 0, &plan,
                                      &error),
                      &error);
            if (build_unwatched(plan, &policy, &error))
                fail_msg("case %zu, type %d: %s", i, t, error.message);
            cudnn_plan_free(&plan);
        }
}

/* More channels in x than in the filters. */
static void test_convolutions_in_groups_have_plans(void **state)
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
            assert_ok(cudnn_plan_new(&plan, *state, &error), &error);
            int x = cudnn_plan_tensor(plan, cases[i].type, (int64_t[4]){4, cases[i].in, 16, 16});
            int w = cudnn_plan_tensor(plan, cases[i].type,
                                      (int64_t[4]){cases[i].out, cases[i].in / cases[i].groups, 3, 3});
            int y = cudnn_plan_tensor(plan, cases[i].type, (int64_t[4]){4, cases[i].out, 8, 8});
            cudnn_plan_convolution(plan, (ConvolutionKind)kind, x, w, y, &(ConvolutionShape){2, 1});
            if (build_unwatched(plan, cases[i].policy, &error))
                fail_msg("case %zu, kind %d: %s", i, kind, error.message);
            cudnn_plan_free(&plan);
        }
}

/* ---- plans that are kept ---- */

static FshStatus get(CudnnCache *cache, const CudnnDevice *device, ConvolutionKind kind,
                     const CudnnPlan **plan)
{
    FshError error = {0};
    CudnnPlan *described = NULL;
    assert_ok(describe_in(CUDNN_DATA_HALF, device, &middle, kind, &described, &error), &error);
    FshStatus status = cudnn_cache_get(cache, &described, &narrow_policy, NULL, plan, &error);
    assert_null(described);
    return status;
}

static void assert_counts(const CudnnCache *cache, uint64_t built, uint64_t loaded, uint64_t shared)
{
    const CudnnCacheCounts counts = cudnn_cache_counts(cache);
    assert_int_equal(counts.built, built);
    assert_int_equal(counts.loaded, loaded);
    assert_int_equal(counts.shared, shared);
}

static void test_a_plan_is_built_once_and_loaded_by_the_next_start(void **state)
{
    TestFolder folder;
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *first, *again, *other;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "deeper/plans");
    assert_ok(cudnn_cache_new(&cache, "this machine", path, &error), &error);
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &first), &error);
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &again), &error);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_DATA, &other), &error);
    assert_ptr_equal(first, again);
    assert_ptr_not_equal(first, other);
    assert_counts(cache, 2, 0, 1);
    assert_null(cudnn_cache_warning(cache));
    assert_int_equal(test_count_files(path), 2);
    const uint64_t workspace_bytes = cudnn_plan_workspace_bytes(first);
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "this machine", path, &error), &error);
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &first), &error);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_DATA, &other), &error);
    assert_counts(cache, 0, 2, 0);
    assert_int_equal(cudnn_plan_workspace_bytes(first), workspace_bytes);
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "another machine", path, &error), &error);
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &first), &error);
    assert_counts(cache, 1, 0, 0);
    assert_int_equal(test_count_files(path), 3);
    cudnn_cache_free(&cache);
    test_folder_remove(&folder);
}

static void test_plans_that_nobody_uses_are_forgotten_when_there_are_many(void **state)
{
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *forward, *data, *weight;
    assert_ok(cudnn_cache_new(&cache, "machine", NULL, &error), &error);
    cudnn_cache_set_kept(cache, 2);
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &forward), &error);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_DATA, &data), &error);
    cudnn_cache_release(cache, data);
    assert_ok(cudnn_cache_build(cache, &error), &error); /* there are not more than two */
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_DATA, &data), &error);
    assert_counts(cache, 2, 0, 1);
    cudnn_cache_release(cache, data);
    assert_ok(cudnn_cache_build(cache, &error), &error);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_WEIGHT, &weight), &error);
    assert_ok(cudnn_cache_build(cache, &error), &error); /* forgets the one in the middle */
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &forward), &error);
    assert_counts(cache, 3, 0, 2);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_WEIGHT, &weight), &error);
    assert_counts(cache, 3, 0, 3);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_DATA, &data), &error);
    assert_counts(cache, 4, 0, 3);
    cudnn_cache_free(&cache);
}

/* What competes with a plan is timed once, as the plan is; a time of something else, or of another machine, does not count. */
static void test_a_time_is_kept_for_the_next_start(void **unused)
{
    (void)unused;
    TestFolder folder;
    FshError error = {0};
    CudnnCache *cache = NULL;
    double milliseconds = 0;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "plans");
    assert_ok(cudnn_cache_new(&cache, "this machine", path, &error), &error);
    assert_false(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    cudnn_cache_remember(cache, "kernel 1", 0.0125);
    assert_null(cudnn_cache_warning(cache));
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "this machine", path, &error), &error);
    assert_true(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    assert_float_equal(milliseconds, 0.0125, 1e-9);
    assert_false(cudnn_cache_recall(cache, "kernel 2", &milliseconds));
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "another machine", path, &error), &error);
    assert_false(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    cudnn_cache_free(&cache);

    assert_ok(cudnn_cache_new(&cache, "this machine", NULL, &error), &error);
    cudnn_cache_remember(cache, "kernel 1", 1);
    assert_false(cudnn_cache_recall(cache, "kernel 1", &milliseconds));
    cudnn_cache_free(&cache);
    test_folder_remove(&folder);
}

static void test_wanted_plans_are_built_on_several_threads(void **state)
{
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *plan;
    enum { CASES = sizeof narrow_cases / sizeof narrow_cases[0] };
    assert_ok(cudnn_cache_new(&cache, "machine", NULL, &error), &error);
    cudnn_cache_set_threads(cache, 4, NULL);
    for (int round = 0; round < 2; round++) /* the second wants what is there */
        for (size_t i = 0; i < CASES; i++) {
            CudnnPlan *described = NULL;
            assert_ok(describe_in(CUDNN_DATA_HALF, *state, &narrow_cases[i], CONVOLUTION_FORWARD, &described,
                                  &error),
                      &error);
            assert_ok(cudnn_cache_want(cache, &described, &narrow_policy, false, &error), &error);
            assert_null(described);
        }
    watch_leaks(false);
    assert_ok(cudnn_cache_build(cache, &error), &error);
    watch_leaks(true);
    for (size_t i = 0; i < CASES; i++) {
        CudnnPlan *described = NULL;
        assert_ok(
            describe_in(CUDNN_DATA_HALF, *state, &narrow_cases[i], CONVOLUTION_FORWARD, &described, &error),
            &error);
        assert_ok(cudnn_cache_get(cache, &described, &narrow_policy, NULL, &plan, &error), &error);
        assert_int_equal(cudnn_plan_candidates(plan), 1);
    }
    assert_counts(cache, CASES, 0, 0);
    cudnn_cache_free(&cache);
}

/* Whoever asks is told, every time; who only wanted it is not. */
static void test_a_wanted_plan_that_cannot_be_built_is_told_when_it_is_asked_for(void **state)
{
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *plan;
    CudnnPolicy none = plain_f32;
    none.refused_notes = UINT32_MAX;
    assert_ok(cudnn_cache_new(&cache, "machine", NULL, &error), &error);
    CudnnPlan *described = NULL;
    assert_ok(describe(*state, &middle, CONVOLUTION_BACKWARD_DATA, &described, &error), &error);
    none.workspace_limit_bytes = 0;
    assert_ok(cudnn_cache_want(cache, &described, &none, false, &error), &error);
    watch_leaks(false);
    assert_ok(cudnn_cache_build(cache, &error), &error);
    watch_leaks(true);
    for (int i = 0; i < 2; i++) {
        assert_ok(describe(*state, &middle, CONVOLUTION_BACKWARD_DATA, &described, &error), &error);
        assert_int_equal(cudnn_cache_get(cache, &described, &none, NULL, &plan, &error), FSH_ERR_LIBRARY);
        assert_contains(error.message, "has no engine for this");
        assert_null(plan);
    }
    assert_counts(cache, 0, 0, 0);
    cudnn_cache_free(&cache);
}

/* The one file in folder, as find(1) would name it. */
static const char *only_file(TestFolder *folder)
{
    char command[512], line[512] = "";
    (void)snprintf(command, sizeof command, "ls %s/*.cudnn", folder->path);
    FILE *pipe = popen(command, "r"); // NOLINT(cert-env33-c)
    assert_non_null(pipe);
    assert_non_null(fgets(line, sizeof line, pipe));
    line[strcspn(line, "\n")] = '\0';
    (void)pclose(pipe);
    return test_path(folder, "%s", strrchr(line, '/') + 1);
}

static void test_a_damaged_file_is_replaced(void **state)
{
    TestFolder folder;
    FshError error = {0};
    const CudnnPlan *plan;
    const char *file = NULL;
    test_folder_make(&folder);
    for (int damage = 0; damage < 6; damage++) {
        CudnnCache *cache = NULL;
        assert_ok(cudnn_cache_new(&cache, "machine", folder.path, &error), &error);
        assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &plan), &error);
        assert_counts(cache, 1, 0, 0);
        cudnn_cache_free(&cache);
        /* what was put right is good */
        assert_ok(cudnn_cache_new(&cache, "machine", folder.path, &error), &error);
        assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &plan), &error);
        assert_counts(cache, 0, 1, 0);
        cudnn_cache_free(&cache);
        file = only_file(&folder);
        switch (damage) {
        case 0:
            test_file_flip_byte(file, 3);
            break;
        case 1:
            test_file_flip_byte(file, 40);
            break;
        case 2:
            test_file_flip_byte(file, -100);
            break;
        case 3:
            test_file_truncate(file, -1);
            break;
        case 4:
            test_file_truncate(file, 10);
            break;
        default:
            test_file_truncate(file, 0);
            break;
        }
    }
    test_folder_remove(&folder);
}

static void test_a_folder_that_cannot_be_written_is_told_and_does_no_harm(void **state)
{
    TestFolder folder;
    FshError error = {0};
    CudnnCache *cache = NULL;
    const CudnnPlan *plan;
    test_folder_make(&folder);
    const char *path = test_path(&folder, "file");
    test_file_write_text(path, "not a folder");
    assert_ok(cudnn_cache_new(&cache, "machine", path, &error), &error);
    assert_ok(get(cache, *state, CONVOLUTION_FORWARD, &plan), &error);
    assert_ok(get(cache, *state, CONVOLUTION_BACKWARD_DATA, &plan), &error);
    assert_counts(cache, 2, 0, 0);
    assert_contains(cudnn_cache_warning(cache), "are not kept for the next start: ");
    cudnn_cache_free(&cache);
    test_folder_remove(&folder);
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
        cmocka_unit_test(test_narrow_convolutions_have_plans),
        cmocka_unit_test(test_convolutions_with_statistics_have_plans),
        cmocka_unit_test(test_convolutions_with_bias_and_relu_have_plans),
        cmocka_unit_test(test_convolutions_in_groups_have_plans),
        cmocka_unit_test(test_a_plan_is_built_once_and_loaded_by_the_next_start),
        cmocka_unit_test(test_plans_that_nobody_uses_are_forgotten_when_there_are_many),
        cmocka_unit_test(test_a_time_is_kept_for_the_next_start),
        cmocka_unit_test(test_wanted_plans_are_built_on_several_threads),
        cmocka_unit_test(test_a_wanted_plan_that_cannot_be_built_is_told_when_it_is_asked_for),
        cmocka_unit_test(test_a_damaged_file_is_replaced),
        cmocka_unit_test(test_a_folder_that_cannot_be_written_is_told_and_does_no_harm),
        cmocka_unit_test(test_a_pattern_without_an_engine_is_told),
        cmocka_unit_test(test_refused_numerics_are_counted),
        cmocka_unit_test(test_shapes_that_contradict_each_other_are_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
