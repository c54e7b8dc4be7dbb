/* groups.cu - weights of convolutions in groups of few channels, for cuDNN: see kernels_convolution.h. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_convolution.h"

using namespace fshard;

namespace
{

/* How the channels of groups lie in a joined group. */
struct GroupPlaces {
    int taps;                             /* of the kernel, both directions */
    int in, joined;                       /* channels in of a group, of a joined group */
    int out;                              /* channels out of a group */
    int pitch;                            /* of the weight that is not joined */
    __device__ int first(int64_t o) const /* the channel at which the group of output channel o begins */
    {
        return (int)(o / out % (joined / in)) * in;
    }
};

/* Walks over joined elements, so that the zeros are written too. */
template <typename T> __global__ void join_kernel(const T *weight, T *to, int64_t count, GroupPlaces places)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int64_t row = i / places.joined; /* of [O, taps] */
    const int channel = (int)(i % places.joined) - places.first(row / places.taps);
    to[i] = channel >= 0 && channel < places.in ? weight[row * places.pitch + channel] : (T)0.0F;
}

template <typename T>
__global__ void split_kernel(const T *joined, float *to, int64_t count, GroupPlaces places)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    const int64_t row = i / places.in;
    to[i] = (float)joined[row * places.joined + places.first(row / places.taps) + i % places.in];
}

GroupPlaces places_of(const DeviceTensor *weight, const DeviceTensor *joined, int64_t groups)
{
    GroupPlaces places = {};
    places.taps = (int)(weight->shape[1] * weight->shape[2]);
    places.in = (int)weight->shape[3];
    places.joined = (int)joined->shape[3];
    places.out = (int)(weight->shape[0] / groups);
    places.pitch = (int)weight->pitch;
    return places;
}

} // namespace

extern "C" cudaError_t kernel_join_groups(const DeviceTensor *weight, int64_t groups,
                                          const DeviceTensor *joined, cudaStream_t stream)
{
    const int64_t count = device_tensor_stored(joined);
    if (!element_is_narrow(weight->element) || weight->element != joined->element)
        return cudaErrorNotSupported;
    return with_storage(weight, [&](auto zero) {
        using T = decltype(zero);
        join_kernel<T><<<blocks_for(count), block_threads, 0, stream>>>(
            data_of<T>(weight), data_of<T>(joined), count, places_of(weight, joined, groups));
    });
}

extern "C" cudaError_t kernel_split_groups(const DeviceTensor *joined, int64_t groups,
                                           const DeviceTensor *weight, cudaStream_t stream)
{
    const int64_t count = device_tensor_stored(weight);
    if (weight->element != ELEMENT_F32 || weight->pitch != weight->shape[3])
        return cudaErrorNotSupported;
    return with_storage(joined, [&](auto zero) {
        using T = decltype(zero);
        split_kernel<T><<<blocks_for(count), block_threads, 0, stream>>>(
            data_of<T>(joined), data_of<float>(weight), count, places_of(weight, joined, groups));
    });
}
