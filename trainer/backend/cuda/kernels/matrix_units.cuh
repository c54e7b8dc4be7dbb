/* matrix_units.cuh - instructions of the matrix units (tensor cores), on registers of two narrow elements.
 * For a lane of a warp, group = lane / 4 and quarter = lane % 4. Source: PTX ISA, "Matrix multiply-accumulate
 * operation using mma instruction", "ldmatrix". */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_MATRIX_UNITS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_MATRIX_UNITS_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* Computes sums[16][8] += a[16][16] * b[16][8]. A lane holds, of a: rows group and group + 8 at columns 2 *
 * quarter and the next one, then the same 8 columns further; of b: those columns as rows, at column group; of
 * sums: rows group and group + 8 at columns 2 * quarter and the next one. */
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

/* Loads four 8 x 8 matrices from shared memory: lane 8 i + r names row r of matrix i, 16 bytes at a multiple
 * of 16. Each lane gets, of matrix i in two[i], columns 2 * quarter and the next one of row `group`. */
__device__ inline void load_matrices(unsigned (&two)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(two[0]), "=r"(two[1]), "=r"(two[2]), "=r"(two[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_matrices(unsigned (&two)[4], const void *row)
{
    load_matrices(two, shared_address(row));
}

/* Loads the same matrices transposed: of each, column `group` at rows 2 * quarter and the next one. */
__device__ inline void load_transposed(unsigned (&two)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(two[0]), "=r"(two[1]), "=r"(two[2]), "=r"(two[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_transposed(unsigned (&two)[4], const void *row)
{
    load_transposed(two, shared_address(row));
}

/* Loads two of them, of which lanes 0 to 15 name the rows. */
__device__ inline void load_matrices(unsigned (&two)[2], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(two[0]), "=r"(two[1])
                 : "r"(row)
                 : "memory");
}

__device__ inline void load_transposed(unsigned (&two)[2], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(two[0]), "=r"(two[1])
                 : "r"(row)
                 : "memory");
}

} // namespace fshard

#endif
