/* cudnn_support.h - what the tests of cuDNN's plans share: a GPU that need not be here, convolutions, leaks
 * that are not ours. */
#ifndef FSHARD_TESTS_TRAINER_CUDNN_SUPPORT_H
#define FSHARD_TESTS_TRAINER_CUDNN_SUPPORT_H

#include <stdbool.h>

#include "trainer/backend/cuda/device/cudnn_graph.h"

void watch_leaks(bool watch);

/* A square convolution. */
typedef struct Case {
    int64_t batch, in, out, size, kernel, stride, padding;
} Case;

int64_t case_size_out(const Case *c);
FshStatus case_describe_in(cudnnDataType_t type, const CudnnDevice *device, const Case *c,
                           ConvolutionKind kind, CudnnPlan **plan, FshError *error);
/* Describes the case in float32. */
FshStatus case_describe(const CudnnDevice *device, const Case *c, ConvolutionKind kind, CudnnPlan **plan,
                        FshError *error);
FshStatus case_build(const CudnnDevice *device, const Case *c, ConvolutionKind kind,
                     const CudnnPolicy *policy, CudnnPlan **plan, FshError *error);
/* Builds the plan without watching for leaks: the fallback heuristics load NVRTC and unload it again, which
 * loses memory that is not ours. */
FshStatus plan_build_unwatched(CudnnPlan *plan, const CudnnPolicy *policy, FshError *error);

extern const CudnnPolicy plain_f32;
extern const Case middle_case;
/* As lowered: channels padded to 8. One candidate each would do; the policy is that of --deterministic. */
extern const CudnnPolicy narrow_policy;
extern const Case narrow_cases[];
extern const size_t narrow_case_count;

#endif
