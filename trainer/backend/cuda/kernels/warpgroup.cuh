/* warpgroup.cuh - products on Hopper's matrix units: a warp group, four warps, computes them together, while
 * its threads go on. For code of sm_90a alone. Source: PTX ISA, "Asynchronous warpgroup level matrix
 * instructions".
 *
 * The right operand lies in shared memory, as rows of 64 elements, 128 bytes, whose eight vectors of 16 bytes
 * are exchanged (vector_of: the 128-byte swizzle), eight rows to each 1,024 bytes, at a multiple of these,
 * unless rows_descriptor says otherwise; or as blocks of 8 x 8 (blocks_descriptor).
 * The left one lies there too, or in registers: warp w of the group has its rows 16 w to 16 w + 15, as
 * fragments of matrix_units.cuh, and so it has of the sums.
 *
 * Order: products_begin(), multiply_*() any number of times, products_end(), products_wait(). Between begin
 * and the wait for them no register of these products' operands or sums is touched. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_WARPGROUP_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_WARPGROUP_CUH

#include "trainer/backend/cuda/kernels/kernels_common.cuh"

namespace fshard
{

/* Returns whether the card in use runs code of sm_90a. */
inline bool runs_hopper_code()
{
    int device = 0, major = 0, minor = 0;
    const bool known =
        cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
    if (!known)
        (void)cudaGetLastError(); /* or the next launch would be blamed for it */
    return known && major == 9 && minor == 0;
}

constexpr int group_threads = 128;
constexpr int group_rows = 64; /* of a left operand; and the elements of a row of a right one */

/* Returns where eight elements of a row lie. Source: CUTLASS, "Swizzle<3, 4, 3>"; this is how the copy engine
 * lays them out with CU_TENSOR_MAP_SWIZZLE_128B. */
template <typename T> __device__ T *vector_of(T *rows, int row, int vector)
{
    return rows + row * group_rows + (vector ^ row % 8) * 8;
}

/* Describes rows to the matrix units. They may begin anywhere in the pattern of the exchange, for the units
 * exchange by the address that an element has. eight_rows: bytes from each eight of them to the next;
 * columns_64: bytes from 64 elements to the next 64, of operands that are taken by rows (b_by_rows). Source:
 * PTX ISA, "Matrix descriptor"; CUTLASS, "Canonical layouts" of GMMA. */
__device__ inline uint64_t rows_descriptor(const void *rows, int eight_rows = 1024, int columns_64 = 16)
{
    constexpr uint64_t swizzle_128 = 1;
    return (shared_address(rows) & 0x3FFFF) >> 4 | (uint64_t)(columns_64 >> 4) << 16 |
           (uint64_t)(eight_rows >> 4) << 32 | swizzle_128 << 62;
}

constexpr int descriptor_bytes = 16; /* that a descriptor counts by */

/* Describes a matrix in blocks of 8 x 8 without an exchange, each 128 bytes in a row, at a multiple of 16
 * bytes: bytes from each block to the next along the products' sums, and along the result. Blocks may
 * overlap. Source: as for rows_descriptor; CUTLASS calls it interleaved. */
__device__ inline uint64_t blocks_descriptor(const void *blocks, int along_sums, int along_result)
{
    return (shared_address(blocks) & 0x3FFFF) >> 4 | (uint64_t)(along_sums >> 4) << 16 |
           (uint64_t)(along_result >> 4) << 32;
}

/* Returns the descriptor of a matrix that begins so many times 16 bytes further on: an addition of 32 bits,
 * for addresses of shared memory do not carry out of theirs. */
__device__ inline uint64_t descriptor_at(uint64_t descriptor, int pieces)
{
    return (descriptor & 0xFFFFFFFF00000000) | ((uint32_t)descriptor + (uint32_t)pieces);
}

/* Returns this thread's warp group in its block, as a number that the compiler knows to be the warp's. */
__device__ inline int group_of_warp()
{
    return __shfl_sync(0xFFFFFFFFU, (int)threadIdx.x / group_threads, 0);
}

/* What is added to a descriptor to go 16 elements along the rows, and 16 rows further. */
constexpr uint64_t columns_16 = 32 >> 4, rows_16 = 16 * 128 >> 4;

__device__ inline void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until all but the last `Open` groups of products are computed. */
template <int Open> __device__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Open) : "memory");
}

/* Keeps the compiler from moving what is done with sums to before the wait that it stands behind. */
template <int Columns> __device__ void products_of(float (&sums)[Columns][4])
{
#pragma unroll
    for (int column = 0; column < Columns; column++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(sums[column][i])::"memory");
}

/* Returns the registers that a launch gives a block of so many threads, one block a processor. */
constexpr int registers_of_block(int threads)
{
    return threads * (65536 / threads / 8 * 8);
}

/* Change the registers of each thread of a warp group: a block's groups have together what its launch gave
 * them. A multiple of 8. Source: PTX ISA, "setmaxnreg". */
template <int Registers> __device__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers> __device__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/* Waits for the other warps of the group, the group-th of its block. */
__device__ inline void group_meet(int group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(group_threads) : "memory");
}

/* Lets matrix units and copy engine see what this thread has written to shared memory; a barrier follows. */
__device__ inline void shared_memory_written()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* The sums of eight columns, and of more, as operands of asm. */
#define SUMS_8(s)   "+f"((s)[0]), "+f"((s)[1]), "+f"((s)[2]), "+f"((s)[3])
#define SUMS_16(s)  SUMS_8((s)[0]), SUMS_8((s)[1])
#define SUMS_32(s)  SUMS_16(s), SUMS_16((s) + 2)
#define SUMS_48(s)  SUMS_32(s), SUMS_16((s) + 4)
#define SUMS_64(s)  SUMS_32(s), SUMS_32((s) + 4)
#define SUMS_80(s)  SUMS_64(s), SUMS_16((s) + 8)
#define SUMS_96(s)  SUMS_64(s), SUMS_32((s) + 8)
#define SUMS_112(s) SUMS_64(s), SUMS_48((s) + 8)
#define SUMS_128(s) SUMS_64(s), SUMS_64((s) + 8)
#define NAMES_16    "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_32    NAMES_16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_48    NAMES_32 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_64    NAMES_48 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_80    NAMES_64 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define NAMES_96    NAMES_80 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_112   NAMES_96 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_128   NAMES_112 ",%56,%57,%58,%59,%60,%61,%62,%63"

/* multiply_shared: computes sums [64][columns] (+)= a [64][16] b, both in shared memory: b as [columns][16],
 * or, b_by_rows, as [16][columns]; a as [64][16], or, a_by_rows, as [16][64]. multiply_own: the same, a in
 * registers. add: 0: what the sums were does not count. N0 to N6: names of the operands behind the sums. */
#define PRODUCTS_OF(TYPE, NAME, COLUMNS, N0, N1, N2, N3, N4, N5, N6)                                         \
    template <int a_by_rows, int b_by_rows>                                                                  \
    __device__ void multiply_shared(TYPE, float(&sums)[COLUMNS / 8][4], uint64_t a, uint64_t b, int add)     \
    {                                                                                                        \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" N2 ", 0;\n"                                           \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME                   \
                     " {" NAMES_##COLUMNS "}, %" N0 ", %" N1 ", p, 1, 1, %" N3 ", %" N4 ";}"                 \
                     : SUMS_##COLUMNS(sums)                                                                  \
                     : "l"(a), "l"(b), "r"(add), "n"(a_by_rows), "n"(b_by_rows));                            \
    }                                                                                                        \
    template <int b_by_rows>                                                                                 \
    __device__ void multiply_own(TYPE, float(&sums)[COLUMNS / 8][4], const unsigned(&a)[4], uint64_t b,      \
                                 int add)                                                                    \
    {                                                                                                        \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" N5 ", 0;\n"                                           \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32." NAME "." NAME                   \
                     " {" NAMES_##COLUMNS "}, {%" N0 ",%" N1 ",%" N2 ",%" N3 "}, %" N4 ", p, 1, 1, %" N6     \
                                          ";}"                                                               \
                     : SUMS_##COLUMNS(sums)                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(b_by_rows));        \
    }
#define PRODUCTS_OF_TYPE(TYPE, NAME)                                                                         \
    PRODUCTS_OF(TYPE, NAME, 16, "8", "9", "10", "11", "12", "13", "14")                                      \
    PRODUCTS_OF(TYPE, NAME, 32, "16", "17", "18", "19", "20", "21", "22")                                    \
    PRODUCTS_OF(TYPE, NAME, 48, "24", "25", "26", "27", "28", "29", "30")                                    \
    PRODUCTS_OF(TYPE, NAME, 64, "32", "33", "34", "35", "36", "37", "38")                                    \
    PRODUCTS_OF(TYPE, NAME, 80, "40", "41", "42", "43", "44", "45", "46")                                    \
    PRODUCTS_OF(TYPE, NAME, 96, "48", "49", "50", "51", "52", "53", "54")                                    \
    PRODUCTS_OF(TYPE, NAME, 112, "56", "57", "58", "59", "60", "61", "62")                                   \
    PRODUCTS_OF(TYPE, NAME, 128, "64", "65", "66", "67", "68", "69", "70")

PRODUCTS_OF_TYPE(__half, "f16")
PRODUCTS_OF_TYPE(__nv_bfloat16, "bf16")

#undef PRODUCTS_OF_TYPE
#undef PRODUCTS_OF
#undef NAMES_16
#undef NAMES_32
#undef NAMES_48
#undef NAMES_64
#undef NAMES_80
#undef NAMES_96
#undef NAMES_112
#undef NAMES_128
#undef SUMS_8
#undef SUMS_16
#undef SUMS_32
#undef SUMS_48
#undef SUMS_64
#undef SUMS_80
#undef SUMS_96
#undef SUMS_112
#undef SUMS_128

} // namespace fshard

#endif
