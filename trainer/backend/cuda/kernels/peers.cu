/* peers.cu - means of values in memory over the GPUs of one host, in one launch of one block. */
#include "trainer/backend/cuda/kernels/peers.cuh"

using namespace fshard;

namespace
{

constexpr int peer_threads = 1024;

template <typename Value> struct Pieces {
    Value *first, *second;
    int first_count, count; /* count: of both */
    __device__ Value *at(int i) const
    {
        return i < first_count ? first + i : second + (i - first_count);
    }
};

template <typename Value>
__global__ void __launch_bounds__(peer_threads)
    peer_mean_kernel(const PeerBoxes boxes, const Pieces<Value> pieces)
{
    const uint32_t number = peer_number(boxes);
    for (int i = (int)threadIdx.x; i < pieces.count; i += peer_threads) {
        const double own[1] = {(double)*pieces.at(i)};
        peer_send(boxes, number, i, own);
    }
    for (int i = (int)threadIdx.x; i < pieces.count; i += peer_threads) {
        double value[1] = {(double)*pieces.at(i)};
        peer_mean(boxes, number, i, value);
        *pieces.at(i) = (Value)value[0];
    }
    __syncthreads(); /* all threads have read the number */
    if (threadIdx.x == 0)
        *boxes.made = number;
}

template <typename Value>
cudaError_t launch(const PeerBoxes *boxes, const PeerPiece pieces[2], cudaStream_t stream)
{
    const int count = pieces[0].count + pieces[1].count;
    if (count < 1 || count > PEER_VALUES_MAX)
        return cudaErrorInvalidValue;
    const Pieces<Value> both = {static_cast<Value *>(pieces[0].values),
                                static_cast<Value *>(pieces[1].values), pieces[0].count, count};
    peer_mean_kernel<<<1, peer_threads, 0, stream>>>(*boxes, both);
    return cudaGetLastError();
}

} // namespace

extern "C" uint64_t kernel_peer_box_bytes(int ranks)
{
    return (uint64_t)2 * (uint64_t)ranks * PEER_VALUES_MAX * peer_words * sizeof(uint64_t);
}

extern "C" cudaError_t kernel_peer_mean(const PeerBoxes *boxes, const PeerPiece pieces[2], bool is_f64,
                                        cudaStream_t stream)
{
    return is_f64 ? launch<double>(boxes, pieces, stream) : launch<float>(boxes, pieces, stream);
}
