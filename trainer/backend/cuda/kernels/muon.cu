/* muon.cu - prepares the steps of Muon for the products that make them orthogonal: what optimizer.cu wrote is
 * divided by its norm, and what pads a matrix to the size of its group becomes 0. 4 bytes for an element. */
#include "trainer/backend/cuda/kernels/optimizer_elements.cuh"

using namespace fshard;

namespace
{

/* Elements that one access reads: a row's pitch is a multiple of it. */
constexpr int width = vector_width<__nv_bfloat16>;

__global__ void __launch_bounds__(block_threads)
    normalize_kernel(const UpdateTable table, const MuonSlab *slabs, char *matrices)
{
    const Control *control = static_cast<const Control *>(table.control);
    if (control->decision.action != UPDATE)
        return;
    const MuonSlab slab = slabs[blockIdx.x];
    const MuonMatrix matrix = table.tensors[slab.tensor].matrix;
    const float factor = (float)trusts_of(table)[slab.tensor];
    __nv_bfloat16 *steps = reinterpret_cast<__nv_bfloat16 *>(matrices + matrix.step_offset_bytes);
    for (int i = width * (int)threadIdx.x; i < slab.count; i += width * block_threads) {
        const unsigned index = (unsigned)slab.first + (unsigned)i, row = index / (unsigned)matrix.pitch,
                       column = index - row * (unsigned)matrix.pitch;
        float x[width];
        load(steps + index, x);
#pragma unroll
        for (int k = 0; k < width; k++) {
            const bool inside = row < (unsigned)matrix.rows && column + k < (unsigned)matrix.columns;
            x[k] = inside ? x[k] * factor : 0; /* what pads may be anything before */
        }
        store(steps + index, x);
    }
}

} // namespace

extern "C" cudaError_t kernel_muon_normalize(const UpdateTable *table, const MuonSlab *slabs,
                                             int64_t slab_count, void *matrices, cudaStream_t stream)
{
    normalize_kernel<<<(unsigned)slab_count, block_threads, 0, stream>>>(*table, slabs,
                                                                         static_cast<char *>(matrices));
    return cudaGetLastError();
}
