/* matrix_units.cuh - the instructions of the matrix units, on registers of two narrow elements. Of a warp's
 * lanes, group = lane / 4 and quarter = lane % 4. Source: PTX ISA, "Matrix multiply-accumulate operation
 * using mma instruction", "movmatrix". */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_MATRIX_UNITS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_MATRIX_UNITS_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* sums[16][8] += a[16][16] * b[16][8]. A lane holds, of a: rows group, group + 8 (twice), columns 2 * quarter
 * and the next one, the last two registers 8 further; of b: the same columns as rows, column group; of sums:
 * rows group, group + 8, columns 2 * quarter and the next one. */
__device__ inline void multiply_add(__half, float (&sums)[4], const unsigned (&a)[4], const uint2 &b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

__device__ inline void multiply_add(__nv_bfloat16, float (&sums)[4], const unsigned (&a)[4], const uint2 &b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
}

/* Of an 8 x 8 matrix whose row `group` the lane holds at columns 2 * quarter and the next one: column `group`
 * at those rows. */
__device__ inline unsigned transpose(unsigned two)
{
    unsigned turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(two));
    return turned;
}

} // namespace fshard

#endif
