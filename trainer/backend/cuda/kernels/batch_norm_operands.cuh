/* batch_norm_operands.cuh - from the operands of kernels_norm.h to those of batch_norm_passes.cuh. For
 * batch_norm.cu, norm_gate.cu and norm_pair.cu. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_BATCH_NORM_OPERANDS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_BATCH_NORM_OPERANDS_CUH

#include <initializer_list>

#include "trainer/backend/cuda/kernels/batch_norm_passes.cuh"
#include "trainer/backend/cuda/kernels/kernels_norm.h"

namespace fshard
{

template <typename T> T *maybe_data(const DeviceTensor *tensor)
{
    return tensor ? data_of<T>(tensor) : nullptr;
}

inline Norm norm_of(const NormTensors *tensors, const NormActivation *activation)
{
    Norm norm = {};
    norm.weight = data_of<float>(tensors->weight);
    norm.bias = maybe_data<float>(tensors->bias);
    norm.mean = data_of<float>(tensors->mean);
    norm.inverse_deviation = data_of<float>(tensors->inverse_deviation);
    norm.slope = activation->op == OP_RELU ? activation->slope : 1;
    return norm;
}

inline Moments moments_of(const NormTensors *tensors, const NormRunning *running)
{
    Moments moments = {};
    const int64_t sampled = running->sampled_rows;
    const double rows = (double)(sampled ? sampled : device_tensor_rows(tensors->x));
    const double joint = rows * (double)(running->ranks ? running->ranks : 1);
    moments.inverse_rows = 1 / rows;
    moments.unbiasing = joint > 1 ? joint / (joint - 1) : 1;
    moments.epsilon = running->epsilon;
    moments.momentum = running->momentum;
    moments.bias = running->bias ? data_of<float>(running->bias) : nullptr;
    moments.mean = data_of<float>(tensors->mean);
    moments.inverse_deviation = data_of<float>(tensors->inverse_deviation);
    moments.running_mean = data_of<float>(running->mean);
    moments.running_var = data_of<float>(running->var);
    return moments;
}

/* Returns the sums [2, pitch] of x, and what is made of them. */
inline SumsOfX sums_of_x(const NormTensors *tensors, const NormRunning *running, const DeviceTensor *sums)
{
    const float *sum = data_of<float>(sums);
    return {sum, sum + sums->pitch, (int)device_tensor_channels(tensors->x), moments_of(tensors, running)};
}

/* Returns whether all tensors are float32, as parameters and statistics of norms are in every mode. */
inline bool all_f32(std::initializer_list<const DeviceTensor *> tensors)
{
    for (const DeviceTensor *tensor : tensors)
        if (tensor && tensor->element != ELEMENT_F32)
            return false;
    return true;
}

/* Returns whether the norm of x can have signs: 8 narrow values of a thread are a byte of them. */
inline bool signs_fit(const NormTensors *tensors)
{
    const DeviceTensor *x = tensors->x, *signs = tensors->signs;
    return element_is_narrow(x->element) && signs->element == ELEMENT_U8 &&
           x->pitch == device_tensor_channels(x) && signs->pitch * SIGNS_IN_BYTE == x->pitch &&
           device_tensor_rows(signs) == device_tensor_rows(x);
}

} // namespace fshard

#endif
