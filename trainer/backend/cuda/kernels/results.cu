/* results.cu - gathers a run's results in one place, guards later steps after a loss that is not finite, and
 * counts exchanges with other GPUs. */
#include "trainer/backend/cuda/kernels/kernels_common.cuh"
#include "trainer/backend/cuda/kernels/kernels_results.h"

namespace
{
using namespace fshard;

/* Copies the results. Bytes: twice theirs, once for a batch: 4 MB for 512 times 1000 logits. */
__global__ void gather_kernel(ResultSources sources, float *slot)
{
    const int64_t first = (int64_t)blockIdx.x * block_threads + threadIdx.x,
                  stride = (int64_t)gridDim.x * block_threads;
    for (int t = 0; t < sources.tensor_count; t++)
        for (int64_t i = first; i < sources.count[t]; i += stride)
            slot[sources.first[t] + i] = sources.from[t][i];
}

__global__ void guard_kernel(LossGuard *guard, float *loss)
{
    if (!guard->armed)
        return;
    if (guard->tripped)
        *loss = NAN;
    else if (!isfinite(*loss))
        guard->tripped = 1;
}

__global__ void count_kernel(uint64_t *count, volatile uint64_t *told)
{
    *told = ++*count;
}

} // namespace

extern "C" cudaError_t kernel_gather_results(const ResultSources *sources, float *slot, cudaStream_t stream)
{
    int64_t most = 0;
    for (int t = 0; t < sources->tensor_count; t++)
        most = sources->count[t] > most ? sources->count[t] : most;
    gather_kernel<<<grid_blocks(most), block_threads, 0, stream>>>(*sources, slot);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_guard_loss(LossGuard *guard, float *loss, cudaStream_t stream)
{
    guard_kernel<<<1, 1, 0, stream>>>(guard, loss);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_count_exchange(uint64_t *count, volatile uint64_t *told, cudaStream_t stream)
{
    count_kernel<<<1, 1, 0, stream>>>(count, told);
    return cudaGetLastError();
}
