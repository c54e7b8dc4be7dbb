/* peers.cuh - means over the GPUs of one host, inside a kernel: each GPU writes its values into the others'
 * memory and waits for theirs in its own.
 *
 * A value is a float64, and travels in two words of 64 bits, of which one half is the number of the exchange:
 * whoever reads a word with the right number has the value with it. So no fence is needed, and one way over
 * NVLink is all that is waited for (NCCL calls the protocol LL).
 *
 * A kernel is one exchange: it reads the number of the exchange before anything is sent, and counts it in
 * PeerBoxes.made once all of its threads have read that. Two halves of a box are used in turn. A rank writes
 * for exchange n + 2 only after its kernel of n + 1, for which the others sent when their kernels of n had
 * ended: nothing is overwritten before it is read. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_PEERS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_PEERS_CUH

#include "trainer/backend/cuda/kernels/kernels_peers.h"

namespace fshard
{

constexpr int peer_words = 2; /* of a value */

/* Returns the number of the exchange that the kernel makes. */
__device__ inline uint32_t peer_number(const PeerBoxes &boxes)
{
    return *(const volatile uint32_t *)boxes.made + 1;
}

/* Returns where in a box the words from `sender` for value i and those after it lie. */
__device__ inline int64_t peer_place(const PeerBoxes &boxes, uint32_t number, int sender, int i)
{
    const int64_t half = number & 1;
    return ((half * boxes.ranks + sender) * PEER_VALUES_MAX + i) * peer_words;
}

__device__ inline void peer_put(uint64_t *to, uint32_t number, double value)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(value), tag = (uint64_t)number << 32;
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(tag | (uint32_t)bits) : "memory");
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to + 1), "l"(tag | bits >> 32) : "memory");
}

/* Waits for a value of this exchange and returns it. Not in line: see rows_whole.cuh on long code. */
__device__ __noinline__ inline double peer_take(const uint64_t *from, uint32_t number, const int *ends)
{
    constexpr int looks_between = 4096; /* memory of the host is far */
    uint64_t low, high;
#pragma unroll 1
    for (int looks = 1;; looks++) {
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(low) : "l"(from) : "memory");
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(high) : "l"(from + 1) : "memory");
        const bool there = (uint32_t)(low >> 32) == number && (uint32_t)(high >> 32) == number;
        if (there || (looks % looks_between == 0 && *(const volatile int *)ends != 0))
            return __longlong_as_double((long long)(high << 32 | (uint32_t)low));
    }
}

/* Sends Count values, from i on, to all other ranks. */
template <int Count>
__device__ inline void peer_send(const PeerBoxes &boxes, uint32_t number, int i, const double (&own)[Count])
{
    const int64_t place = peer_place(boxes, number, boxes.rank, i);
#pragma unroll 1
    for (int peer = 0; peer < boxes.ranks; peer++)
        if (peer != boxes.rank)
#pragma unroll
            for (int k = 0; k < Count; k++)
                peer_put(boxes.boxes[peer] + place + k * peer_words, number, own[k]);
}

/* Replaces Count values, from i on, by their means over the ranks. */
template <int Count>
__device__ inline void peer_mean(const PeerBoxes &boxes, uint32_t number, int i, double (&values)[Count])
{
    double sums[Count] = {};
#pragma unroll 1
    for (int rank = 0; rank < boxes.ranks; rank++) {
        const uint64_t *from = boxes.boxes[boxes.rank] + peer_place(boxes, number, rank, i);
#pragma unroll
        for (int k = 0; k < Count; k++)
            sums[k] += rank == boxes.rank ? values[k] : peer_take(from + k * peer_words, number, boxes.ends);
    }
#pragma unroll
    for (int k = 0; k < Count; k++)
        values[k] = sums[k] * boxes.share;
}

/* Replaces two values of channel c by their means over the ranks, in a kernel of many blocks: `sends` in one
 * block for each channel. In the block of channel 0 that sends it also counts the exchange: all threads must
 * have read the number. */
__device__ inline void peer_mean_of_channel(const PeerBoxes &boxes, uint32_t number, int c, bool sends,
                                            double (&values)[2])
{
    if (sends)
        peer_send(boxes, number, 2 * c, values);
    if (sends && c == 0)
        *boxes.made = number;
    peer_mean(boxes, number, 2 * c, values);
}

} // namespace fshard

#endif
