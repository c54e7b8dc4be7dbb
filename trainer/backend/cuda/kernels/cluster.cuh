/* cluster.cuh - clusters of blocks, which run at once and reach each other's shared memory, and launches that
 * begin early. A block that was launched without a cluster is one of its own. For sm_90 and later. Source:
 * PTX ISA, "barrier.cluster", "mapa", "griddepcontrol"; CUDA programming guide, "Programmatic Dependent
 * Launch". */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CLUSTER_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CLUSTER_CUH

#include "trainer/backend/cuda/kernels/tensor_copy.cuh"

namespace fshard
{

__device__ inline unsigned cluster_rank()
{
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Waits for all threads of the cluster that have not left; orders nothing that they have read or written. */
__device__ inline void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

/* The same, behind what they have read of each other's shared memory; what they have written to it is there
 * for all of them. */
__device__ inline void cluster_show()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/* Returns where a block of the cluster has what lies there in this one. */
__device__ inline unsigned address_at(unsigned rank, const void *memory)
{
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(memory)), "r"(rank));
    return there;
}

__device__ inline float4 load_at(unsigned address)
{
    float4 four;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "r"(address)
                 : "memory");
    return four;
}

/* Arrives at the barrier that a block of the cluster has there. Without a scope: a release to the whole
 * cluster takes a fence of the whole device. */
__device__ inline void barrier_arrive_at(unsigned rank, CopyBarrier *barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_at(rank, barrier)) : "memory");
}

/* ---- launches ---- */

/* Waits for the end of the launch before, and of all before that. */
__device__ inline void launch_before_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* Launches blocks in clusters of so many, before the launch before has ended: every thread of the kernel
 * calls launch_before_wait before it touches global memory. */
template <typename... Parameters, typename... Arguments>
cudaError_t launch_clusters(void (*kernel)(Parameters...), unsigned blocks, unsigned threads,
                            size_t shared_bytes, unsigned cluster, cudaStream_t stream,
                            const Arguments &...arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim.x = cluster;
    attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = cluster > 1 ? 2 : 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

} // namespace fshard

#endif
