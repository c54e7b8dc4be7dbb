/* async_copy.cuh - asynchronous copies from device memory to shared memory. They belong to the thread that
 * starts them, in groups: copies_close() ends a group, copies_wait<Open>() waits until all but the last
 * `Open` groups have arrived. Source: PTX ISA, "cp.async". */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ASYNC_COPY_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ASYNC_COPY_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* Copies 16 bytes, both ends at a multiple of 16; writes zeros if from is NULL. */
__device__ inline void copy_16(void *to, const void *from)
{
    const unsigned there = shared_address(to);
    if (from)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from) : "memory");
    else
        *static_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
}

/* Copies 16 bytes where `there_is`; else writes zeros. Both ends are at multiples of 16, and inside of what
 * the program has. */
__device__ inline void copy_16_or_zeros(unsigned to, const void *from, bool there_is)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there_is ? 16 : 0)
                 : "memory");
}

/* The same with 8 bytes. */
__device__ inline void copy_8_or_zeros(unsigned to, const void *from, bool there_is)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(there_is ? 8 : 0)
                 : "memory");
}

/* Copies 4 bytes, both ends at a multiple of 4. */
__device__ inline void copy_4(void *to, const void *from)
{
    const unsigned there = shared_address(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(there), "l"(from) : "memory");
}

__device__ inline void copies_close()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int Open> __device__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Open) : "memory");
}

} // namespace fshard

#endif
