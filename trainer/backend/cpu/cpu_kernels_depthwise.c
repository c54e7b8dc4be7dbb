/* Compiled once for each instruction set and type of activations, with FSHARD_DEPTHWISE_KERNELS the name of
 * its table.
 *
 * Channels go in blocks whose sums stay in registers over all taps of a pixel, or over all pixels of a row: a
 * product reads two values and writes none. */
#include "trainer/backend/cpu/cpu_kernels_depthwise.h"

#include <stdbool.h>

#include "trainer/backend/cpu/cpu_kernels_value.h"

#define INLINED static inline __attribute__((always_inline))

enum { WIDE = 32, NARROW = 8 }; /* channels of a block; what is left is taken one by one */
enum { PLACES = 6 };            /* of a row, side by side */

extern const CpuDepthwiseKernels FSHARD_DEPTHWISE_KERNELS;

/* Computes channels 0..width-1 of a place of a row; the pointers are to the first. */
INLINED void gather_place(const DepthwiseShape *s, const Value *source, const float *weight,
                          const float *bias, int64_t row, int64_t place, Value *result, const int64_t width)
{
    const int64_t channels = s->channels, column_count = s->columns.counts[place];
    const DepthwiseMeeting *rows = s->rows.meetings + row * s->kernel,
                           *columns = s->columns.meetings + place * s->kernel;
    float sum[WIDE];
    for (int64_t c = 0; c < width; c++)
        sum[c] = bias ? bias[c] : 0;
    for (int64_t r = 0; r < s->rows.counts[row]; r++)
        for (int64_t k = 0; k < column_count; k++) {
            const float *w = weight + (rows[r].tap * s->kernel + columns[k].tap) * channels;
            const Value *x = source + (rows[r].source * s->source_width + columns[k].source) * channels;
#pragma omp simd
            for (int64_t c = 0; c < width; c++)
                sum[c] += load(x[c]) * w[c];
        }
    for (int64_t c = 0; c < width; c++)
        result[place * channels + c] = store(sum[c]);
}

/* Returns whether PLACES places from this one on are made of the same taps, each of the source's next
 * place. */
static bool are_alike(const DepthwiseShape *s, int64_t place)
{
    const DepthwiseMeeting *columns = s->columns.meetings + place * s->kernel;
    const int32_t count = s->columns.counts[place];
    if (place + PLACES > s->result_width)
        return false;
    for (int64_t p = 1; p < PLACES; p++) {
        const DepthwiseMeeting *others = columns + p * s->kernel;
        if (s->columns.counts[place + p] != count)
            return false;
        for (int32_t k = 0; k < count; k++)
            if (others[k].tap != columns[k].tap || others[k].source != columns[k].source + p)
                return false;
    }
    return true;
}

/* Computes channels 0..NARROW-1 of PLACES places that are alike: a weight that is read serves all of them. */
INLINED void gather_places(const DepthwiseShape *s, const Value *source, const float *weight,
                           const float *bias, int64_t row, int64_t place, Value *result)
{
    const int64_t channels = s->channels, column_count = s->columns.counts[place];
    const DepthwiseMeeting *rows = s->rows.meetings + row * s->kernel,
                           *columns = s->columns.meetings + place * s->kernel;
    float a[NARROW], b[NARROW], d[NARROW], e[NARROW], f[NARROW], g[NARROW];
    for (int64_t c = 0; c < NARROW; c++)
        a[c] = b[c] = d[c] = e[c] = f[c] = g[c] = bias ? bias[c] : 0;
    for (int64_t r = 0; r < s->rows.counts[row]; r++) {
        const float *of_row = weight + rows[r].tap * s->kernel * channels;
        const Value *line = source + rows[r].source * s->source_width * channels;
        for (int64_t k = 0; k < column_count; k++) {
            const float *w = of_row + columns[k].tap * channels;
            const Value *x = line + columns[k].source * channels;
#pragma omp simd
            for (int64_t c = 0; c < NARROW; c++) {
                a[c] += load(x[c]) * w[c];
                b[c] += load(x[channels + c]) * w[c];
                d[c] += load(x[2 * channels + c]) * w[c];
                e[c] += load(x[3 * channels + c]) * w[c];
                f[c] += load(x[4 * channels + c]) * w[c];
                g[c] += load(x[5 * channels + c]) * w[c];
            }
        }
    }
    Value *to = result + place * channels;
    for (int64_t c = 0; c < NARROW; c++) {
        to[c] = store(a[c]);
        to[channels + c] = store(b[c]);
        to[2 * channels + c] = store(d[c]);
        to[3 * channels + c] = store(e[c]);
        to[4 * channels + c] = store(f[c]);
        to[5 * channels + c] = store(g[c]);
    }
}

static void gather(const DepthwiseShape *s, const void *sources, const float *weight, const float *bias,
                   int64_t row, void *results)
{
    const Value *source = sources;
    Value *result = results;
    for (int64_t place = 0, next; place < s->result_width; place = next) {
        int64_t c = 0;
        next = place + 1;
        if (are_alike(s, place)) {
            next = place + PLACES;
            for (; c + NARROW <= s->channels; c += NARROW)
                gather_places(s, source + c, weight + c, bias ? bias + c : NULL, row, place, result + c);
        }
        for (int64_t first = c; place < next; place++) {
            for (c = first; c + WIDE <= s->channels; c += WIDE)
                gather_place(s, source + c, weight + c, bias ? bias + c : NULL, row, place, result + c, WIDE);
            for (; c + NARROW <= s->channels; c += NARROW)
                gather_place(s, source + c, weight + c, bias ? bias + c : NULL, row, place, result + c,
                             NARROW);
            for (; c < s->channels; c++)
                gather_place(s, source + c, weight + c, bias ? bias + c : NULL, row, place, result + c, 1);
        }
    }
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
