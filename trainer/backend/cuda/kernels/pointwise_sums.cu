/* pointwise_sums.cu - gradients of functions of one value that add themselves up by channel on the way: what
 * the bias before the function wants, without a second pass. */
#include "trainer/backend/cuda/kernels/kernels_pointwise.h"
#include "trainer/backend/cuda/kernels/pointwise.cuh"
#include "trainer/backend/cuda/kernels/rows.cuh"

using namespace fshard;

namespace
{

/* A Term (rows.cuh) that writes what it adds. */
template <typename T, typename Function> struct GradientTerm {
    static constexpr int sums = 1, unroll = 2, resident = 4;
    const T *dy, *x;
    T *dx;
    Function function;
    template <int Width> struct Columns {
        __device__ Columns(const GradientTerm &, int)
        {
        }
    };
    template <int Width> struct Row {
        Raw<T, Width> dy, x;
        __device__ void read(const GradientTerm &term, const Spot &at)
        {
            dy = fetch<T, Width>(term.dy + at.element);
            x = fetch<T, Width>(term.x + at.element);
        }
    };
    template <int Width>
    __device__ void add(const Columns<Width> &, const Row<Width> &row, int64_t i,
                        float (&sum)[sums][Width]) const
    {
        float gradients[Width], values[Width];
        unpack(row.dy, gradients);
        unpack(row.x, values);
#pragma unroll
        for (int k = 0; k < Width; k++) {
            gradients[k] = function(gradients[k], values[k]);
            sum[0][k] += gradients[k];
        }
        put(dx + i, gradients);
    }
};

template <typename Function>
cudaError_t run(const DeviceTensor *dy, const DeviceTensor *x, const DeviceTensor *dx,
                const DeviceTensor *sums, void *scratch, cudaStream_t stream)
{
    return with_storage(dx, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (sizeof(T) == 2)
            sum_rows<T>(GradientTerm<T, Function>{data_of<T>(dy), data_of<T>(x), data_of<T>(dx), {}},
                        FinishSum{data_of<float>(sums)}, dx, scratch, stream);
    });
}

} // namespace

extern "C" cudaError_t kernel_pointwise_backward_sums(OpKind op, const DeviceTensor *dy,
                                                      const DeviceTensor *x, const DeviceTensor *dx,
                                                      const DeviceTensor *sums, void *scratch,
                                                      cudaStream_t stream)
{
    if (!element_is_narrow(dx->element) || dy->element != dx->element || x->element != dx->element ||
        !is_f32(sums))
        return cudaErrorNotSupported;
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND##_BACKWARD:                                                                               \
        return run<PointwiseBackward<narrow##_slope>>(dy, x, dx, sums, scratch, stream);
    switch (op) {
        POINTWISE_ACTIVATIONS(CASE)
    default:
        return cudaErrorInvalidValue;
    }
#undef CASE
}
