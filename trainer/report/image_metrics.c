#include "trainer/report/image_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = IMAGE_METRICS_WINDOW, RADIUS = WINDOW / 2 };

/* Both images without their border, as planes to read rows of. */
typedef struct Compared {
    const uint8_t *a, *b; /* the first pixel inside the border */
    size_t row_bytes;
    size_t width, height, channels;
    size_t planes; /* 1 with y_channel */
} Compared;

static FshStatus compared_start(Compared *compared, const uint8_t *a, const uint8_t *b, const ImageSize *size,
                                const ImageMetricOptions *options, size_t least, FshError *error)
{
    const uint64_t border = 2 * (uint64_t)options->crop_border;
    if (border + least > size->width || border + least > size->height)
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "an image of %u x %u pixels without a border of %u is too small to be compared; it needs "
            "%zu x %zu",
            size->width, size->height, options->crop_border, least, least);
    const size_t row_bytes = (size_t)size->width * size->channels;
    const size_t first = options->crop_border * row_bytes + (size_t)options->crop_border * size->channels;
    *compared = (Compared){.a = a + first,
                           .b = b + first,
                           .row_bytes = row_bytes,
                           .width = size->width - (size_t)border,
                           .height = size->height - (size_t)border,
                           .channels = size->channels,
                           .planes = options->y_channel ? 1 : size->channels};
    return FSH_OK;
}

/* Reads a row of a plane into doubles: a channel, or the luma. */
static void read_row(const Compared *compared, const uint8_t *image, size_t row, size_t plane, double *values)
{
    const uint8_t *pixels = image + row * compared->row_bytes;
    if (compared->planes == 1 && compared->channels == 3) {
        for (size_t x = 0; x < compared->width; x++, pixels += 3)
            values[x] = 16 + (65.481 * pixels[0] + 128.553 * pixels[1] + 24.966 * pixels[2]) / 255;
        return;
    }
    for (size_t x = 0; x < compared->width; x++)
        values[x] = pixels[x * compared->channels + plane];
}

/* ---- PSNR ---- */

static uint64_t squares_of_bytes(const Compared *compared)
{
    uint64_t sum = 0;
    for (size_t row = 0; row < compared->height; row++) {
        const uint8_t *a = compared->a + row * compared->row_bytes,
                      *b = compared->b + row * compared->row_bytes;
        for (size_t i = 0; i < compared->width * compared->channels; i++) {
            const int32_t difference = (int32_t)a[i] - (int32_t)b[i];
            sum += (uint64_t)(difference * difference);
        }
    }
    return sum;
}

static double squares_of_luma(const Compared *compared)
{
    double sum = 0;
    for (size_t row = 0; row < compared->height; row++) {
        const uint8_t *a = compared->a + row * compared->row_bytes,
                      *b = compared->b + row * compared->row_bytes;
        for (size_t x = 0; x < 3 * compared->width; x += 3) {
            const double difference =
                (65.481 * (a[x] - b[x]) + 128.553 * (a[x + 1] - b[x + 1]) + 24.966 * (a[x + 2] - b[x + 2])) /
                255;
            sum += difference * difference;
        }
    }
    return sum;
}

FshStatus image_metrics_psnr(const uint8_t *a, const uint8_t *b, const ImageSize *size,
                             const ImageMetricOptions *options, double *psnr_ret, FshError *error)
{
    Compared compared = {0};
    FshStatus status = compared_start(&compared, a, b, size, options, 1, error);
    if (status)
        return status;
    const bool is_luma = options->y_channel && size->channels == 3;
    const double squares = is_luma ? squares_of_luma(&compared) : (double)squares_of_bytes(&compared);
    const double values = (double)(compared.width * compared.height * (is_luma ? 1 : compared.channels));
    *psnr_ret = squares > 0 ? 10 * log10(255.0 * 255.0 * values / squares) : INFINITY;
    return FSH_OK;
}

/* ---- SSIM ---- */

/* The moments averaged over each window. */
enum { OF_A, OF_B, OF_AA, OF_BB, OF_AB, MOMENTS };

/* The state of a pass over one plane. Rows filtered along x wait in a ring until WINDOW of them can be
 * filtered along y. */
typedef struct Ssim {
    const Compared *compared;
    double weights[WINDOW];
    size_t columns;  /* windows in a row */
    double *rows[2]; /* [width] of a and b */
    double *product; /* [width] */
    double *ring;    /* [WINDOW][MOMENTS][columns] */
    double *moments; /* [MOMENTS][columns] */
} Ssim;

/* Computes cv2.getGaussianKernel(11, 1.5). */
static void find_weights(double weights[WINDOW])
{
    const double deviation = 1.5;
    double sum = 0;
    for (int i = 0; i < WINDOW; i++)
        sum += weights[i] = exp(-(i - RADIUS) * (i - RADIUS) / (2 * deviation * deviation));
    for (int i = 0; i < WINDOW; i++)
        weights[i] /= sum;
}

static void filter_along_x(const Ssim *ssim, const double *row, double *out)
{
    memset(out, 0, ssim->columns * sizeof *out);
    for (int i = 0; i < WINDOW; i++)
        for (size_t x = 0; x < ssim->columns; x++)
            out[x] += ssim->weights[i] * row[x + (size_t)i];
}

static double *ring_row(const Ssim *ssim, size_t row)
{
    return ssim->ring + row % WINDOW * MOMENTS * ssim->columns;
}

static void take_row(const Ssim *ssim, size_t row, size_t plane)
{
    static const int factors[MOMENTS][2] = {{0, -1}, {1, -1}, {0, 0}, {1, 1}, {0, 1}};
    const Compared *compared = ssim->compared;
    read_row(compared, compared->a, row, plane, ssim->rows[0]);
    read_row(compared, compared->b, row, plane, ssim->rows[1]);
    for (int k = 0; k < MOMENTS; k++) {
        const double *values = ssim->rows[factors[k][0]];
        if (factors[k][1] >= 0) {
            for (size_t x = 0; x < compared->width; x++)
                ssim->product[x] = values[x] * ssim->rows[factors[k][1]][x];
            values = ssim->product;
        }
        filter_along_x(ssim, values, ring_row(ssim, row) + (size_t)k * ssim->columns);
    }
}

/* Returns the sum of the similarity over the windows that end in last_row, the row taken last. */
static double sum_windows(const Ssim *ssim, size_t last_row)
{
    const double c1 = 0.01 * 255 * (0.01 * 255), c2 = 0.03 * 255 * (0.03 * 255);
    const size_t columns = ssim->columns, values = MOMENTS * columns;
    double sum = 0;
    memset(ssim->moments, 0, values * sizeof *ssim->moments);
    for (size_t i = 0; i < WINDOW; i++) {
        const double *row = ring_row(ssim, last_row + 1 + i); /* the oldest first */
        for (size_t x = 0; x < values; x++)
            ssim->moments[x] += ssim->weights[i] * row[x];
    }
    for (size_t x = 0; x < columns; x++) {
        const double *m = ssim->moments + x;
        const double a = m[OF_A * columns], b = m[OF_B * columns];
        const double variances = m[OF_AA * columns] - a * a + (m[OF_BB * columns] - b * b);
        const double covariance = m[OF_AB * columns] - a * b;
        sum += (2 * a * b + c1) * (2 * covariance + c2) / ((a * a + b * b + c1) * (variances + c2));
    }
    return sum;
}

FshStatus image_metrics_ssim(const uint8_t *a, const uint8_t *b, const ImageSize *size,
                             const ImageMetricOptions *options, double *ssim_ret, FshError *error)
{
    Compared compared = {0};
    FshStatus status = compared_start(&compared, a, b, size, options, WINDOW, error);
    if (status)
        return status;
    Ssim ssim = {.compared = &compared, .columns = compared.width - WINDOW + 1};
    double *memory = malloc((3 * compared.width + (WINDOW + 1) * MOMENTS * ssim.columns) * sizeof *memory),
           sum = 0;
    if (!memory)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory to compare images of %u x %u", size->width,
                             size->height);
    find_weights(ssim.weights);
    ssim.rows[0] = memory;
    ssim.rows[1] = memory + compared.width;
    ssim.product = memory + 2 * compared.width;
    ssim.ring = memory + 3 * compared.width;
    ssim.moments = ssim.ring + (size_t)WINDOW * MOMENTS * ssim.columns;
    for (size_t plane = 0; plane < compared.planes; plane++)
        for (size_t row = 0; row < compared.height; row++) {
            take_row(&ssim, row, plane);
            if (row + 1 >= WINDOW)
                sum += sum_windows(&ssim, row);
        }
    free(memory);
    *ssim_ret = sum / (double)(compared.planes * ssim.columns * (compared.height - WINDOW + 1));
    return FSH_OK;
}
