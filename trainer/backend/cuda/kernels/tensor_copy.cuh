/* tensor_copy.cuh - the Tensor Memory Accelerator (TMA), Hopper's copy engine: one thread has a box of a
 * tensor brought to shared memory, or back, and a barrier there tells when it is there. For sm_90 and later.
 * Source: PTX ISA, "cp.async.bulk.tensor", "mbarrier"; CUDA driver API, "Tensor Map Object Management". */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_TENSOR_COPY_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_TENSOR_COPY_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* ---- barriers ---- */

/* A barrier goes from phase to phase: each ends when so many threads have arrived, and all bytes that one of
 * them announced. */
struct CopyBarrier {
    unsigned long long state;
};

__device__ inline void barrier_init(CopyBarrier *barrier, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
                 : "memory");
}

/* Lets the copy engine see barriers that this thread has made; __syncthreads shows them to the others. */
__device__ inline void barriers_to_copies()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(CopyBarrier *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and announces bytes. */
__device__ inline void barrier_expect(CopyBarrier *barrier, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

/* Waits for the end of a phase; parity: 0 for the first, 1 for the second, 0 for the third … */
__device__ inline void barrier_wait(CopyBarrier *barrier, unsigned parity)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(parity)
                     : "memory");
}

/* ---- copies ---- */

/* Begins to bring a box of a tensor of rank 3 to shared memory; what lies beyond the tensor is zeros. x, y,
 * z: where it begins, the innermost axis first. */
__device__ inline void copy_box(void *to, const CUtensorMap *map, int x, int y, int z, CopyBarrier *barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"((unsigned long long)map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
                 : "memory");
}

/* The same for all blocks of a cluster whose bits are set: each gets it at that place, and at that barrier of
 * its own. */
__device__ inline void copy_box_to_all(void *to, const CUtensorMap *map, int x, int y, int z,
                                       CopyBarrier *barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
                 "l"((unsigned long long)map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)),
                 "h"(blocks)
                 : "memory");
}

/* The same of rank 4, for this block. */
__device__ inline void copy_box(void *to, const CUtensorMap *map, int x, int y, int z, int w,
                                CopyBarrier *barrier)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
                 "l"((unsigned long long)map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
                 : "memory");
}

/* The same for all blocks of a cluster whose bits are set. */
__device__ inline void copy_box_to_all(void *to, const CUtensorMap *map, int x, int y, int z, int w,
                                       CopyBarrier *barrier, unsigned short blocks)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to)),
                 "l"((unsigned long long)map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier)),
                 "h"(blocks)
                 : "memory");
}

/* Begins to write a box; what lies beyond the tensor is left out. */
__device__ inline void write_box(const CUtensorMap *map, int x, int y, int z, const void *from)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(
                     (unsigned long long)map),
                 "r"(x), "r"(y), "r"(z), "r"(shared_address(from))
                 : "memory");
}

/* Waits until shared memory has been read for all boxes that this thread writes. */
__device__ inline void written_boxes_wait()
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* ---- maps ---- */

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/* Returns the driver's function that makes maps; NULL: it has none. */
inline EncodeTiled map_encoder()
{
    static const EncodeTiled encode = [] {
        void *function = nullptr;
        cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        const char *const name = "cuTensorMapEncodeTiled";
#if CUDART_VERSION >= 12050
        const cudaError_t status =
            cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
        const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
        if (status != cudaSuccess)
            (void)cudaGetLastError(); /* or the next launch would be blamed for it */
        const bool is_there = status == cudaSuccess && found == cudaDriverEntryPointSuccess;
        return reinterpret_cast<EncodeTiled>(is_there ? function : nullptr);
    }();
    return encode;
}

/* Describes elements of a narrow type to the copy engine, in boxes whose vectors lie exchanged (vector_of,
 * warpgroup.cuh): axes of so many elements, the innermost first, in strides of so many bytes from the second
 * on; box: elements of each axis, 64 of the first. cudaErrorNotSupported: it cannot be. */
template <int Rank>
cudaError_t make_map(CUtensorMap *map, ElementType element, void *data, const cuuint64_t (&axes)[Rank],
                     const cuuint64_t (&strides)[Rank - 1], const cuuint32_t (&box)[Rank])
{
    const EncodeTiled encode = map_encoder();
    cuuint32_t steps[Rank];
    for (cuuint32_t &step : steps)
        step = 1;
    if (!encode)
        return cudaErrorNotSupported;
    return encode(map,
                  element == ELEMENT_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                  Rank, data, axes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorNotSupported;
}

/* Describes a narrow tensor [samples, rows, width], in boxes of box_rows rows of 64 elements. */
inline cudaError_t make_map(CUtensorMap *map, const DeviceTensor *tensor, int64_t samples, int64_t rows,
                            unsigned box_rows)
{
    const cuuint64_t pitch = (cuuint64_t)tensor->pitch * sizeof(uint16_t);
    return make_map<3>(map, tensor->element, tensor->data,
                       {(cuuint64_t)tensor->pitch, (cuuint64_t)rows, (cuuint64_t)samples},
                       {pitch, pitch * (cuuint64_t)rows}, {64, box_rows, 1});
}

} // namespace fshard

#endif
