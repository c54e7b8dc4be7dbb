/* async_copy.cuh - copies from the device's memory to shared memory that are on their way while a thread does
 * something else. They belong to the thread that asks for them, in groups: copies_close() ends one,
 * copies_wait<Open>() waits until all but its last `Open` groups have landed. Source: PTX ISA, "cp.async". */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ASYNC_COPY_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_ASYNC_COPY_CUH

namespace fshard
{

/* 16 bytes, both ends at a multiple of 16; zeros where from is NULL. */
__device__ inline void copy_16(void *to, const void *from)
{
    const unsigned there = (unsigned)__cvta_generic_to_shared(to);
    if (from)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(from) : "memory");
    else
        *static_cast<uint4 *>(to) = make_uint4(0, 0, 0, 0);
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
