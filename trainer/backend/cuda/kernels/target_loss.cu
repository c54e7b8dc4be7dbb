/* target_loss.cu - the losses of rows of targets: several labels, or numbers. A warp works on each sample,
 * or a block if there are many columns; the last block adds up the samples' losses in a fixed order. Sums are
 * float64, as on the CPU. */
#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_loss.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"
#include "trainer/backend/target_math.h"

using namespace fshard;

namespace
{

/* With this many columns or more a block works on each sample. */
constexpr int block_columns = 256;

struct Rows {
    TargetLoss loss;
    const float *x, *targets, *valid, *weights, *positives;
    int64_t samples;
    int columns;
};

__device__ double weight_at(const float *weights, int k)
{
    return weights ? (double)weights[k] : 1;
}

/* Returns what the sums are divided by, in every thread of the block. */
__device__ double terms_of(const Rows &rows)
{
    double count = 0;
    for (int64_t n = threadIdx.x; n < rows.samples; n += block_threads)
        count += rows.valid[n] > 0;
    return block_sum(count) * (rows.loss.sums ? 1 : rows.columns);
}

template <int Threads>
__global__ void target_loss_kernel(Rows rows, double *sample_losses, unsigned *arrivals, float *loss)
{
    const int64_t n = ((int64_t)blockIdx.x * block_threads + threadIdx.x) / Threads;
    if (n < rows.samples) { /* true for all threads of a row, or for none */
        const float *x = rows.x + n * rows.columns, *targets = rows.targets + n * rows.columns;
        const bool counts = rows.valid[n] > 0;
        double sum = 0;
        for (int k = (int)threadIdx.x % Threads; k < rows.columns && counts; k += Threads)
            sum += weight_at(rows.weights, k) * target_term(rows.loss.kind, x[k],
                                                            target_of(&rows.loss, targets[k]),
                                                            weight_at(rows.positives, k));
        sum = Threads == 32 ? warp_sum(sum) : block_sum(sum);
        if (threadIdx.x % Threads == 0)
            sample_losses[n] = sum;
    }
    if (!block_is_last(arrivals))
        return;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows.samples; i += block_threads)
        sum += __ldcg(&sample_losses[i]);
    sum = block_sum(sum);
    const double terms = terms_of(rows);
    if (threadIdx.x == 0)
        *loss = terms > 0 ? (float)(sum / terms) : 0;
}

template <int Threads> __global__ void target_loss_backward_kernel(Rows rows, const float *dloss, float *dx)
{
    const double terms = terms_of(rows), factor = terms > 0 ? (double)*dloss / terms : 0;
    const int64_t n = ((int64_t)blockIdx.x * block_threads + threadIdx.x) / Threads;
    if (n >= rows.samples)
        return;
    const float *x = rows.x + n * rows.columns, *targets = rows.targets + n * rows.columns;
    const bool counts = rows.valid[n] > 0; /* one left out may hold anything, NaN too */
    for (int k = (int)threadIdx.x % Threads; k < rows.columns; k += Threads)
        dx[n * rows.columns + k] =
            counts ? (float)(factor * weight_at(rows.weights, k) *
                             target_slope(rows.loss.kind, x[k], target_of(&rows.loss, targets[k]),
                                          weight_at(rows.positives, k)))
                   : 0;
}

bool are_sound(const RowTargets *rows)
{
    return is_f32(rows->x) && is_f32(rows->targets) && is_f32(rows->valid) && is_f32(rows->weights) &&
           is_f32(rows->positive_weights);
}

Rows rows_of(const RowTargets *rows)
{
    return {rows->loss,
            data_of<float>(rows->x),
            data_of<float>(rows->targets),
            data_of<float>(rows->valid),
            rows->weights ? data_of<float>(rows->weights) : nullptr,
            rows->positive_weights ? data_of<float>(rows->positive_weights) : nullptr,
            rows->x->shape[0],
            (int)rows->x->shape[1]};
}

/* Calls launch(threads, blocks), threads a constant. */
template <typename Launch> void with_threads(const DeviceTensor *x, Launch launch)
{
    using std::integral_constant;
    const int64_t samples = x->shape[0], warps = block_threads / 32;
    if (x->shape[1] < block_columns)
        launch(integral_constant<int, 32>{}, (unsigned)((samples + warps - 1) / warps));
    else
        launch(integral_constant<int, block_threads>{}, (unsigned)samples);
}

} // namespace

extern "C" uint64_t kernel_target_loss_scratch_bytes(const DeviceTensor *x)
{
    return (uint64_t)x->shape[0] * sizeof(double);
}

extern "C" cudaError_t kernel_target_loss(const RowTargets *rows, const DeviceTensor *loss, void *scratch,
                                          unsigned *arrivals, cudaStream_t stream)
{
    if (!are_sound(rows) || !is_f32(loss))
        return cudaErrorNotSupported;
    with_threads(rows->x, [&](auto threads, unsigned blocks) {
        target_loss_kernel<threads()><<<blocks, block_threads, 0, stream>>>(
            rows_of(rows), static_cast<double *>(scratch), arrivals, data_of<float>(loss));
    });
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_target_loss_backward(const RowTargets *rows, const DeviceTensor *dloss,
                                                   const DeviceTensor *dx, cudaStream_t stream)
{
    if (!are_sound(rows) || !is_f32(dloss) || !is_f32(dx))
        return cudaErrorNotSupported;
    with_threads(rows->x, [&](auto threads, unsigned blocks) {
        target_loss_backward_kernel<threads()>
            <<<blocks, block_threads, 0, stream>>>(rows_of(rows), data_of<float>(dloss), data_of<float>(dx));
    });
    return cudaGetLastError();
}
