/* stem_gradient_warpgroup.cu - multipliers of stem_gradient.cuh that use Hopper's products of warp groups:
 * four warps have all channels and all rows of the kernel. dx comes from registers; the image is read where
 * it lies, windows overlapping, as a matrix without an exchange of vectors: 8 numbers of 8 windows are 128
 * bytes in a row. Source: PTX ISA, "Matrix descriptor"; CUTLASS, "Canonical layouts" of GMMA. */
#include "trainer/backend/cuda/kernels/stem_gradient.cuh"
#include "trainer/backend/cuda/kernels/warpgroup.cuh"

namespace fshard
{
namespace stem_gradient
{
namespace
{

/* Bytes from a window to the next; they overlap. */
constexpr int window_bytes = 2 * sizeof(uint2), image_row_bytes = image_pitch * sizeof(uint2);
constexpr int piece = 16; /* bytes that a descriptor counts by */

/* Describes a row of windows: [windows][numbers], in blocks of 8 x 8; those of the next windows are 8 windows
 * further, those of the next numbers one. */
__device__ uint64_t windows_descriptor(const uint2 *image)
{
    constexpr uint64_t next_windows = 8 * window_bytes / piece, next_numbers = 8 * sizeof(uint16_t) / piece;
    return (shared_address(image) & 0x3FFFF) / piece | next_windows << 16 | next_numbers << 32;
}

/* Keeps the registers of an operand until here. */
__device__ void keep(unsigned (&operand)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+r"(operand[i])::"memory");
}

template <typename T> struct GroupMultiplier {
    static constexpr int threads = group_threads;
    __device__ static void multiply_tile(const Stage &from, float (&sums)[kernel][4][4])
    {
        const int lane = (int)threadIdx.x % 32, matrix = lane / 8, row = lane % 8, m = (int)threadIdx.x / 32;
        /* matrices 0 to 3: pixels 0 and 0, 8 and 8, channels 0 and 8, 0 and 8 */
        const uint4 *gradients = from.dx + (matrix / 2 * 8 + row) * eights + ((2 * m + matrix % 2) ^ row);
        const uint64_t image = windows_descriptor(from.image);
        unsigned dx[2][4] = {};
#pragma unroll 1
        for (int line = 0; line < tile; line += 2)
#pragma unroll
            for (int one = 0; one < 2; one++) {
                products_wait<1>();
                keep(dx[one]);
                load_transposed(dx[one], gradients + (line + one) * tile * eights);
                products_begin();
#pragma unroll
                for (int k = 0; k < kernel; k++)
                    multiply_own<1>(T{}, sums[k], dx[one],
                                    descriptor_at(image, (2 * (line + one) + k) * (image_row_bytes / piece)),
                                    1);
                products_end();
            }
        products_wait<0>();
        keep(dx[0]);
        keep(dx[1]);
    }
    __device__ static void multiply(const Job<T> &job, const Stage *stages)
    {
        float sums[kernel][4][4] = {};
        for_tiles(job, stages, [&](const Stage &stage) { multiply_tile(stage, sums); });
#pragma unroll
        for (int k = 0; k < kernel; k++) {
            products_of(sums[k]);
            leave_sums(job, (int)threadIdx.x / 32, k, sums[k]);
        }
    }
    __device__ static void show()
    {
        shared_memory_written();
    }
    /* Sums are 112 registers. */
    template <Role role> __device__ static void in_role()
    {
        if constexpr (role == MULTIPLIERS)
            registers_take<168>();
        if constexpr (role == MAKERS)
            registers_take<136>();
        if constexpr (role == IMAGERS)
            registers_give<72>();
    }
};

} // namespace

cudaError_t launch_warpgroup(const Job<__half> &job, int blocks, cudaStream_t stream)
{
    return launch<__half, GroupMultiplier<__half>>(job, blocks, stream);
}

cudaError_t launch_warpgroup(const Job<__nv_bfloat16> &job, int blocks, cudaStream_t stream)
{
    return launch<__nv_bfloat16, GroupMultiplier<__nv_bfloat16>>(job, blocks, stream);
}

} // namespace stem_gradient
} // namespace fshard
