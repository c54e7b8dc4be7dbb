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

/* Sums are 112 of a multiplier's. */
constexpr int multiplier_registers = 168, maker_registers = 136, imager_registers = 72;
static_assert(group_threads * multiplier_registers + Roles<group_threads>::makers * maker_registers +
                      imager_threads * imager_registers <=
                  registers_of_block(threads),
              "what the launch gives a block");

/* Keeps the registers of an operand until here. */
__device__ void keep(unsigned (&operand)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+r"(operand[i])::"memory");
}

template <typename T> struct GroupMultiplier {
    static constexpr int multipliers = group_threads;
    __device__ static void multiply_tile(const Stage &from, float (&sums)[kernel][4][4])
    {
        const int lane = (int)threadIdx.x % 32, matrix = lane / 8, row = lane % 8, m = (int)threadIdx.x / 32;
        /* matrices 0 to 3: pixels 0 and 0, 8 and 8, channels 0 and 8, 0 and 8 */
        const uint4 *gradients = from.dx + (matrix / 2 * 8 + row) * eights + ((2 * m + matrix % 2) ^ row);
        const uint64_t image = blocks_descriptor(from.image.pixels, 8 * window_bytes, 8 * (int)sizeof(T));
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
                    multiply_own<1>(
                        T{}, sums[k], dx[one],
                        descriptor_at(image, (2 * (line + one) + k) * (image_row_bytes / descriptor_bytes)),
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
    template <Role role> __device__ static void in_role()
    {
        if constexpr (role == MULTIPLIERS)
            registers_take<multiplier_registers>();
        if constexpr (role == MAKERS)
            registers_take<maker_registers>();
        if constexpr (role == IMAGERS)
            registers_give<imager_registers>();
    }
};

} // namespace

bool has_warpgroups()
{
    return runs_hopper_code();
}

cudaError_t launch_warpgroup(const Job<__half> &job, int blocks, cudaStream_t stream)
{
    return launch<__half, GroupMultiplier<__half>>(job, stages_that_fit(), blocks, stream);
}

cudaError_t launch_warpgroup(const Job<__nv_bfloat16> &job, int blocks, cudaStream_t stream)
{
    return launch<__nv_bfloat16, GroupMultiplier<__nv_bfloat16>>(job, stages_that_fit(), blocks, stream);
}

} // namespace stem_gradient
} // namespace fshard
