/* resample_axis.h - the weights of one axis, and a small cache of them. Internal. */
#ifndef FSHARD_IMAGING_RESAMPLE_AXIS_H
#define FSHARD_IMAGING_RESAMPLE_AXIS_H

#include "imaging/resample_kernels.h"

/* Everything that the weights of an axis depend on. */
typedef struct ResampleAxisKey {
    uint32_t source_size, target_size;
    float begin, end; /* edges of the box on this axis; float as in Pillow, so that the weights are the
                       * same */
    ResampleFilter filter;
    uint32_t first_output, outputs_count; /* the outputs to compute, within target_size; count 0: all */
    bool mirrored;                        /* the last output comes first */
} ResampleAxisKey;

/* Data sets repeat a few sizes: half of ImageNet is 500x375, 500x333 or 375x500. The axis of such a
 * photograph takes 30 kB, that of a hostile header megabytes. */
enum {
    RESAMPLE_CACHE_COUNT = 64,
    RESAMPLE_CACHE_BYTES = 4 << 20, /* above this, axes that are not in use are dropped */
    RESAMPLE_CACHE_KEPT = 6,        /* the axes last asked for may be in use: two for each of three planes */
};

typedef struct ResampleAxisCache {
    struct {
        ResampleAxisKey key;
        ResampleAxis axis;
        uint64_t used_at; /* 0: empty */
    } entries[RESAMPLE_CACHE_COUNT];
    uint64_t clock;
    size_t bytes;    /* of all entries */
    double *scratch; /* weights of one output before rounding */
    size_t scratch_count;
} ResampleAxisCache;

/* Sets *axis to the axis for key, computed unless the cache has it. It stays valid until RESAMPLE_CACHE_KEPT
 * - 1 other keys were asked for. FSH_ERR_MEMORY. */
FshStatus resample_axis_get(ResampleAxisCache *cache, const ResampleAxisKey *key,
                            const ResampleKernels *kernels, const ResampleAxis **axis, FshError *error);

/* Frees all entries: when the kernels change, and at the end. */
void resample_axis_cache_clear(ResampleAxisCache *cache);

#endif
