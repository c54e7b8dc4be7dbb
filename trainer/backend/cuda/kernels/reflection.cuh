/* reflection.cuh - positions on an axis that is padded by its mirror image; the first and last pixel are the
 * mirrors (PyTorch's "reflect"). The padding is less than the axis. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_REFLECTION_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_REFLECTION_CUH

namespace fshard
{

/* Returns the position on an axis of `count` that position h of the padded axis shows. */
__device__ inline int reflect(int h, int padding, int count)
{
    const int at = abs(h - padding);
    return at < count ? at : 2 * (count - 1) - at;
}

/* Sets positions to those of the padded axis that show position h: itself, and its reflections at either
 * edge. Returns how many. */
__device__ inline int reflections(int h, int padding, int count, int positions[3])
{
    int found = 0;
    positions[found++] = h + padding;
    if (h >= 1 && h <= padding)
        positions[found++] = padding - h;
    if (h <= count - 2 && h >= count - 1 - padding)
        positions[found++] = 2 * (count - 1) - h + padding;
    return found;
}

} // namespace fshard

#endif
