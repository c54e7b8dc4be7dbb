/* pointwise_gradient.cu - the data gradient of a 1 x 1 convolution, d = dy * weight, whose result stays in
 * registers until the norm in front of the convolution has made g and its sums of it: d is neither written
 * nor read. At the widths of residual networks the memory sets the time, the matrix units do not.
 *
 * A block has 12 warps and a slab of channels of x, whose weights stay in its shared memory. Its warps are
 * teams, each as wide as the slab: a warp has 32 channels. A team walks over tiles of 32 rows, from the last
 * to the first (rows.cuh says why). The tile of dy comes to the team's ring in shared memory by asynchronous
 * copies, in pieces of 64 channels, a few pieces ahead. What else a tile needs (x, dy2, y) a thread loads
 * into registers as soon as it has used that of the tile before, so the loads are under way while the matrix
 * units work. Blocks of neighbouring slabs read the same rows of dy at the same time, all but the first from
 * the L2 cache.
 *
 * The matrix units give a thread two neighbouring columns of each 8. A warp's columns are channels in such an
 * order that a thread has 8 neighbouring channels of a row, 16 bytes of every tensor, and so 4 threads have
 * the 64 bytes of the warp:
 *
 *     columns 2 q and 2 q + 1 of column group j are channels 8 q + 2 j and 8 q + 2 j + 1, q and j in 0..3
 *
 * Shapes alone decide which team has which rows, so the sums have one order on any card. */
#include "trainer/backend/cuda/kernels/async_copy.cuh"
#include "trainer/backend/cuda/kernels/batch_norm_operands.cuh"
#include "trainer/backend/cuda/kernels/kernels_pointwise_gradient.h"
#include "trainer/backend/cuda/kernels/matrix_units.cuh"

using namespace fshard;

namespace
{

constexpr int warps = 12, threads = warps * 32;
constexpr int tile_rows = 32, warp_channels = 32, thread_channels = 8;
constexpr int thread_rows = tile_rows / 8; /* group + 8 u for u below that */
constexpr int piece_channels = 64, piece_row_bytes = 2 * piece_channels,
              piece_bytes = tile_rows * piece_row_bytes;
constexpr int steps = piece_channels / 16; /* of the matrix units, in a piece */
constexpr int weight_bytes_most = 128 << 10;

/* Across: warps that a slab is wide. depth: pieces of a team's ring; the smaller the rings, the more is left
 * for the L1 cache, through which the loads go. */
template <int Across> struct Slab {
    static constexpr int channels = Across * warp_channels, teams = warps / Across;
    static constexpr int team_threads = 32 * Across, depth = Across == 4 ? 5 : 4;
};

template <typename T> struct Job {
    const T *dy, *weight, *dy2, *x, *y;
    const unsigned *signs; /* of y, in place of it */
    bool strided;          /* dy2 is, and these are its rows */
    StridedRows places;
    T *g;
    Norm norm;
    float *partial; /* [streams * teams, 2, pitch] */
    int64_t rows;
    int from; /* channels of dy, and their pitch */
    int pitch, slabs, streams;
};

/* The norm's constants of a slab, in shared memory. */
template <int Channels> struct Constants {
    float mean[Channels], scale[Channels], shift[Channels];
};

template <int Across> int64_t shared_bytes(int64_t from)
{
    using S = Slab<Across>;
    return 2 * from * S::channels + S::teams * S::depth * piece_bytes +
           (int64_t)sizeof(Constants<S::channels>);
}

/* ---- weights ---- */

/* Returns channels 2 word + Odd of two rows. */
template <int Odd, typename T>
__device__ unsigned pair_in(const Raw<T, thread_channels> &row, const Raw<T, thread_channels> &next, int word)
{
    return __byte_perm(row.words[word], next.words[word], Odd ? 0x7632 : 0x5410);
}

/* Brings a slab of the weights to shared memory, as lanes use them: [16 rows][warp][2][lane], with column
 * groups 2 i and 2 i + 1 in entry i of [2]. A thread brings 8 channels of 4 rows at a time. */
template <typename T, int Across> __device__ void stage_weights(const Job<T> &job, int first, uint4 *weights)
{
    const int tasks = job.from / 4 * (Slab<Across>::channels / thread_channels);
#pragma unroll 2
    for (int task = (int)threadIdx.x; task < tasks; task += threads) {
        const int quarter = task % 4, eight = task / 4 % (4 * Across), step = task / (16 * Across);
        const int warp = eight / 4, in_warp = eight % 4;
        const T *from =
            job.weight + (int64_t)(16 * step + 2 * quarter) * job.pitch + first + thread_channels * eight;
        Raw<T, thread_channels> rows[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
            rows[r] = fetch<T, thread_channels>(from + (int64_t)(r / 2 * 8 + r % 2) * job.pitch);
        uint4 *to = weights + (step * Across + warp) * 64 + 8 * in_warp + quarter;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            to[32 * i] =
                make_uint4(pair_in<0>(rows[0], rows[1], 2 * i), pair_in<0>(rows[2], rows[3], 2 * i),
                           pair_in<0>(rows[0], rows[1], 2 * i + 1), pair_in<0>(rows[2], rows[3], 2 * i + 1));
            to[32 * i + 4] =
                make_uint4(pair_in<1>(rows[0], rows[1], 2 * i), pair_in<1>(rows[2], rows[3], 2 * i),
                           pair_in<1>(rows[0], rows[1], 2 * i + 1), pair_in<1>(rows[2], rows[3], 2 * i + 1));
        }
    }
}

template <int Channels>
__device__ void stage_constants(const Norm &norm, int first, Constants<Channels> *constants)
{
    const int i = (int)threadIdx.x, c = first + i;
    if (i >= Channels)
        return;
    constants->mean[i] = norm.mean[c];
    affine_of(norm.weight[c], norm.bias[c], norm.mean[c], norm.inverse_deviation[c], &constants->scale[i],
              &constants->shift[i]);
}

/* ---- pieces of dy ---- */

/* Waits for the threads of a team. */
template <int Threads> __device__ void team_wait(int team)
{
    asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(Threads) : "memory");
}

/* The next piece of dy that is copied. In the ring, 16 bytes i of a row are at i ^ (row % 8), so that the
 * matrices' rows are in different banks. */
struct Next {
    int64_t tile; /* below 0: none is left */
    int channel;
};

/* Starts the copies of a thread of the team. Rows after the last are copies of the last. */
template <typename T, int Across>
__device__ void copy_piece(const Job<T> &job, Next *next, int64_t stride, int thread, unsigned char *to)
{
    constexpr int rows_at_once = Slab<Across>::team_threads / 8;
    const int row = thread / 8, sixteen = thread % 8;
    if (next->tile >= 0) {
#pragma unroll
        for (int n = 0; n < tile_rows; n += rows_at_once) {
            const int64_t wanted = next->tile * tile_rows + n + row;
            const int64_t there = wanted < job.rows ? wanted : job.rows - 1;
            const T *from = job.dy + there * job.from + next->channel + 8 * sixteen;
            __builtin_assume(from != nullptr);
            copy_16(to + (n + row) * piece_row_bytes + 16 * (sixteen ^ row % 8), from);
        }
    }
    copies_close();
    next->channel += piece_channels;
    if (next->channel == job.from) {
        next->channel = 0;
        next->tile -= stride;
    }
}

/* Adds a piece's products: sums[m][j] of rows 16 m.. and column group j. piece: the lane's row in it; turned:
 * the place of the lane's 16 bytes in the row, for the first step. */
template <typename T, int Across>
__device__ void multiply_piece(const unsigned char *piece, int turned, const uint4 *weights,
                               float (&sums)[2][4][4])
{
#pragma unroll
    for (int step = 0; step < steps; step++) {
        unsigned rows[2][4];
        const uint4 low = weights[step * Across * 64], high = weights[step * Across * 64 + 32];
#pragma unroll
        for (int m = 0; m < 2; m++)
            load_matrices(rows[m], piece + m * 16 * piece_row_bytes + (turned ^ 32 * step));
#pragma unroll
        for (int m = 0; m < 2; m++) {
            multiply_add(T{}, sums[m][0], rows[m], make_uint2(low.x, low.y));
            multiply_add(T{}, sums[m][1], rows[m], make_uint2(low.z, low.w));
            multiply_add(T{}, sums[m][2], rows[m], make_uint2(high.x, high.y));
            multiply_add(T{}, sums[m][3], rows[m], make_uint2(high.z, high.w));
        }
    }
}

/* ---- what becomes of d ---- */

/* What a thread reads of a row beside dy. */
template <typename T, Gate gate, Second second> struct Operands {
    Raw<T, thread_channels> x, dy2, y;
    unsigned signs;
    /* i: the element, of this row */
    __device__ void read(const Job<T> &job, int64_t row, int64_t i)
    {
        x = fetch<T, thread_channels>(job.x + i);
        if constexpr (second == Second::like_x)
            dy2 = fetch_last<T, thread_channels>(job.dy2 + i);
        if constexpr (second == Second::strided) {
            const int there = job.places.of(row);
            dy2 = Raw<T, thread_channels>{};
            if (there >= 0)
                dy2 = fetch_last<T, thread_channels>(job.dy2 + i - (row - there) * job.pitch);
        }
        if constexpr (gate == Gate::y)
            y = fetch_last<T, thread_channels>(job.y + i);
        if constexpr (gate == Gate::signs)
            signs = job.signs[i / signs_in_word];
    }
};

/* Makes g of d, writes it to element i, and adds to the sums of g and of g * (x - mean). */
template <typename T, Gate gate, Second second, int Channels>
__device__ void finish_row(const Job<T> &job, const Operands<T, gate, second> &operands,
                           const Constants<Channels> &constants, int channel, int64_t i,
                           float (&gradients)[thread_channels], float (&sum)[2][thread_channels])
{
    float values[thread_channels], more[thread_channels], results[thread_channels], mean[thread_channels];
    unpack(operands.x, values);
    load(constants.mean + channel, mean);
    if constexpr (second != Second::none)
        unpack(operands.dy2, more);
    if constexpr (gate == Gate::y) {
        unpack(operands.y, results);
    } else if constexpr (gate == Gate::signs) {
        results_of(operands.signs, i, results);
    } else {
        const Affine<thread_channels> affine(constants.scale + channel, constants.shift + channel);
#pragma unroll
        for (int k = 0; k < thread_channels; k++)
            results[k] = affine.of(values[k], k);
    }
#pragma unroll
    for (int k = 0; k < thread_channels; k++) {
        if constexpr (second != Second::none)
            gradients[k] += more[k];
        gradients[k] = gated<T, OP_RELU>(gradients[k], results[k], job.norm.slope);
        sum[0][k] += gradients[k];
        sum[1][k] = fmaf(gradients[k], values[k] - mean[k], sum[1][k]);
    }
    put(job.g + i, gradients);
}

/* Writes the team's sums of 8 channels of a row group each to partial [2, pitch]. */
__device__ inline void leave_sums(float (&sum)[2][thread_channels], float *partial, int pitch)
{
#pragma unroll
    for (int s = 0; s < 2; s++) {
#pragma unroll
        for (int k = 0; k < thread_channels; k++)
#pragma unroll
            for (int offset = 4; offset < 32; offset *= 2)
                sum[s][k] += __shfl_xor_sync(0xFFFFFFFFU, sum[s][k], offset);
        if (threadIdx.x % 32 < 4) {
            store<4>(partial + s * pitch, {sum[s][0], sum[s][1], sum[s][2], sum[s][3]});
            store<4>(partial + s * pitch + 4, {sum[s][4], sum[s][5], sum[s][6], sum[s][7]});
        }
    }
}

template <typename T, Gate gate, Second second, int Across>
__global__ void __launch_bounds__(threads, 1) pointwise_gradient_kernel(const __grid_constant__ Job<T> job)
{
    using S = Slab<Across>;
    extern __shared__ __align__(128) unsigned char memory[]; /* weights, rings, constants */
    const int thread = (int)threadIdx.x % S::team_threads, team = (int)threadIdx.x / S::team_threads;
    const int lane = (int)threadIdx.x % 32, group = lane / 4, warp = thread / 32;
    const int slab = (int)blockIdx.x % job.slabs, stream = (int)blockIdx.x / job.slabs;
    const int channel = warp * warp_channels + lane % 4 * thread_channels; /* in the slab */
    uint4 *weights = reinterpret_cast<uint4 *>(memory);
    unsigned char *rings = memory + 2 * job.from * S::channels, *ring = rings + team * S::depth * piece_bytes;
    auto *constants = reinterpret_cast<Constants<S::channels> *>(rings + S::teams * S::depth * piece_bytes);

    const int part = stream * S::teams + team;
    const int64_t stride = (int64_t)job.streams * S::teams;
    const int64_t last = (job.rows - 1) / tile_rows - part; /* the team's first tile */
    Next next = {last, 0};
    for (int slot = 0; slot < S::depth - 1; slot++)
        copy_piece<T, Across>(job, &next, stride, thread, ring + slot * piece_bytes);
    Operands<T, gate, second> operands[thread_rows] = {};
    int64_t row = last * tile_rows + group, i = row * job.pitch + slab * S::channels + channel;
#pragma unroll
    for (int u = 0; u < thread_rows; u++)
        if (last >= 0 && row + 8 * u < job.rows)
            operands[u].read(job, row + 8 * u, i + 8 * u * job.pitch);
    stage_weights<T, Across>(job, slab * S::channels, weights);
    stage_constants(job.norm, slab * S::channels, constants);
    __syncthreads();

    const int matrix = lane / 8, turned = 16 * (matrix / 2 ^ lane % 8);
    const unsigned char *own_row = ring + (matrix % 2 * 8 + lane % 8) * piece_row_bytes;
    float sum[2][thread_channels] = {};
    int slot = 0, free_slot = S::depth - 1;
    for (int64_t tile = last; tile >= 0; tile -= stride) {
        float d[2][4][4] = {};
        const uint4 *own_weights = weights + warp * 64 + lane;
        for (int c = 0; c < job.from; c += piece_channels, own_weights += steps * Across * 64) {
            copies_wait<S::depth - 2>();
            team_wait<S::team_threads>(team); /* the piece is there, and the one before is used */
            copy_piece<T, Across>(job, &next, stride, thread, ring + free_slot * piece_bytes);
            multiply_piece<T, Across>(own_row + slot * piece_bytes, turned, own_weights, d);
            free_slot = slot;
            slot = slot + 1 == S::depth ? 0 : slot + 1;
        }
#pragma unroll
        for (int u = 0; u < thread_rows; u++) {
            float gradients[thread_channels];
#pragma unroll
            for (int k = 0; k < thread_channels; k++)
                gradients[k] = d[u / 2][k / 2][u % 2 * 2 + k % 2];
            if (row + 8 * u < job.rows)
                finish_row(job, operands[u], *constants, channel, i + 8 * u * job.pitch, gradients, sum);
        }
        row -= stride * tile_rows;
        i -= stride * tile_rows * job.pitch;
        /* Not among the rows above: loads share what a warp waits by, so it would wait for the new ones. */
        if (tile < stride)
            break;
#pragma unroll
        for (int u = 0; u < thread_rows; u++)
            operands[u].read(job, row + 8 * u, i + 8 * u * job.pitch);
    }
    leave_sums(sum, job.partial + (int64_t)part * 2 * job.pitch + slab * S::channels + channel, job.pitch);
}

/* ---- launches ---- */

template <int Across> int64_t slabs_of(const DeviceTensor *x)
{
    return x->pitch / Slab<Across>::channels;
}

/* Returns how many blocks share the rows of a slab. */
template <int Across> int64_t streams_of(const DeviceTensor *x)
{
    const int64_t tiles = (device_tensor_rows(x) + tile_rows - 1) / tile_rows,
                  wanted = (tiles + Slab<Across>::teams - 1) / Slab<Across>::teams,
                  most = multiprocessors / slabs_of<Across>(x), streams = wanted < most ? wanted : most;
    return streams > 1 ? streams : 1;
}

template <int Across> uint64_t partial_bytes(const DeviceTensor *x)
{
    return (uint64_t)(streams_of<Across>(x) * Slab<Across>::teams * 2 * x->pitch) * sizeof(float);
}

/* Returns whether slabs of so many warps suit the channels. */
template <int Across> bool is_slab(int64_t from, const DeviceTensor *x)
{
    return x->pitch % Slab<Across>::channels == 0 && 2 * from * Slab<Across>::channels <= weight_bytes_most;
}

bool is_image(const DeviceTensor *tensor, const DeviceTensor *x)
{
    return !tensor || (tensor->element == x->element && tensor->pitch == x->pitch &&
                       device_tensor_channels(tensor) == device_tensor_channels(x) &&
                       device_tensor_rows(tensor) == device_tensor_rows(x));
}

/* Returns false if the card has too little shared memory. */
template <typename T, Gate gate, Second second, int Across>
bool launch(const Job<T> &shape, const DeviceTensor *x, cudaStream_t stream)
{
    const auto kernel = pointwise_gradient_kernel<T, gate, second, Across>;
    const int64_t bytes = shared_bytes<Across>(shape.from);
    Job<T> job = shape;
    job.slabs = (int)slabs_of<Across>(x);
    job.streams = (int)streams_of<Across>(x);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) !=
        cudaSuccess) {
        (void)cudaGetLastError(); /* not that of a later launch */
        return false;
    }
    kernel<<<(unsigned)(job.slabs * job.streams), threads, (size_t)bytes, stream>>>(job);
    return true;
}

template <typename T, Gate gate, int Across>
bool launch(const Job<T> &job, const DeviceTensor *x, cudaStream_t stream)
{
    return !job.dy2      ? launch<T, gate, Second::none, Across>(job, x, stream)
           : job.strided ? launch<T, gate, Second::strided, Across>(job, x, stream)
                         : launch<T, gate, Second::like_x, Across>(job, x, stream);
}

template <typename T, int Across> bool launch(const Job<T> &job, const DeviceTensor *x, cudaStream_t stream)
{
    return job.signs ? launch<T, Gate::signs, Across>(job, x, stream)
           : job.y   ? launch<T, Gate::y, Across>(job, x, stream)
                     : launch<T, Gate::x, Across>(job, x, stream);
}

template <int Across, typename T>
bool run(Job<T> job, const FinishBackward &finish, const DeviceTensor *x, cudaStream_t stream)
{
    if (!launch<T, Across>(job, x, stream))
        return false;
    finish_sums<2>(job.partial, (int)streams_of<Across>(x) * Slab<Across>::teams, x, finish, stream);
    return true;
}

template <typename T>
Job<T> job_of(const DeviceTensor *dy, const DeviceTensor *weight, const NormGradient *gradient,
              const NormTensors *tensors, const NormActivation *activation, void *scratch)
{
    Job<T> job = {};
    job.dy = data_of<T>(dy);
    job.weight = data_of<T>(weight);
    job.dy2 = maybe_data<T>(gradient->dy2);
    job.x = data_of<T>(tensors->x);
    job.y = activation->op == OP_RELU ? maybe_data<T>(gradient->y) : nullptr;
    job.signs = activation->op == OP_RELU ? maybe_data<unsigned>(tensors->signs) : nullptr;
    job.strided = is_strided(gradient->dy2, tensors->x);
    if (job.strided)
        job.places = strided_rows(tensors->x);
    job.g = data_of<T>(gradient->g);
    job.norm = norm_of(tensors, activation);
    job.partial = static_cast<float *>(scratch);
    job.rows = device_tensor_rows(tensors->x);
    job.from = (int)dy->pitch;
    job.pitch = (int)tensors->x->pitch;
    return job;
}

} // namespace

extern "C" bool kernel_pointwise_gradient_fits(const DeviceTensor *dy, const DeviceTensor *weight,
                                               const DeviceTensor *x)
{
    const bool one = weight->rank == 4 && weight->shape[1] == 1 && weight->shape[2] == 1;
    if (!element_is_narrow(x->element) || dy->element != x->element || weight->element != x->element ||
        !one || weight->shape[0] != device_tensor_channels(dy) ||
        device_tensor_channels(weight) != device_tensor_channels(x) || weight->pitch != x->pitch ||
        device_tensor_channels(dy) != dy->pitch || dy->pitch % piece_channels != 0 ||
        device_tensor_rows(dy) != device_tensor_rows(x) || device_tensor_rows(x) < 1)
        return false;
    const void *kernel = (const void *)pointwise_gradient_kernel<__half, Gate::y, Second::like_x, 4>;
    if (is_slab<4>(dy->pitch, x))
        return shared_bytes<4>(dy->pitch) <= shared_bytes_most(kernel);
    return is_slab<2>(dy->pitch, x) && shared_bytes<2>(dy->pitch) <= shared_bytes_most(kernel);
}

extern "C" uint64_t kernel_pointwise_gradient_scratch_bytes(const DeviceTensor *x)
{
    const uint64_t narrow = x->pitch < Slab<2>::channels ? 0 : partial_bytes<2>(x),
                   wide = x->pitch < Slab<4>::channels ? 0 : partial_bytes<4>(x);
    return narrow > wide ? narrow : wide;
}

extern "C" cudaError_t kernel_pointwise_gradient(const DeviceTensor *dy, const DeviceTensor *weight,
                                                 const NormGradient *gradient, const NormTensors *tensors,
                                                 const NormActivation *activation, void *scratch,
                                                 cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!gradient->g || gradient->sampled_rows || gradient->peers ||
        (activation->op != 0 && activation->op != OP_RELU) ||
        !(is_strided(gradient->dy2, x) ? strided_fits(gradient->dy2, x) : is_image(gradient->dy2, x)) ||
        !is_image(gradient->y, x) || !is_image(gradient->g, x) || (tensors->signs && !signs_fit(tensors)) ||
        !all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation,
                  gradient->dweight, gradient->dbias, gradient->zero}) ||
        !kernel_pointwise_gradient_fits(dy, weight, x))
        return cudaErrorNotSupported;
    const FinishBackward finish = {data_of<float>(tensors->inverse_deviation),
                                   data_of<float>(gradient->dweight), data_of<float>(gradient->dbias),
                                   maybe_data<float>(gradient->zero)};
    const auto run_on = [&](auto zero) {
        const auto job = job_of<decltype(zero)>(dy, weight, gradient, tensors, activation, scratch);
        return is_slab<4>(dy->pitch, x) ? run<4>(job, finish, x, stream) : run<2>(job, finish, x, stream);
    };
    const bool done = x->element == ELEMENT_F16 ? run_on(__half{}) : run_on(__nv_bfloat16{});
    return done ? cudaGetLastError() : cudaErrorNotSupported;
}
