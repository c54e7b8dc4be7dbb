/* sam.cu - the perturbation of sharpness-aware minimisation, which a run makes in place of an update, and its
 * end in front of the update of the next one. As in optimizer.cu the device decides: a gradient that is no
 * number moves nothing.
 *
 * Bytes for a parameter (gradient g bytes, narrow copy c): g to measure, 12 + g + c to perturb, 8 + c to put
 * back. */
#include "trainer/backend/cuda/kernels/optimizer_sums.cuh"

using namespace fshard;

namespace
{

/* Measures the gradient of this run alone. */
struct MeasureRun {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 4; /* there are no stores that loads must wait for */
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&sums)[SUM_COUNT])
    {
        float g[Width];
        G::load_from(at, i, g);
        add_squares(sums[OF_GRADIENT], g);
    }
};

struct Perturb {
    static constexpr bool reads_gradient = true;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        float g[Width], w[Width];
        G::load_from(at, i, g);
        load_values(at, i, w);
        store_slot(at, SLOT_UNPERTURBED, i, w);
#pragma unroll
        for (int k = 0; k < Width; k++)
            w[k] += at.decision.factor * g[k];
        store_values(at, i, w);
    }
};

/* Keeps what stays as it is. */
struct Keep {
    static constexpr bool reads_gradient = false;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        float x[Width];
        load_values(at, i, x);
        store_slot(at, SLOT_UNPERTURBED, i, x);
    }
};

struct PutBack {
    static constexpr bool reads_gradient = false;
    static constexpr int vectors_at_once = 1;
    template <int Width, typename G>
    __device__ static void step(const Place &at, int i, double (&)[SUM_COUNT])
    {
        float w[Width];
        load_slot(at, SLOT_UNPERTURBED, i, w);
        store_values(at, i, w);
    }
};

/* Decides, in one thread. square: that of the gradient, times the loss scale. */
__device__ Decision decide(const Launch &launch, double square)
{
    const UpdateNumbers &n = launch.numbers;
    const double scale = n.scale ? (double)*n.scale : 1, norm = sqrt(square) / scale;
    const bool loss_is_number = n.scale || !n.loss || isfinite(*n.loss);
    Decision decision = {};
    *n.updated = 0;
    *n.perturbed = 1;
    *n.gradient_norm = loss_is_number ? (float)norm : NAN;
    if (!loss_is_number || !isfinite(norm))
        return decision;
    decision.action = UPDATE;
    decision.factor = (float)sam_factor(&launch.optimizer, norm, scale);
    return decision;
}

__global__ void __launch_bounds__(block_threads) measure_run_kernel(const __grid_constant__ Launch launch)
{
    const UpdatePiece piece = launch.table.pieces[blockIdx.x];
    const UpdateTensor tensor = launch.table.tensors[piece.tensor];
    const Decision none = {};
    double sums[SUM_COUNT] = {};
    walk<MeasureRun>({launch, none, tensor, piece, 1}, sums);
    leave_sum(launch, OF_GRADIENT, sums[OF_GRADIENT]);
    if (!block_is_last(&launch.control->arrivals))
        return;
    const double square = gradient_square(launch);
    if (threadIdx.x == 0)
        launch.control->decision = decide(launch, square);
}

__global__ void __launch_bounds__(block_threads) perturb_kernel(const __grid_constant__ Launch launch)
{
    const Decision decision = launch.control->decision;
    const UpdatePiece piece = launch.table.pieces[blockIdx.x];
    const UpdateTensor tensor = launch.table.tensors[piece.tensor];
    const Place at = {launch, decision, tensor, piece, 1};
    double none[SUM_COUNT] = {};
    if (tensor.gradient && decision.action == UPDATE)
        walk<Perturb>(at, none);
    else
        walk<Keep>(at, none);
}

__global__ void __launch_bounds__(block_threads) put_back_kernel(const __grid_constant__ Launch launch)
{
    const UpdatePiece piece = launch.table.pieces[blockIdx.x];
    const UpdateTensor tensor = launch.table.tensors[piece.tensor];
    const Decision decision = {};
    double none[SUM_COUNT] = {};
    if (*launch.numbers.perturbed == 0)
        return;
    walk<PutBack>({launch, decision, tensor, piece, 1}, none);
    if (block_is_last(&launch.control->arrivals) && threadIdx.x == 0)
        *launch.numbers.perturbed = 0;
}

Launch launch_of(const UpdateTable *table, const UpdateNumbers *numbers)
{
    Launch launch = {};
    launch.table = *table;
    launch.numbers = *numbers;
    launch.control = static_cast<Control *>(table->control);
    return launch;
}

} // namespace

extern "C" cudaError_t kernel_update_perturb(const Optimizer *optimizer, const UpdateTable *table,
                                             const UpdateNumbers *numbers, void *scratch, cudaStream_t stream)
{
    Launch launch = launch_of(table, numbers);
    launch.optimizer = *optimizer;
    launch.sums = static_cast<double *>(scratch);
    measure_run_kernel<<<(unsigned)table->parameter_pieces, block_threads, 0, stream>>>(launch);
    perturb_kernel<<<(unsigned)table->piece_count, block_threads, 0, stream>>>(launch);
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_update_put_back(const UpdateTable *table, const UpdateNumbers *numbers,
                                              cudaStream_t stream)
{
    const Launch launch = launch_of(table, numbers);
    put_back_kernel<<<(unsigned)table->piece_count, block_threads, 0, stream>>>(launch);
    return cudaGetLastError();
}
