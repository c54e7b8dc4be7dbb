/* resample_axis.h - the weights of one axis, and a small cache of them. Internal. */
#ifndef FSHARD_IMAGING_RESAMPLE_AXIS_H
#define FSHARD_IMAGING_RESAMPLE_AXIS_H

#include "imaging/resample_kernels.h"

/* What the weights of an axis depend on. */
typedef struct ResampleAxisKey {
    uint32_t source_size, target_size;
    float begin, end; /* the box's edges on this axis; float as in Pillow, so that weights are the same */
    ResampleFilter filter;
    uint32_t first_output, outputs_count; /* of target_size; count 0: all */
    bool mirrored;                        /* the last output comes first */
} ResampleAxisKey;

/* Data sets repeat a few sizes: half of ImageNet is 500x375, 500x333 or 375x500. An axis of such a photograph
 * takes 30 kB, one of a hostile header megabytes. */
enum {
    RESAMPLE_CACHE_COUNT = 64,
    RESAMPLE_CACHE_BYTES = 4 << 20, /* what is older than the axes in use is dropped above that */
    RESAMPLE_CACHE_KEPT = 6, /* axes that may be in use: two for each of three planes, asked for last */
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

/* The axis for key, computed unless it is there. Stays valid until RESAMPLE_CACHE_KEPT - 1 other keys were
 * asked for. FSH_ERR_MEMORY. */
FshStatus resample_axis_get(ResampleAxisCache *cache, const ResampleAxisKey *key,
                            const ResampleKernels *kernels, const ResampleAxis **axis, FshError *error);

/* Empties the cache: the kernels have changed, or the end. */
void resample_axis_cache_clear(ResampleAxisCache *cache);

#endif
