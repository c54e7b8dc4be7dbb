#include "imaging/mirror.h"

#include <string.h>

void image_mirror_row_portable(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target)
{
    uint8_t *to = target + width * channels;
    for (size_t x = 0; x < width; x++)
        for (uint32_t c = channels; c-- > 0;)
            *--to = source[x * channels + c];
}

void image_mirror_row(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target)
{
#ifdef FSHARD_RESAMPLE_X86
    if (__builtin_cpu_supports("avx2")) {
        image_mirror_row_avx2(source, width, channels, target);
        return;
    }
#endif
    image_mirror_row_portable(source, width, channels, target);
}
