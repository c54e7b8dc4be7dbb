/* divider.cuh - division by a number that a launch knows, as a multiplication (Granlund and Montgomery
 * 1994). */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DIVIDER_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_DIVIDER_CUH

namespace fshard
{

/* Divides numbers below 2^31. */
struct Divider {
    unsigned divisor = 1, factor = 1, shift = 0;
    Divider() = default;
    explicit Divider(int d) : divisor((unsigned)d)
    {
        while ((1ULL << shift) < divisor)
            shift++;
        factor = (unsigned)((((1ULL << shift) - divisor) << 32) / divisor + 1);
    }
    __device__ unsigned quotient(unsigned n) const
    {
        return (__umulhi(n, factor) + n) >> shift;
    }
};

} // namespace fshard

#endif
