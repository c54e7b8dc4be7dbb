/* wait.cu - a pause on the device. */
#include "trainer/backend/cuda/kernels/kernels_wait.h"

namespace
{

__device__ uint64_t now_nanoseconds()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void wait_kernel(uint64_t nanoseconds)
{
    const uint64_t end = now_nanoseconds() + nanoseconds;
    while (now_nanoseconds() < end)
        __nanosleep(1000);
}

} // namespace

extern "C" cudaError_t kernel_wait(uint64_t nanoseconds, cudaStream_t stream)
{
    wait_kernel<<<1, 1, 0, stream>>>(nanoseconds);
    return cudaGetLastError();
}
