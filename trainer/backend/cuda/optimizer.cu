/* optimizer.cu - the update of all parameters in one launch. Parameters are cut into pieces of at most
 * SGD_PIECE elements, a block for each, listed in a table in device memory: small tensors (biases, norms)
 * cost a block, not a launch.
 *
 * Bytes: parameter, gradient and momentum read, parameter and momentum written: 20 for each float32
 * parameter. The gradient's norm is taken in passing: a sum of squares for each piece, which a last small
 * kernel adds in their order. */
#include "trainer/backend/cuda/kernels_common.cuh"
#include "trainer/backend/cuda/kernels_update.h"

using namespace fshard;

namespace
{

struct Sgd {
    SgdConstants constants;
    float learning_rate, decay;
    __device__ void update(float &parameter, float gradient, float &momentum) const
    {
        gradient += decay * parameter;
        momentum = constants.momentum * momentum + gradient;
        parameter -=
            learning_rate * (constants.nesterov ? gradient + constants.momentum * momentum : momentum);
    }
};

/* The block's sum, in thread 0. */
__device__ double block_sum(double value)
{
    __shared__ double sums[block_threads];
    int thread = (int)threadIdx.x;
    sums[thread] = value;
    __syncthreads();
    for (int half = block_threads / 2; half > 0; half /= 2) {
        if (thread < half)
            sums[thread] += sums[thread + half];
        __syncthreads();
    }
    return sums[0];
}

/* Pieces start at 16-byte boundaries: tensors do, and SGD_PIECE is a multiple of four. */
__global__ void sgd_kernel(const SgdPiece *pieces, SgdConstants constants, const float *learning_rate,
                           const float *loss, double *squares)
{
    if (loss && !isfinite(*loss))
        return;
    SgdPiece piece = pieces[blockIdx.x];
    Sgd sgd = {constants, *learning_rate, piece.decays ? constants.weight_decay : 0};
    double square = 0;
    for (int i = 4 * (int)threadIdx.x; i + 3 < piece.count; i += 4 * block_threads) {
        float parameter[4], gradient[4], momentum[4];
        load(piece.parameter + i, parameter);
        load(piece.gradient + i, gradient);
        load(piece.momentum + i, momentum);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            square += (double)gradient[k] * (double)gradient[k];
            sgd.update(parameter[k], gradient[k], momentum[k]);
        }
        store(piece.parameter + i, parameter);
        store(piece.momentum + i, momentum);
    }
    int tail = piece.count % 4, i = piece.count - tail + (int)threadIdx.x;
    if ((int)threadIdx.x < tail) {
        square += (double)piece.gradient[i] * (double)piece.gradient[i];
        sgd.update(piece.parameter[i], piece.gradient[i], piece.momentum[i]);
    }
    square = block_sum(square);
    if (threadIdx.x == 0)
        squares[blockIdx.x] = square;
}

__global__ void finish_kernel(const double *squares, int64_t piece_count, const float *loss,
                              float *gradient_norm, float *updated, float *step)
{
    if (loss && !isfinite(*loss)) {
        *gradient_norm = NAN;
        *updated = 0;
        return;
    }
    double square = 0;
    for (int64_t i = threadIdx.x; i < piece_count; i += block_threads)
        square += squares[i];
    square = block_sum(square);
    if (threadIdx.x > 0)
        return;
    *gradient_norm = (float)sqrt(square);
    *updated = 1;
    *step += 1;
}

} // namespace

extern "C" uint64_t kernel_sgd_scratch_bytes(int64_t piece_count)
{
    return (uint64_t)piece_count * sizeof(double);
}

extern "C" cudaError_t kernel_sgd(const SgdPiece *pieces, int64_t piece_count, const SgdConstants *constants,
                                  const DeviceTensor *learning_rate, const DeviceTensor *loss,
                                  const SgdResults *results, void *scratch, cudaStream_t stream)
{
    if (learning_rate->element != ELEMENT_F32 || (loss && loss->element != ELEMENT_F32))
        return cudaErrorNotSupported;
    double *squares = static_cast<double *>(scratch);
    const float *loss_value = loss ? data_of<float>(loss) : nullptr;
    sgd_kernel<<<(unsigned)piece_count, block_threads, 0, stream>>>(
        pieces, *constants, data_of<float>(learning_rate), loss_value, squares);
    finish_kernel<<<1, block_threads, 0, stream>>>(
        squares, piece_count, loss_value, data_of<float>(results->gradient_norm),
        data_of<float>(results->updated), data_of<float>(results->step));
    return cudaGetLastError();
}
