#include "trainer/checkpoint/position_grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EDGE_MAX = 4096 };

/* Returns the rows of a parameter that are of no pixel. */
static int64_t rows_without_pixel(const Tensor *parameter)
{
    return parameter->shape[1] - parameter->grid_height * parameter->grid_width;
}

int64_t position_grid_edge(const SafetensorsEntry *entry, const Tensor *parameter)
{
    const uint64_t others = parameter->grid_height ? (uint64_t)rows_without_pixel(parameter) : 0;
    if (parameter->role != TENSOR_PARAMETER || !parameter->grid_height || entry->rank != 3 ||
        entry->shape[0] != 1 || entry->shape[2] != (uint64_t)parameter->shape[2] ||
        entry->shape[1] <= others || entry->shape[1] > (uint64_t)EDGE_MAX * EDGE_MAX)
        return 0;
    const int64_t pixels = (int64_t)(entry->shape[1] - others);
    const int64_t edge = (int64_t)lround(sqrt((double)pixels));
    return edge * edge == pixels ? edge : 0;
}

/* Returns the cubic filter at a distance. */
static double cubic(double x)
{
    const double a = -0.5, t = fabs(x);
    return t < 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

/* Makes to_rows rows of `size` numbers from from_rows. */
static void resample_axis(const float *from, int64_t from_rows, float *to, int64_t to_rows, int64_t size)
{
    const double scale = (double)from_rows / (double)to_rows;
    const double width = scale > 1 ? scale : 1, reach = 2 * width; /* enlarging, the filter keeps its width */
    for (int64_t row = 0; row < to_rows; row++, to += size) {
        const double centre = ((double)row + 0.5) * scale;
        const int64_t first = centre - reach > -0.5 ? (int64_t)(centre - reach + 0.5) : 0,
                      behind = (int64_t)(centre + reach + 0.5), end = behind < from_rows ? behind : from_rows;
        double sum = 0;
        for (int64_t k = first; k < end; k++)
            sum += cubic(((double)k + 0.5 - centre) / width);
        memset(to, 0, (size_t)size * sizeof *to);
        for (int64_t k = first; k < end; k++) {
            const double weight = cubic(((double)k + 0.5 - centre) / width) / sum;
            for (int64_t i = 0; i < size; i++)
                to[i] += (float)(weight * (double)from[k * size + i]);
        }
    }
}

FshStatus position_grid_resample(const Tensor *parameter, int64_t edge, const float *stored, float *values,
                                 FshError *error)
{
    const int64_t channels = parameter->shape[2], height = parameter->grid_height,
                  width = parameter->grid_width, others = rows_without_pixel(parameter) * channels;
    float *narrowed = calloc((size_t)(edge * width * channels) + 1, sizeof *narrowed);
    if (!narrowed)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for %s", parameter->name);
    memcpy(values, stored, (size_t)others * sizeof *values);
    for (int64_t row = 0; row < edge; row++)
        resample_axis(stored + others + row * edge * channels, edge, narrowed + row * width * channels, width,
                      channels);
    resample_axis(narrowed, edge, values + others, height, width * channels);
    free(narrowed);
    return FSH_OK;
}
