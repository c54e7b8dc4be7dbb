/* operations.cu - compiled with --fmad=false: operation_math.h gives the CPU's bytes only if no product and
 * sum are fused. */
#include "trainer/backend/cuda/kernels/kernels_pixels.h"

#include "trainer/backend/pixel_operations.h"

namespace fshard
{

constexpr int operation_threads = 512, operation_blocks = 2; /* of a multiprocessor: 64 registers each */

/* Applies the operations of an image; a block takes one after the other. */
__global__ void __launch_bounds__(operation_threads, operation_blocks) operate(PixelJob job)
{
    __shared__ PixelOperationShared shared;
    const uint64_t image_bytes = (uint64_t)job.width * job.height * job.channels;
    for (uint64_t i = blockIdx.x; i < job.count; i += gridDim.x) {
        const PixelOperations &operations = job.operations[i];
        uint8_t *pixels = job.target + i * image_bytes;
        PixelOperationImage image = {
            pixels,
            job.scratch + blockIdx.x * image_bytes,
            job.width,
            job.height,
            job.channels,
            job.recipes[i].filter != RESAMPLE_BILINEAR,
            {operations.fill[0], operations.fill[1], operations.fill[2], operations.fill[3]}};
        for (uint32_t s = 0; s < operations.count; s++) {
            const PixelOperation step = operations.steps[s];
            for (uint32_t phase = 0; phase < pixel_operation_phases(&step); phase++) {
                pixel_operation_work(&step, phase, &image, &shared, threadIdx.x, blockDim.x);
                pixel_operation_turn(&step, &image);
                __syncthreads();
            }
        }
        pixel_operation_end(&image, pixels, threadIdx.x, blockDim.x);
        __syncthreads(); /* the next image takes the memory beside this one's */
    }
}

} // namespace fshard

using namespace fshard;

uint64_t pixels_operation_images(uint64_t count)
{
    /* as many blocks as run side by side: memory beside the images stays small, and near the cache's size */
    int device = 0, multiprocessors = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return count;
    const uint64_t blocks = (uint64_t)multiprocessors * operation_blocks;
    return count < blocks ? count : blocks;
}

cudaError_t pixels_operate(const PixelJob *job, cudaStream_t stream)
{
    operate<<<(unsigned)job->scratch_images, operation_threads, 0, stream>>>(*job);
    return cudaGetLastError();
}
