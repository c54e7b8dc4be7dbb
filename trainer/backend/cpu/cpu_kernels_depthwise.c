/* Compiled once for each instruction set and type of activations, with FSHARD_DEPTHWISE_KERNELS the name of
 * its table.
 *
 * Channels go in blocks whose sums stay in registers over all taps of a pixel, or over all pixels of a row: a
 * product reads two values and writes none. */
#include "trainer/backend/cpu/cpu_kernels_depthwise.h"

#include "trainer/backend/cpu/cpu_kernels_value.h"

#define INLINED static inline __attribute__((always_inline))

enum { WIDE = 32, NARROW = 8 }; /* channels of a block; what is left is taken one by one */

extern const CpuDepthwiseKernels FSHARD_DEPTHWISE_KERNELS;

/* Computes channels 0..width-1 of a place of a row, or of DEPTHWISE_PLACES that are alike, so that a weight
 * that is read serves all of them; the pointers are to the first channel. */
INLINED void gather_block(const DepthwiseShape *s, const Value *source, const float *weight,
                          const float *bias, int64_t row, int64_t place, Value *result, const int64_t places,
                          const int64_t width)
{
    const int64_t channels = s->channels, column_count = s->columns.counts[place];
    const DepthwiseMeeting *rows = s->rows.meetings + row * s->kernel,
                           *columns = s->columns.meetings + place * s->kernel;
    float sum[DEPTHWISE_PLACES][WIDE];
    for (int64_t p = 0; p < places; p++)
        for (int64_t c = 0; c < width; c++)
            sum[p][c] = bias ? bias[c] : 0;
    for (int64_t r = 0; r < s->rows.counts[row]; r++)
        for (int64_t k = 0; k < column_count; k++) {
            const float *w = weight + (rows[r].tap * s->kernel + columns[k].tap) * channels;
            const Value *x = source + (rows[r].source * s->source_width + columns[k].source) * channels;
#pragma GCC unroll 6
            for (int64_t p = 0; p < places; p++)
#pragma omp simd
                for (int64_t c = 0; c < width; c++)
                    sum[p][c] += load(x[p * channels + c]) * w[c];
        }
    for (int64_t p = 0; p < places; p++)
        for (int64_t c = 0; c < width; c++)
            result[(place + p) * channels + c] = store(sum[p][c]);
}

static void gather(const DepthwiseShape *s, const void *sources, const float *weight, const float *bias,
                   int64_t row, void *results)
{
    const Value *source = sources;
    Value *result = results;
#define GATHER(places, width)                                                                                \
    gather_block(s, source + c, weight + c, bias ? bias + c : NULL, row, place, result + c, places, width)
    for (int64_t place = 0, next; place < s->result_width; place = next) {
        int64_t c = 0;
        next = place + (s->alike[place] ? DEPTHWISE_PLACES : 1);
        if (next > place + 1)
            for (; c + NARROW <= s->channels; c += NARROW)
                GATHER(DEPTHWISE_PLACES, NARROW);
        for (const int64_t first = c; place < next; place++) {
            for (c = first; c + WIDE <= s->channels; c += WIDE)
                GATHER(1, WIDE);
            for (; c + NARROW <= s->channels; c += NARROW)
                GATHER(1, NARROW);
            for (; c < s->channels; c++)
                GATHER(1, 1);
        }
    }
#undef GATHER
}

INLINED void gradient_block(const DepthwiseShape *s, const DepthwiseRun *run, const Value *x, const Value *dy,
                            float *dweight, const int64_t width)
{
    const int64_t channels = s->channels, step = run->stride * channels;
    const Value *source = x + run->source * channels;
    float sum[WIDE];
    for (int64_t c = 0; c < width; c++)
        sum[c] = 0;
    for (int64_t place = run->first; place < run->end; place++, source += step) {
        const Value *gradient = dy + place * channels;
#pragma omp simd
        for (int64_t c = 0; c < width; c++)
            sum[c] += load(gradient[c]) * load(source[c]);
    }
    for (int64_t c = 0; c < width; c++)
        dweight[c] += sum[c];
}

static void add_gradient(const DepthwiseShape *s, const void *images, const void *gradients, int64_t row,
                         float *dweight, float *dbias)
{
    const Value *x = images, *dy = gradients;
    const int64_t channels = s->channels;
    for (int32_t tap = 0; tap < s->kernel; tap++) {
        const DepthwiseRun *run = &s->runs[tap];
        for (int32_t r = 0; r < s->rows.counts[row]; r++) {
            const DepthwiseMeeting *meeting = &s->rows.meetings[row * s->kernel + r];
            const Value *line = x + meeting->source * s->source_width * channels;
            float *to = dweight + (meeting->tap * s->kernel + tap) * channels;
            int64_t c = 0;
            for (; c + WIDE <= channels; c += WIDE)
                gradient_block(s, run, line + c, dy + c, to + c, WIDE);
            for (; c + NARROW <= channels; c += NARROW)
                gradient_block(s, run, line + c, dy + c, to + c, NARROW);
            for (; c < channels; c++)
                gradient_block(s, run, line + c, dy + c, to + c, 1);
        }
    }
    for (int64_t place = 0; dbias && place < s->result_width; place++)
#pragma omp simd
        for (int64_t c = 0; c < channels; c++)
            dbias[c] += load(dy[place * channels + c]);
}

const CpuDepthwiseKernels FSHARD_DEPTHWISE_KERNELS = {.gather = gather, .add_gradient = add_gradient};
