/* optimizer.cu - the update of all parameters in one launch. Parameters are cut into pieces of at most
 * SGD_PIECE elements, a block for each, listed in a table in device memory: small tensors (biases, norms)
 * cost a block, not a launch.
 *
 * Bytes: parameter, gradient and momentum read, parameter and momentum written: 20 for each float32
 * parameter. */
#include "trainer/backend/cuda/kernels_common.cuh"

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

/* Pieces start at 16-byte boundaries: tensors do, and SGD_PIECE is a multiple of four. */
__global__ void sgd_kernel(const SgdPiece *pieces, SgdConstants constants, const float *learning_rate)
{
    SgdPiece piece = pieces[blockIdx.x];
    Sgd sgd = {constants, *learning_rate, piece.decays ? constants.weight_decay : 0};
    for (int i = 4 * (int)threadIdx.x; i + 3 < piece.count; i += 4 * block_threads) {
        float parameter[4], gradient[4], momentum[4];
        load(piece.parameter + i, parameter);
        load(piece.gradient + i, gradient);
        load(piece.momentum + i, momentum);
#pragma unroll
        for (int k = 0; k < 4; k++)
            sgd.update(parameter[k], gradient[k], momentum[k]);
        store(piece.parameter + i, parameter);
        store(piece.momentum + i, momentum);
    }
    int tail = piece.count % 4, i = piece.count - tail + (int)threadIdx.x;
    if ((int)threadIdx.x < tail)
        sgd.update(piece.parameter[i], piece.gradient[i], piece.momentum[i]);
}

} // namespace

extern "C" cudaError_t kernel_sgd(const SgdPiece *pieces, int64_t piece_count, const SgdConstants *constants,
                                  const DeviceTensor *learning_rate, cudaStream_t stream)
{
    if (learning_rate->element != ELEMENT_F32)
        return cudaErrorNotSupported;
    sgd_kernel<<<(unsigned)piece_count, block_threads, 0, stream>>>(pieces, *constants,
                                                                    data_of<float>(learning_rate));
    return cudaGetLastError();
}
