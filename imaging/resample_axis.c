#include "imaging/resample_axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- filters, written as Pillow writes them: the order of operations decides the last bit ---- */

static double box_filter(double x)
{
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static double bilinear_filter(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double bicubic_filter(double x)
{
    static const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

static double sinc(double x)
{
    if (x == 0.0)
        return 1.0;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos_filter(double x)
{
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct {
    double (*value)(double x);
    double support; /* where it ends, in source pixels at scale 1 */
} filters[] = {
    [RESAMPLE_BOX] = {box_filter, 0.5},
    [RESAMPLE_BILINEAR] = {bilinear_filter, 1.0},
    [RESAMPLE_BICUBIC] = {bicubic_filter, 2.0},
    [RESAMPLE_LANCZOS] = {lanczos_filter, 3.0},
};

/* ---- weights ---- */

static void axis_free(ResampleAxis *axis)
{
    free(axis->first);
    free(axis->length);
    free(axis->weights);
    free(axis->packed);
    *axis = (ResampleAxis){0};
}

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static FshStatus axis_allocate(ResampleAxis *axis, uint32_t count, size_t stride, bool packed,
                               FshError *error)
{
    size_t weights_count = 0, bytes = 0;
    if (stride > UINT32_MAX || __builtin_mul_overflow(stride, (size_t)count, &weights_count) ||
        __builtin_mul_overflow(weights_count, sizeof(int32_t), &bytes))
        return fsh_error_set(error, FSH_ERR_MEMORY, "the resampling weights do not fit into memory");
    axis->count = count;
    axis->stride = (uint32_t)stride;
    axis->first = malloc(count * sizeof *axis->first);
    axis->length = malloc(count * sizeof *axis->length);
    axis->weights = malloc(bytes);
    axis->packed = packed ? aligned_alloc(64, round_up(bytes, 64)) : NULL;
    if (!axis->first || !axis->length || !axis->weights || (packed && !axis->packed)) {
        axis_free(axis);
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for resampling weights");
    }
    return FSH_OK;
}

/* Pillow's precompute_coeffs and normalize_coeffs_8bpc in one. */
static FshStatus axis_compute(ResampleAxisCache *cache, const ResampleAxisKey *key,
                              const ResampleKernels *kernels, ResampleAxis *axis, FshError *error)
{
    double scale = (double)(key->end - key->begin) / key->target_size;
    double filter_scale = scale < 1.0 ? 1.0 : scale; /* enlarging: the filter as it is, interpolating */
    double support = filters[key->filter].support * filter_scale, step = 1.0 / filter_scale;
    size_t most = (size_t)ceil(support) * 2 + 1;
    if (most > cache->scratch_count) {
        double *scratch = realloc(cache->scratch, most * sizeof *scratch);
        if (!scratch)
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for resampling weights");
        cache->scratch = scratch;
        cache->scratch_count = most;
    }
    size_t stride = round_up(most, RESAMPLE_TAPS_MULTIPLE);
    FshStatus status = axis_allocate(axis, key->target_size, stride, kernels->pack != NULL, error);
    if (status)
        return status;
    for (uint32_t i = 0; i < key->target_size; i++) {
        double centre = key->begin + (i + 0.5) * scale;
        double low = centre - support + 0.5, high = centre + support + 0.5;
        uint32_t first = low > 0 ? (uint32_t)low : 0;
        uint32_t last = high < key->source_size ? (uint32_t)high : key->source_size;
        uint32_t length = last - first;
        double sum = 0.0;
        for (uint32_t k = 0; k < length; k++) {
            double weight = filters[key->filter].value((k + (double)first - centre + 0.5) * step);
            cache->scratch[k] = weight;
            sum += weight;
        }
        int32_t *weights = axis->weights + (size_t)i * stride;
        for (uint32_t k = 0; k < length; k++) {
            double weight = sum != 0.0 ? cache->scratch[k] / sum : cache->scratch[k];
            weight *= 1 << RESAMPLE_PRECISION_BITS;
            weights[k] = (int32_t)(weight < 0 ? weight - 0.5 : weight + 0.5);
        }
        memset(weights + length, 0, (stride - length) * sizeof *weights);
        axis->first[i] = first;
        axis->length[i] = length;
        if (kernels->pack)
            kernels->pack(weights, axis->stride, axis->packed + (size_t)i * stride * sizeof *weights);
    }
    return FSH_OK;
}

/* ---- cache ---- */

static bool same_key(const ResampleAxisKey *a, const ResampleAxisKey *b)
{
    return a->source_size == b->source_size && a->target_size == b->target_size && a->begin == b->begin &&
           a->end == b->end && a->filter == b->filter;
}

FshStatus resample_axis_get(ResampleAxisCache *cache, const ResampleAxisKey *key,
                            const ResampleKernels *kernels, const ResampleAxis **axis, FshError *error)
{
    size_t oldest = 0;
    for (size_t i = 0; i < RESAMPLE_CACHE_COUNT; i++) {
        if (cache->entries[i].used_at && same_key(&cache->entries[i].key, key)) {
            cache->entries[i].used_at = ++cache->clock;
            *axis = &cache->entries[i].axis;
            return FSH_OK;
        }
        if (cache->entries[i].used_at < cache->entries[oldest].used_at)
            oldest = i;
    }
    axis_free(&cache->entries[oldest].axis);
    cache->entries[oldest].used_at = 0;
    FshStatus status = axis_compute(cache, key, kernels, &cache->entries[oldest].axis, error);
    if (status)
        return status;
    cache->entries[oldest].key = *key;
    cache->entries[oldest].used_at = ++cache->clock;
    *axis = &cache->entries[oldest].axis;
    return FSH_OK;
}

void resample_axis_cache_clear(ResampleAxisCache *cache)
{
    for (size_t i = 0; i < RESAMPLE_CACHE_COUNT; i++)
        axis_free(&cache->entries[i].axis);
    free(cache->scratch);
    *cache = (ResampleAxisCache){0};
}
