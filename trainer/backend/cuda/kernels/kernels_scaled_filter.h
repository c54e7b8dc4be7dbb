/* kernels_scaled_filter.h - filters of 1 x 1 whose outputs have a factor each (scaled_filter.cu), for layers
 * that multiply in their weights what a layer scale would multiply in their results. Rules: kernels.h.
 *
 * Channels in and out come in multiples of 8. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_SCALED_FILTER_H
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_KERNELS_SCALED_FILTER_H

#include "trainer/backend/cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All f32. */
typedef struct ScaledFilter {
    const DeviceTensor *weight;  /* [O, C], or [O, C, 1, 1] as filters lie */
    const DeviceTensor *bias;    /* [O], or NULL */
    const DeviceTensor *factors; /* [1, O, 1, 1] */
} ScaledFilter;

/* Computes scaled_weight = factors * weight, [O, C], and scaled_bias = factors * bias, [O], both of one
 * storage type; scaled_bias is NULL where bias is. */
cudaError_t kernel_scale_filter(const ScaledFilter *filter, const DeviceTensor *scaled_weight,
                                const DeviceTensor *scaled_bias, cudaStream_t stream);
/* Makes gradients, shaped like weight, bias and factors, of those of scaled_weight and scaled_bias, which lie
 * in dweight and dbias: dfactors = dweight . weight + dbias * bias for each output, then dweight *= factors
 * and dbias *= factors. All f32; dbias may be NULL. Sums are added up in one order. */
cudaError_t kernel_scale_filter_backward(const ScaledFilter *filter, const DeviceTensor *dweight,
                                         const DeviceTensor *dbias, const DeviceTensor *dfactors,
                                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
