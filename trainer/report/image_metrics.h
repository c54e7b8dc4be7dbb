/* image_metrics.h - how close a restored image is to its target: PSNR and SSIM as BasicSR and NAFNet compute
 * them (basicsr/metrics/psnr_ssim.py), on 8-bit images [height, width, channels], in double.
 *
 *   crop_border   pixels that are cut off at each edge before anything else
 *   y_channel     of RGB images only the luma of ITU-R BT.601, 16 + (65.481 R + 128.553 G + 24.966 B) / 255,
 *                 unrounded
 *
 * Pure functions; any thread. */
#ifndef FSHARD_TRAINER_REPORT_IMAGE_METRICS_H
#define FSHARD_TRAINER_REPORT_IMAGE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

typedef struct ImageSize {
    uint32_t width, height;
    uint32_t channels; /* 1 or 3 */
} ImageSize;

typedef struct ImageMetricOptions {
    uint32_t crop_border; /* pixels */
    bool y_channel;
} ImageMetricOptions;

/* Sets *psnr_ret to 10 log10(255^2 / mean squared difference), in dB; infinite for equal images.
 * FSH_ERR_MISMATCH: crop_border leaves nothing. */
FshStatus image_metrics_psnr(const uint8_t *a, const uint8_t *b, const ImageSize *size,
                             const ImageMetricOptions *options, double *psnr_ret, FshError *error);

/* Edge of SSIM's window in pixels: the smallest image that it accepts. */
enum { IMAGE_METRICS_WINDOW = 11 };

/* Sets *ssim_ret to the structural similarity (Wang et al. 2004), -1 to 1: an 11 x 11 Gaussian window of
 * deviation 1.5 wherever it lies wholly in the image, k1 0.01, k2 0.03, averaged over windows and channels.
 * FSH_ERR_MISMATCH: fewer than 11 pixels are left on an edge; FSH_ERR_MEMORY. */
FshStatus image_metrics_ssim(const uint8_t *a, const uint8_t *b, const ImageSize *size,
                             const ImageMetricOptions *options, double *ssim_ret, FshError *error);

#endif
