/* loss.cu - cross-entropy of classes, softmax and binary. A warp works on each sample, or a block if there
 * are many classes; the last block adds up the samples' losses in a fixed order. Sums are float64, as on the
 * CPU: there are few of them. */
#include <type_traits>

#include "trainer/backend/cuda/kernels/kernels_loss.h"
#include "trainer/backend/cuda/kernels/kernels_reduce.cuh"

using namespace fshard;

namespace
{

constexpr int64_t no_label = -1; /* a padding sample of the last batch */
/* With this many classes or more a block works on each sample. */
constexpr int block_classes = 256;

struct Targets {
    const int64_t *labels, *labels_mixed;
    const float *mix, *weights;
    int64_t samples;
    int classes;
    double smoothing, threshold;
    bool binarizes, sums;
};

/* What the target of a sample consists of. */
struct Sample {
    bool counts, sound;
    int label, other; /* other: -1 if the label has the whole share */
    double share;
};

__device__ Sample sample_of(const Targets &targets, int64_t n)
{
    int64_t label = targets.labels[n], other = targets.labels_mixed ? targets.labels_mixed[n] : no_label;
    double share = targets.mix ? (double)targets.mix[n] : 1;
    bool sound = share >= 0 && share <= 1 && label >= 0 && label < targets.classes &&
                 (share == 1 || (other >= 0 && other < targets.classes));
    return {label != no_label, sound, (int)label, share == 1 ? -1 : (int)other, share};
}

__device__ double target_at(const Targets &targets, const Sample &sample, int k)
{
    double target = k == sample.label ? sample.share : 0;
    if (k == sample.other)
        target += 1 - sample.share;
    target = target * (1 - targets.smoothing) + targets.smoothing / targets.classes;
    return !targets.binarizes ? target : target > targets.threshold ? 1 : 0;
}

__device__ double weight_of(const Targets &targets, int k)
{
    return targets.weights ? (double)targets.weights[k] : 1;
}

/* Returns the weight of a sound sample: that of its labels, in their shares. */
__device__ double weight_of_labels(const Targets &targets, const Sample &sample)
{
    if (!targets.weights)
        return 1;
    const double of_label = sample.share * weight_of(targets, sample.label);
    return sample.other < 0 ? of_label : of_label + (1 - sample.share) * weight_of(targets, sample.other);
}

/* Returns the sum of target times weight over the classes; 1 without weights. weight_sum: of all classes. */
__device__ double weight_of_target(const Targets &targets, const Sample &sample, double weight_sum)
{
    return targets.weights ? (1 - targets.smoothing) * weight_of_labels(targets, sample) +
                                 targets.smoothing / targets.classes * weight_sum
                           : 1;
}

template <int Threads, typename T> __device__ T row_sum(T value)
{
    return Threads == 32 ? warp_sum(value) : block_sum(value);
}

template <int Threads, typename T>
__device__ double softmax_row(const Targets &targets, const Sample &sample, const T *scores, float *p)
{
    const auto x = [scores](int k) { return (float)scores[k]; };
    const int lane = (int)threadIdx.x % Threads;
    float greatest = -INFINITY;
    for (int k = lane; k < targets.classes; k += Threads)
        greatest = fmaxf(greatest, x(k));
    greatest = Threads == 32 ? warp_max(greatest) : block_max(greatest);
    double sum = 0, sum_x = 0, weight_sum = 0;
    for (int k = lane; k < targets.classes; k += Threads) {
        const double weight = weight_of(targets, k);
        sum += (double)expf(x(k) - greatest);
        sum_x += weight * (double)(x(k) - greatest);
        weight_sum += weight;
    }
    sum = row_sum<Threads>(sum);
    sum_x = row_sum<Threads>(sum_x);
    if (targets.weights)
        weight_sum = row_sum<Threads>(weight_sum);
    const double inverse = 1 / sum;
    for (int k = lane; k < targets.classes; k += Threads)
        p[k] = (float)((double)expf(x(k) - greatest) * inverse);
    if (lane > 0 || !sample.counts)
        return 0;
    if (!sample.sound)
        return NAN;
    double of_labels = sample.share * weight_of(targets, sample.label) * (double)(x(sample.label) - greatest);
    if (sample.other >= 0)
        of_labels +=
            (1 - sample.share) * weight_of(targets, sample.other) * (double)(x(sample.other) - greatest);
    return weight_of_target(targets, sample, weight_sum) * log(sum) - (1 - targets.smoothing) * of_labels -
           targets.smoothing / targets.classes * sum_x;
}

/* Computes probabilities and loss of a row: max(x, 0) - x t + log(1 + exp(-|x|)), which overflows for no
 * x. */
template <int Threads, typename T>
__device__ double binary_row(const Targets &targets, const Sample &sample, const T *scores, float *p)
{
    const auto x = [scores](int k) { return (float)scores[k]; };
    const int lane = (int)threadIdx.x % Threads;
    double sum = 0;
    for (int k = lane; k < targets.classes; k += Threads) {
        const float small = expf(-fabsf(x(k)));
        p[k] = (x(k) < 0 ? small : 1) / (1 + small);
        sum += weight_of(targets, k) * ((double)(x(k) < 0 ? 0 : x(k)) -
                                        (double)x(k) * target_at(targets, sample, k) + (double)log1pf(small));
    }
    sum = row_sum<Threads>(sum);
    return !sample.counts ? 0 : sample.sound ? sum : (double)NAN;
}

/* Returns what divides the sum over the classes of a sample. */
template <bool Binary> __device__ int terms_of(const Targets &targets)
{
    return Binary && !targets.sums ? targets.classes : 1;
}

/* Returns how many samples count, of the softmax their weights, in every thread of the block. */
template <bool Binary> __device__ double samples_that_count(const Targets &targets)
{
    double count = 0;
    for (int64_t n = threadIdx.x; n < targets.samples; n += block_threads) {
        if (targets.labels[n] == no_label)
            continue;
        if (Binary || !targets.weights) {
            count += 1;
            continue;
        }
        const Sample sample = sample_of(targets, n);
        count += sample.sound ? weight_of_labels(targets, sample) : 1;
    }
    return block_sum(count);
}

/* Returns the sum of the weights of all classes, in every thread of the block. */
__device__ double sum_weights(const Targets &targets)
{
    double sum = 0;
    for (int k = (int)threadIdx.x; k < targets.classes; k += block_threads)
        sum += weight_of(targets, k);
    return block_sum(sum);
}

/* pitch: elements of a row of the logits. */
template <int Threads, bool Binary, typename T>
__global__ void class_loss_kernel(Targets targets, const T *logits, int pitch, float *probabilities,
                                  double *sample_losses, unsigned *arrivals, float *loss)
{
    const int64_t n = ((int64_t)blockIdx.x * block_threads + threadIdx.x) / Threads;
    if (n < targets.samples) { /* true for all threads of a row, or for none */
        const Sample sample = sample_of(targets, n);
        const T *x = logits + n * pitch;
        float *p = probabilities + n * targets.classes;
        const double of_sample =
            Binary ? binary_row<Threads>(targets, sample, x, p) : softmax_row<Threads>(targets, sample, x, p);
        if (threadIdx.x % Threads == 0)
            sample_losses[n] = of_sample;
    }
    if (!block_is_last(arrivals))
        return;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < targets.samples; i += block_threads)
        sum += __ldcg(&sample_losses[i]);
    sum = block_sum(sum);
    const double terms = samples_that_count<Binary>(targets) * terms_of<Binary>(targets);
    if (threadIdx.x == 0)
        *loss = terms > 0 ? (float)(sum / terms) : 0;
}

/* pitch: elements of a row of dlogits, of which those behind the classes are 0. */
template <int Threads, bool Binary, typename T>
__global__ void class_loss_backward_kernel(Targets targets, const float *dloss, const float *probabilities,
                                           T *dlogits, int pitch)
{
    const double terms = samples_that_count<Binary>(targets) * terms_of<Binary>(targets);
    const double weight_sum = targets.weights && !Binary ? sum_weights(targets) : 0;
    const double factor = terms > 0 ? (double)*dloss / terms : 0;
    const int64_t n = ((int64_t)blockIdx.x * block_threads + threadIdx.x) / Threads;
    if (n >= targets.samples)
        return;
    const Sample sample = sample_of(targets, n);
    const float *p = probabilities + n * targets.classes;
    T *dx = dlogits + n * pitch;
    const double of_sample = sample.sound && !Binary ? weight_of_target(targets, sample, weight_sum) : 1;
    for (int k = (int)threadIdx.x % Threads; k < pitch; k += Threads) {
        if (k >= targets.classes) {
            dx[k] = (T)0.0F;
            continue;
        }
        const double weight = weight_of(targets, k), of_p = Binary ? weight : of_sample;
        const float gradient =
            !sample.counts ? 0 /* a sample that does not count may hold anything, NaN too */
            : sample.sound ? (float)(factor * (of_p * (double)p[k] - weight * target_at(targets, sample, k)))
                           : NAN;
        dx[k] = (T)gradient;
    }
}

bool is_labels(const DeviceTensor *tensor)
{
    return !tensor || tensor->element == ELEMENT_I64;
}

bool are_sound(const ClassTargets *targets)
{
    return is_labels(targets->labels) && is_labels(targets->labels_mixed) && is_f32(targets->mix) &&
           is_f32(targets->weights);
}

Targets targets_of(const ClassTargets *targets, const DeviceTensor *scores)
{
    return {data_of<int64_t>(targets->labels),
            targets->labels_mixed ? data_of<int64_t>(targets->labels_mixed) : nullptr,
            targets->mix ? data_of<float>(targets->mix) : nullptr,
            targets->weights ? data_of<float>(targets->weights) : nullptr,
            scores->shape[0],
            (int)scores->shape[1],
            targets->smoothing,
            targets->threshold,
            targets->binarizes,
            targets->sums};
}

/* Calls launch(threads, binary) with both as constants. */
template <typename Launch> void with_row(const ClassTargets *targets, int64_t classes, Launch launch)
{
    using std::integral_constant;
    if (classes < block_classes && targets->binary)
        launch(integral_constant<int, 32>{}, integral_constant<bool, true>{});
    else if (classes < block_classes)
        launch(integral_constant<int, 32>{}, integral_constant<bool, false>{});
    else if (targets->binary)
        launch(integral_constant<int, block_threads>{}, integral_constant<bool, true>{});
    else
        launch(integral_constant<int, block_threads>{}, integral_constant<bool, false>{});
}

unsigned row_blocks(int64_t samples, int threads)
{
    const int64_t rows = block_threads / threads;
    return (unsigned)((samples + rows - 1) / rows);
}

} // namespace

extern "C" uint64_t kernel_class_loss_scratch_bytes(const DeviceTensor *logits)
{
    return (uint64_t)logits->shape[0] * sizeof(double);
}

extern "C" cudaError_t kernel_class_loss(const ClassTargets *targets, const DeviceTensor *logits,
                                         const DeviceTensor *loss, const DeviceTensor *probabilities,
                                         void *scratch, unsigned *arrivals, cudaStream_t stream)
{
    if (!are_sound(targets) || !is_f32(loss) || !is_f32(probabilities))
        return cudaErrorNotSupported;
    return with_storage(logits, [&](auto zero) {
        using T = decltype(zero);
        with_row(targets, logits->shape[1], [&](auto threads, auto binary) {
            class_loss_kernel<threads(), binary(), T>
                <<<row_blocks(logits->shape[0], threads()), block_threads, 0, stream>>>(
                    targets_of(targets, logits), data_of<T>(logits), (int)logits->pitch,
                    data_of<float>(probabilities), static_cast<double *>(scratch), arrivals,
                    data_of<float>(loss));
        });
    });
}

extern "C" cudaError_t kernel_class_loss_backward(const ClassTargets *targets, const DeviceTensor *dloss,
                                                  const DeviceTensor *probabilities,
                                                  const DeviceTensor *dlogits, cudaStream_t stream)
{
    if (!are_sound(targets) || !is_f32(dloss) || !is_f32(probabilities))
        return cudaErrorNotSupported;
    return with_storage(dlogits, [&](auto zero) {
        using T = decltype(zero);
        with_row(targets, dlogits->shape[1], [&](auto threads, auto binary) {
            class_loss_backward_kernel<threads(), binary(), T>
                <<<row_blocks(dlogits->shape[0], threads()), block_threads, 0, stream>>>(
                    targets_of(targets, dlogits), data_of<float>(dloss), data_of<float>(probabilities),
                    data_of<T>(dlogits), (int)dlogits->pitch);
        });
    });
}
