/* channel_constants.cuh - how bytes of pixels become numbers: byte * scale + shift of the channel. For
 * elementwise.cu, stem.cu and stem_image.cuh, which make the same bits of the same byte. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CHANNEL_CONSTANTS_CUH
#define FSHARD_TRAINER_BACKEND_CUDA_KERNELS_CHANNEL_CONSTANTS_CUH

#include <stdint.h>

namespace fshard
{

constexpr int pixel_channels = 4; /* the most */

struct ChannelConstants {
    float scale[pixel_channels], shift[pixel_channels];
};

inline ChannelConstants channel_constants(const float *mean, const float *deviation, int64_t channels)
{
    ChannelConstants constants = {};
    for (int64_t c = 0; c < channels; c++) {
        constants.scale[c] = (float)(1 / (double)deviation[c]);
        constants.shift[c] = (float)(-(double)mean[c] / (double)deviation[c]);
    }
    return constants;
}

__device__ inline float number_of(uint8_t byte, const ChannelConstants &constants, int channel)
{
    return fmaf((float)byte, constants.scale[channel], constants.shift[channel]);
}

/* Makes numbers of the bytes of a pixel, with 0 after the last. */
__device__ inline void numbers_of(const uint8_t *pixel, int channels, const ChannelConstants &constants,
                                  float (&values)[pixel_channels])
{
#pragma unroll
    for (int c = 0; c < pixel_channels; c++)
        values[c] = c < channels ? number_of(pixel[c], constants, c) : 0;
}

} // namespace fshard

#endif
