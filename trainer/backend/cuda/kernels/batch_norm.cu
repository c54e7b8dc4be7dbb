/* batch_norm.cu - sums over the rows of a [rows, channels] matrix, and batch norm, which consists of such
 * sums and maps.
 *
 * A sum takes two launches (rows.cuh): each block writes a partial sum for its channels; then the partial
 * sums are joined in float64, and the same launch does what is to be done with the result. For small images
 * the sums and what follows are one launch (rows_whole.cuh), on cards that hold its blocks at once. No
 * atomics: the same input gives the same bits, on any such card.
 *
 * Bytes moved for large images, in tensors of x's size. Forward: the statistics read 1; apply reads x (and
 * the addend) and writes y, 2 or 3. Backward: the sums read dy and x, 2; dx reads them again and is written,
 * 3. With an addend the sums read dy, x and y and write g, 4 (5 if dy has two parts, 4 1/4 if the second has
 * every second row and column alone), and dx needs only g and x, 3. In 16 bits the norm leaves a bit for each
 * value of y, which the sums read in place of y: 3 and 1/16.
 * For small images nothing that stays in shared memory is read twice. Where the statistics are of an
 * eighth of the rows, they read an eighth of x; and dx of the other rows is written where the sums are made,
 * so that these rows are read once: 3 and 3/8 in place of 5, and with an addend 5 and 3/8 in place of 7. */
#include "trainer/backend/cuda/kernels/batch_norm_operands.cuh"
#include "trainer/backend/cuda/kernels/batch_norm_whole.cuh"

using namespace fshard;

namespace
{

/* Makes the batch's statistics of the means of x and of its square, f64 [2, pitch]. */
__global__ void statistics_kernel(const double *means, const Moments moments, int pitch, int channels)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= pitch)
        return;
    const bool is_channel = c < channels;
    const double mean = means[c], variance = fmax(means[pitch + c] - mean * mean, 0.0);
    const float inverse = is_channel ? (float)rsqrt(variance + moments.epsilon) : 0;
    moments.set(c, moments.before(c, is_channel), mean, variance, inverse, is_channel);
}

__global__ void running_statistics_kernel(const float *running_mean, const float *running_var, double epsilon,
                                          int pitch, int channels, float *mean, float *inverse_deviation)
{
    const int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (c >= pitch)
        return;
    mean[c] = c < channels ? running_mean[c] : 0;
    inverse_deviation[c] = c < channels ? (float)(1.0 / sqrt((double)running_var[c] + epsilon)) : 0;
}

/* Returns the first rows of x; all where rows is 0. */
DeviceTensor first_rows(const DeviceTensor *x, int64_t rows)
{
    DeviceTensor first = *x;
    if (rows == 0)
        return first;
    first.rank = 2;
    first.shape[0] = first.rows = rows;
    first.shape[1] = device_tensor_channels(x);
    return first;
}

template <OpKind op> using IsOp = std::integral_constant<OpKind, op>;

/* Calls body with the activation as a type: IsOp<OP_RELU> without one, too (Norm.slope). Returns false where
 * it is none that a norm has. */
template <typename Body> bool with_activation(const NormActivation *activation, Body body)
{
#define CASE(KIND, function, narrow)                                                                         \
    case OP_##KIND:                                                                                          \
        return body(IsOp<OP_##KIND>{});
    switch (activation->op) {
        POINTWISE_ACTIVATIONS(CASE)
    case 0:
    case OP_RELU:
        return body(IsOp<OP_RELU>{});
    default:
        return false;
    }
#undef CASE
}

bool is_function(const NormActivation *activation)
{
    return activation->op != 0 && activation->op != OP_RELU;
}

template <typename T, Addend kind, OpKind op, bool HasSums>
Apply<T, kind, op, HasSums> apply_of(const NormTensors *tensors, const NormActivation *activation,
                                     const DeviceTensor *addend, const DeviceTensor *y, const SumsOfX &sums)
{
    Apply<T, kind, op, HasSums> map = {};
    map.norm = norm_of(tensors, activation);
    map.x = data_of<T>(tensors->x);
    map.addend = maybe_data<T>(addend);
    map.addend_pitch = addend ? (int)addend->pitch : 0;
    map.addend_channels = addend ? (int)device_tensor_channels(addend) : 0;
    map.y = data_of<T>(y);
    map.signs = maybe_data<unsigned char>(tensors->signs);
    map.sums = sums;
    return map;
}

template <typename T, Addend kind, OpKind op, bool HasSums>
bool apply(const NormTensors *tensors, const NormActivation *activation, const DeviceTensor *addend,
           const DeviceTensor *y, const SumsOfX &sums, cudaStream_t stream)
{
    run_map<T, 4>(apply_of<T, kind, op, HasSums>(tensors, activation, addend, y, sums), y, stream);
    return true;
}

/* Returns whether a kernel can exchange the sums of x's channels with peers. */
bool peers_fit(const DeviceTensor *x)
{
    return 2 * x->pitch <= PEER_VALUES_MAX;
}

/* Returns false, and does nothing, where peers are given and there is no one launch. */
template <typename T, Addend kind, OpKind op>
bool forward(const NormTensors *tensors, const NormRunning *running, const NormActivation *activation,
             const DeviceTensor *addend, const DeviceTensor *y, void *scratch, cudaStream_t stream)
{
    const MomentsTerm<T> term = {data_of<T>(tensors->x)};
    const auto map = apply_of<T, kind, op, false>(tensors, activation, addend, y, SumsOfX{});
    const Moments moments = moments_of(tensors, running);
    if (running->sampled_rows) {
        const DeviceTensor sampled = first_rows(tensors->x, running->sampled_rows);
        if (running->peers)
            return false;
        sum_rows<T>(term, FinishMoments<T>{data_of<T>(tensors->x), moments}, &sampled, scratch, stream);
        run_map<T, 4>(map, y, stream);
        return true;
    }
    if (running->peers)
        return peers_fit(tensors->x) &&
               run_whole<T>(ForwardPass<T, kind, op, true>{term, map, moments, {*running->peers}}, tensors->x,
                            scratch, stream);
    if (run_whole<T>(ForwardPass<T, kind, op, false>{term, map, moments, {}}, tensors->x, scratch, stream))
        return true;
    sum_rows<T>(term, FinishMoments<T>{data_of<T>(tensors->x), moments}, tensors->x, scratch, stream);
    run_map<T, 4>(map, y, stream);
    return true;
}

/* Returns false, and does nothing, where the activation is none that there is. */
template <typename T, bool HasSums>
bool apply(const NormTensors *tensors, const NormActivation *activation, const DeviceTensor *addend,
           const DeviceTensor *y, const SumsOfX &sums, cudaStream_t stream)
{
    if (!addend)
        return with_activation(activation, [&](auto op) {
            return apply<T, Addend::none, op.value, HasSums>(tensors, activation, addend, y, sums, stream);
        });
    if (is_function(activation))
        return false;
    if (device_tensor_channels(addend) == device_tensor_channels(y))
        return apply<T, Addend::like_x, OP_RELU, HasSums>(tensors, activation, addend, y, sums, stream);
    return apply<T, Addend::narrower, OP_RELU, HasSums>(tensors, activation, addend, y, sums, stream);
}

template <typename T, Gate gate>
Backward<T, gate> backward_map(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm)
{
    Backward<T, gate> map = {};
    map.norm = norm;
    if (gradient->g)
        map.norm.slope = 1; /* g has passed the activation */
    map.dy = data_of<T>(gradient->g ? gradient->g : gradient->dy);
    map.x = data_of<T>(tensors->x);
    map.y = maybe_data<T>(gradient->y);
    map.dweight = data_of<float>(gradient->dweight);
    map.dbias = data_of<float>(gradient->dbias);
    const int64_t rows = gradient->sampled_rows ? gradient->sampled_rows : device_tensor_rows(tensors->x);
    map.inverse_rows = gradient->batch_statistics ? 1.0 / (double)rows : 0;
    map.dx = maybe_data<T>(gradient->dx);
    return map;
}

template <typename Term, typename T>
Term backward_term(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm)
{
    Term term = {};
    term.norm = norm;
    term.dy = data_of<T>(gradient->dy);
    term.dy2 = maybe_data<T>(gradient->dy2);
    term.dy2_pitch = gradient->dy2 ? (int)gradient->dy2->pitch : 0;
    term.channels = (int)device_tensor_channels(tensors->x);
    term.x = data_of<T>(tensors->x);
    term.y = maybe_data<T>(gradient->y);
    term.signs = maybe_data<unsigned>(tensors->signs);
    term.g = maybe_data<T>(gradient->g);
    term.dx = maybe_data<T>(gradient->dx);
    term.dx_from = gradient->sampled_rows * tensors->x->pitch;
    if constexpr (std::is_same_v<decltype(term.places), StridedRows>)
        term.places = strided_rows(tensors->x);
    return term;
}

FinishBackward finish_of(const NormGradient *gradient, const Norm &norm)
{
    return {norm.inverse_deviation, data_of<float>(gradient->dweight), data_of<float>(gradient->dbias),
            maybe_data<float>(gradient->zero)};
}

template <typename Pass, typename T>
Pass backward_pass(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm)
{
    Pass pass = {};
    pass.term = backward_term<decltype(pass.term), T>(gradient, tensors, norm);
    pass.map = backward_map<T, Pass::map_gate>(gradient, tensors, norm);
    pass.finish_first = finish_of(gradient, norm);
    return pass;
}

/* The same where the statistics are of the first rows: the sums, with dx of the others, and dx of these. */
template <typename T, Gate gate, OpKind op, Second second, bool Stores>
void sampled_backward(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm,
                      void *scratch, cudaStream_t stream)
{
    using Term = BackwardTerm<T, gate, op, second, Stores, true>;
    const DeviceTensor sampled = first_rows(tensors->x, gradient->sampled_rows);
    if (gradient->part != NORM_GRADIENT_X)
        sum_rows<T>(backward_term<Term, T>(gradient, tensors, norm), finish_of(gradient, norm), tensors->x,
                    scratch, stream);
    if (gradient->part != NORM_GRADIENT_SUMS)
        run_map<T, 4>(backward_map < T, Stores ? Gate::x : gate > (gradient, tensors, norm), &sampled,
                      stream);
}

/* Returns as forward does. */
template <typename T, Gate gate, OpKind op, Second second, bool Stores>
bool backward(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm, void *scratch,
              cudaStream_t stream)
{
    if (gradient->sampled_rows && gradient->dx) {
        if (!gradient->peers)
            sampled_backward<T, gate, op, second, Stores>(gradient, tensors, norm, scratch, stream);
        return !gradient->peers;
    }
    if (gradient->peers) {
        using Synced = BackwardPass<T, gate, op, second, Stores, true>;
        Synced synced = backward_pass<Synced, T>(gradient, tensors, norm);
        synced.peers = {*gradient->peers};
        return gradient->dx && peers_fit(tensors->x) && run_whole<T>(synced, tensors->x, scratch, stream);
    }
    using Pass = BackwardPass<T, gate, op, second, Stores, false>;
    const Pass pass = backward_pass<Pass, T>(gradient, tensors, norm);
    const NormGradientPart part = gradient->part;
    if (part == NORM_GRADIENT_ALL && gradient->dx && run_whole<T>(pass, tensors->x, scratch, stream))
        return true;
    if (part != NORM_GRADIENT_X)
        sum_rows<T>(pass.term, pass.finish_first, tensors->x, scratch, stream);
    if (part != NORM_GRADIENT_SUMS && gradient->dx)
        run_map<T, 4>(pass.map, tensors->x, stream);
    return true;
}

/* Returns whether a norm with this addend can leave signs, or is to leave none. */
bool leaves_signs(const NormTensors *tensors, const DeviceTensor *addend)
{
    return !tensors->signs || (signs_fit(tensors) && addend &&
                               device_tensor_channels(addend) == device_tensor_channels(tensors->x));
}

/* Returns whether the second part of dy has more channels than x. */
bool is_wider(const NormGradient *gradient, const NormTensors *tensors)
{
    return gradient->dy2 && device_tensor_channels(gradient->dy2) != device_tensor_channels(tensors->x);
}

/* The same where dy2 has every second row and column of x. Returns false, too, where it does not fit. */
template <typename T, Gate gate>
bool strided_backward(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm,
                      void *scratch, cudaStream_t stream)
{
    if constexpr (sizeof(T) == 2)
        if (strided_fits(gradient->dy2, tensors->x))
            return backward<T, gate, OP_RELU, Second::strided, true>(gradient, tensors, norm, scratch,
                                                                     stream);
    return false;
}

template <typename T, Gate gate>
bool backward(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm, void *scratch,
              cudaStream_t stream)
{
    if (is_strided(gradient->dy2, tensors->x))
        return strided_backward<T, gate>(gradient, tensors, norm, scratch, stream);
    if (is_wider(gradient, tensors))
        return backward<T, gate, OP_RELU, Second::wider, true>(gradient, tensors, norm, scratch, stream);
    if (gradient->dy2)
        return backward<T, gate, OP_RELU, Second::like_x, true>(gradient, tensors, norm, scratch, stream);
    if (gradient->g)
        return backward<T, gate, OP_RELU, Second::none, true>(gradient, tensors, norm, scratch, stream);
    return backward<T, gate, OP_RELU, Second::none, false>(gradient, tensors, norm, scratch, stream);
}

/* The same with the signs of a narrow result in place of it. */
template <typename T>
bool signs_backward(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm, void *scratch,
                    cudaStream_t stream)
{
    if constexpr (sizeof(T) == 2) {
        if (!signs_fit(tensors) || !gradient->g || is_wider(gradient, tensors))
            return false;
        if (is_strided(gradient->dy2, tensors->x))
            return strided_backward<T, Gate::signs>(gradient, tensors, norm, scratch, stream);
        if (gradient->dy2)
            return backward<T, Gate::signs, OP_RELU, Second::like_x, true>(gradient, tensors, norm, scratch,
                                                                           stream);
        return backward<T, Gate::signs, OP_RELU, Second::none, true>(gradient, tensors, norm, scratch,
                                                                     stream);
    }
    return false;
}

/* The same through a function of one value. Returns false, too, for operands that graph_fuse gives none. */
template <typename T, OpKind op>
bool function_backward(const NormGradient *gradient, const NormTensors *tensors, const Norm &norm,
                       void *scratch, cudaStream_t stream)
{
    if (!gradient->g || gradient->y || is_wider(gradient, tensors) || is_strided(gradient->dy2, tensors->x))
        return false;
    if (gradient->dy2)
        return backward<T, Gate::x, op, Second::like_x, true>(gradient, tensors, norm, scratch, stream);
    return backward<T, Gate::x, op, Second::none, true>(gradient, tensors, norm, scratch, stream);
}

} // namespace

extern "C" uint64_t kernel_column_scratch_bytes(const DeviceTensor *x)
{
    const int most_resident = 4;
    int width = x->element == ELEMENT_F32 ? vector_width<float> : vector_width<__half>;
    if (x->pitch % width)
        width = 1;
    /* deal_whole has fewer blocks: at most as many columns of at most as many blocks, one on each
     * multiprocessor */
    return 2 * (uint64_t)x->pitch * deal_sums(x, width, most_resident * multiprocessors, 1).blocks_y *
           sizeof(float);
}

extern "C" cudaError_t kernel_column_sum(const DeviceTensor *x, const DeviceTensor *sum, void *scratch,
                                         cudaStream_t stream)
{
    if (!all_f32({sum}))
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        sum_rows<T>(SumTerm<T>{data_of<T>(x)}, FinishSum{data_of<float>(sum)}, x, scratch, stream);
    });
}

extern "C" cudaError_t kernel_channel_sums(const DeviceTensor *x, const DeviceTensor *sums, void *scratch,
                                           cudaStream_t stream)
{
    if (!all_f32({sums}) || sums->pitch < x->pitch)
        return cudaErrorNotSupported;
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        FinishChannelSums<T> finish = {};
        finish.x = data_of<T>(x);
        finish.rows = (double)device_tensor_rows(x);
        finish.sum = data_of<float>(sums);
        finish.squares = finish.sum + sums->pitch;
        sum_rows<T>(MomentsTerm<T>{data_of<T>(x)}, finish, x, scratch, stream);
    });
}

extern "C" cudaError_t kernel_add_bias(const DeviceTensor *y, const DeviceTensor *bias, float slope,
                                       cudaStream_t stream)
{
    if (!all_f32({bias}))
        return cudaErrorNotSupported;
    return with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        run_map<T, 4>(AddBias<T>{data_of<T>(y), data_of<float>(bias), slope}, y, stream);
    });
}

extern "C" cudaError_t kernel_batch_norm_running(const NormTensors *tensors, const NormRunning *running,
                                                 cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->mean, tensors->inverse_deviation, running->mean, running->var}))
        return cudaErrorNotSupported;
    running_statistics_kernel<<<blocks_for(x->pitch), block_threads, 0, stream>>>(
        data_of<float>(running->mean), data_of<float>(running->var), running->epsilon, (int)x->pitch,
        (int)device_tensor_channels(x), data_of<float>(tensors->mean),
        data_of<float>(tensors->inverse_deviation));
    return cudaGetLastError();
}

extern "C" bool kernel_batch_norm_is_whole(const DeviceTensor *x)
{
    bool whole = false;
    const cudaError_t known = with_storage(x, [&](auto zero) {
        Deal d = {};
        whole = is_whole<decltype(zero)>(x, &d);
    });
    return known == cudaSuccess && whole;
}

extern "C" cudaError_t kernel_batch_norm_forward(const NormTensors *tensors, const NormRunning *running,
                                                 const NormActivation *activation, const DeviceTensor *addend,
                                                 const DeviceTensor *y, void *scratch, cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation, running->mean,
                  running->var, running->bias}) ||
        !leaves_signs(tensors, addend))
        return cudaErrorNotSupported;
    bool done = true;
    const cudaError_t code = with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        if (!addend)
            done = with_activation(activation, [&](auto op) {
                return forward<T, Addend::none, op.value>(tensors, running, activation, addend, y, scratch,
                                                          stream);
            });
        else if (is_function(activation))
            done = false;
        else if (device_tensor_channels(addend) == device_tensor_channels(y))
            done =
                forward<T, Addend::like_x, OP_RELU>(tensors, running, activation, addend, y, scratch, stream);
        else
            done = forward<T, Addend::narrower, OP_RELU>(tensors, running, activation, addend, y, scratch,
                                                         stream);
    });
    return done ? code : cudaErrorNotSupported;
}

extern "C" cudaError_t kernel_batch_norm_apply(const NormTensors *tensors, const NormActivation *activation,
                                               const DeviceTensor *addend, const DeviceTensor *y,
                                               cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation}) ||
        !leaves_signs(tensors, addend))
        return cudaErrorNotSupported;
    bool done = true;
    const cudaError_t code = with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        done = apply<T, false>(tensors, activation, addend, y, SumsOfX{}, stream);
    });
    return done ? code : cudaErrorNotSupported;
}

extern "C" cudaError_t kernel_batch_norm_apply_sums(const NormTensors *tensors, const NormRunning *running,
                                                    const DeviceTensor *sums,
                                                    const NormActivation *activation,
                                                    const DeviceTensor *addend, const DeviceTensor *y,
                                                    cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation, running->mean,
                  running->var, running->bias, sums}) ||
        sums->pitch < x->pitch || !leaves_signs(tensors, addend))
        return cudaErrorNotSupported;
    const SumsOfX known = sums_of_x(tensors, running, sums);
    bool done = true;
    const cudaError_t code = with_storage(y, [&](auto zero) {
        using T = decltype(zero);
        done = apply<T, true>(tensors, activation, addend, y, known, stream);
    });
    return done ? code : cudaErrorNotSupported;
}

extern "C" cudaError_t kernel_batch_norm_means(const DeviceTensor *x, int64_t sampled_rows, double *means,
                                               void *scratch, cudaStream_t stream)
{
    const DeviceTensor sampled = first_rows(x, sampled_rows);
    return with_storage(x, [&](auto zero) {
        using T = decltype(zero);
        const FinishMeans<T> finish = {data_of<T>(x), 1 / (double)device_tensor_rows(&sampled), means,
                                       means + x->pitch};
        sum_rows<T>(MomentsTerm<T>{data_of<T>(x)}, finish, &sampled, scratch, stream);
    });
}

extern "C" cudaError_t kernel_batch_norm_statistics(const NormTensors *tensors, const NormRunning *running,
                                                    const double *means, cudaStream_t stream)
{
    const DeviceTensor *x = tensors->x;
    if (!all_f32({tensors->mean, tensors->inverse_deviation, running->mean, running->var, running->bias}))
        return cudaErrorNotSupported;
    statistics_kernel<<<blocks_for(x->pitch), block_threads, 0, stream>>>(
        means, moments_of(tensors, running), (int)x->pitch, (int)device_tensor_channels(x));
    return cudaGetLastError();
}

extern "C" cudaError_t kernel_batch_norm_backward(const NormGradient *gradient, const NormTensors *tensors,
                                                  const NormActivation *activation, void *scratch,
                                                  cudaStream_t stream)
{
    if (!all_f32({tensors->weight, tensors->bias, tensors->mean, tensors->inverse_deviation,
                  gradient->dweight, gradient->dbias, gradient->zero}) ||
        (gradient->dy2 && !gradient->g))
        return cudaErrorNotSupported;
    const Norm norm = norm_of(tensors, activation);
    bool done = true;
    const cudaError_t code = with_storage(gradient->dy, [&](auto zero) {
        using T = decltype(zero);
        if (is_function(activation))
            done = with_activation(activation, [&](auto op) {
                return function_backward<T, op.value>(gradient, tensors, norm, scratch, stream);
            });
        else if (tensors->signs && activation->op == OP_RELU)
            done = signs_backward<T>(gradient, tensors, norm, scratch, stream);
        else if (gradient->y && activation->op == OP_RELU)
            done = backward<T, Gate::y>(gradient, tensors, norm, scratch, stream);
        else
            done = backward<T, Gate::x>(gradient, tensors, norm, scratch, stream);
    });
    return done ? code : cudaErrorNotSupported;
}
