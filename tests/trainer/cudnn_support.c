#include "tests/trainer/cudnn_support.h"

#include <stdio.h>
#include <stdlib.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "common/file.h"
#include "tests/support/support.h"

const CudnnPolicy plain_f32 = {CUDNN_NOTES_OF_TF32 | CUDNN_NOTES_OF_TRANSFORMS | CUDNN_NOTES_OF_CHANCE, 1,
                               UINT64_C(2) << 30};

int64_t case_size_out(const Case *c)
{
    return (c->size + 2 * c->padding - c->kernel) / c->stride + 1;
}

FshStatus case_describe_in(cudnnDataType_t type, const CudnnDevice *device, const Case *c,
                           ConvolutionKind kind, CudnnPlan **plan, FshError *error)
{
    const int64_t size = case_size_out(c);
    FshStatus status = cudnn_plan_new(plan, device, error);
    if (status)
        return status;
    int x = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->batch, c->in, c->size, c->size});
    int w = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->out, c->in, c->kernel, c->kernel});
    int y = cudnn_plan_tensor(*plan, type, (int64_t[4]){c->batch, c->out, size, size});
    cudnn_plan_convolution(*plan, kind, x, w, y, &(ConvolutionShape){c->stride, c->padding});
    return FSH_OK;
}

FshStatus case_describe(const CudnnDevice *device, const Case *c, ConvolutionKind kind, CudnnPlan **plan,
                        FshError *error)
{
    return case_describe_in(CUDNN_DATA_FLOAT, device, c, kind, plan, error);
}

FshStatus case_build(const CudnnDevice *device, const Case *c, ConvolutionKind kind,
                     const CudnnPolicy *policy, CudnnPlan **plan, FshError *error)
{
    FshStatus status = case_describe(device, c, kind, plan, error);
    return status ? status : cudnn_plan_build(*plan, policy, error);
}

const Case middle_case = {64, 64, 128, 40, 3, 2, 1};

#ifdef __SANITIZE_ADDRESS__
/* Returns the leaks that are not ours to free: some precompiled engines make a cuBLASLt handle of their own
 * and keep it, the heuristics keep descriptors. What we forget would show with libcudnn_graph alone. */
FSH_API const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcudnn_engines_precompiled\nleak:libcudnn_heuristic\n";
}
#endif

void watch_leaks(bool watch)
{
#ifdef __SANITIZE_ADDRESS__
    if (watch)
        __lsan_enable();
    else
        __lsan_disable();
#endif
    (void)watch;
}

FshStatus plan_build_unwatched(CudnnPlan *plan, const CudnnPolicy *policy, FshError *error)
{
    watch_leaks(false);
    FshStatus status = cudnn_plan_build(plan, policy, error);
    watch_leaks(true);
    return status;
}

/* Makes the device, the *state of all tests here, and a first plan: what cuDNN's libraries keep for good when
 * they are loaded is not watched. */
int test_group_setup(void **state)
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
        case_build(&device, &middle_case, CONVOLUTION_FORWARD, &plain_f32, &plan, &error)) {
        print_error("%s\n", error.message);
        return -1;
    }
    cudnn_plan_free(&plan);
    buffer_free(&json);
    watch_leaks(true);
    *state = &device;
    return 0;
}

int test_group_teardown(void **state)
{
    return (int)cudnnBackendDestroyDescriptor(((CudnnDevice *)*state)->properties);
}

const CudnnPolicy narrow_policy = {CUDNN_NOTES_OF_TRANSFORMS | CUDNN_NOTES_OF_CHANCE, 1, UINT64_C(2) << 30};
const Case narrow_cases[] = {
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
const size_t narrow_case_count = sizeof narrow_cases / sizeof narrow_cases[0];
