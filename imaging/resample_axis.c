#include "imaging/resample_axis.h"

#include <stdlib.h>
#include <string.h>

/* ---- weights ---- */

static void axis_free(ResampleAxis *axis)
{
    free(axis->first);
    free(axis->length);
    free(axis->weights);
    free(axis->packed);
    *axis = (ResampleAxis){0};
}

static size_t axis_bytes(const ResampleAxis *axis)
{
    size_t weights_count = (size_t)axis->count * axis->stride;
    return weights_count * (sizeof *axis->weights + (axis->packed ? sizeof(int32_t) : 0)) +
           axis->count * (sizeof *axis->first + sizeof *axis->length);
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

/* Computes the weights of an axis: Pillow's precompute_coeffs and normalize_coeffs_8bpc in one. */
static FshStatus axis_compute(ResampleAxisCache *cache, const ResampleAxisKey *key,
                              const ResampleKernels *kernels, ResampleAxis *axis, FshError *error)
{
    const ResampleScale scale =
        resample_scale(key->begin, key->end, key->source_size, key->target_size, key->filter);
    size_t most = resample_taps_max(&scale);
    if (most > cache->scratch_count) {
        double *scratch = realloc(cache->scratch, most * sizeof *scratch);
        if (!scratch)
            return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for resampling weights");
        cache->scratch = scratch;
        cache->scratch_count = most;
    }
    size_t stride = round_up(most, RESAMPLE_TAPS_MULTIPLE);
    uint32_t count = key->outputs_count ? key->outputs_count : key->target_size;
    FshStatus status = axis_allocate(axis, count, stride, kernels->pack != NULL, error);
    if (status)
        return status;
    for (uint32_t output = 0; output < count; output++) {
        uint32_t i = key->mirrored ? count - 1 - output : output;
        const ResampleSpan span = resample_span(&scale, key->first_output + output);
        ResampleWalk walk = resample_walk(&scale, &span, key->filter);
        double sum = 0.0;
        for (uint32_t k = 0; k < span.length; k++) {
            cache->scratch[k] = resample_weight(&walk, key->filter, k);
            sum += cache->scratch[k];
        }
        if (sum == 0.0)
            cache->scratch[0] = sum = 1.0;
        int32_t *weights = axis->weights + (size_t)i * stride;
        for (uint32_t k = 0; k < span.length; k++)
            weights[k] = resample_fixed(cache->scratch[k], sum);
        memset(weights + span.length, 0, (stride - span.length) * sizeof *weights);
        axis->first[i] = span.first;
        axis->length[i] = span.length;
        if (kernels->pack)
            kernels->pack(weights, axis->stride, axis->packed + (size_t)i * stride * sizeof *weights);
    }
    return FSH_OK;
}

/* ---- cache ---- */

static bool same_key(const ResampleAxisKey *a, const ResampleAxisKey *b)
{
    return a->source_size == b->source_size && a->target_size == b->target_size && a->begin == b->begin &&
           a->end == b->end && a->filter == b->filter && a->mirrored == b->mirrored &&
           a->first_output == b->first_output && a->outputs_count == b->outputs_count;
}

static void drop(ResampleAxisCache *cache, size_t index)
{
    cache->bytes -= axis_bytes(&cache->entries[index].axis);
    axis_free(&cache->entries[index].axis);
    cache->entries[index].used_at = 0;
}

/* Returns the least recently used entry; an empty one comes first. */
static size_t oldest(const ResampleAxisCache *cache)
{
    size_t found = 0;
    for (size_t i = 1; i < RESAMPLE_CACHE_COUNT; i++) {
        if (cache->entries[i].used_at < cache->entries[found].used_at)
            found = i;
    }
    return found;
}

/* Returns the least recently used entry that is not empty; RESAMPLE_CACHE_COUNT: all are empty. */
static size_t oldest_held(const ResampleAxisCache *cache)
{
    size_t found = RESAMPLE_CACHE_COUNT;
    for (size_t i = 0; i < RESAMPLE_CACHE_COUNT; i++) {
        if (cache->entries[i].used_at &&
            (found == RESAMPLE_CACHE_COUNT || cache->entries[i].used_at < cache->entries[found].used_at))
            found = i;
    }
    return found;
}

FshStatus resample_axis_get(ResampleAxisCache *cache, const ResampleAxisKey *key,
                            const ResampleKernels *kernels, const ResampleAxis **axis, FshError *error)
{
    for (size_t i = 0; i < RESAMPLE_CACHE_COUNT; i++) {
        if (cache->entries[i].used_at && same_key(&cache->entries[i].key, key)) {
            cache->entries[i].used_at = ++cache->clock;
            *axis = &cache->entries[i].axis;
            return FSH_OK;
        }
    }
    size_t place = oldest(cache);
    drop(cache, place);
    FshStatus status = axis_compute(cache, key, kernels, &cache->entries[place].axis, error);
    if (status)
        return status;
    cache->entries[place].key = *key;
    cache->entries[place].used_at = ++cache->clock;
    cache->bytes += axis_bytes(&cache->entries[place].axis);
    *axis = &cache->entries[place].axis;
    while (cache->bytes > RESAMPLE_CACHE_BYTES) {
        size_t last = oldest_held(cache);
        if (cache->entries[last].used_at + RESAMPLE_CACHE_KEPT > cache->clock)
            break;
        drop(cache, last);
    }
    return FSH_OK;
}

void resample_axis_cache_clear(ResampleAxisCache *cache)
{
    for (size_t i = 0; i < RESAMPLE_CACHE_COUNT; i++)
        axis_free(&cache->entries[i].axis);
    free(cache->scratch);
    *cache = (ResampleAxisCache){0};
}
