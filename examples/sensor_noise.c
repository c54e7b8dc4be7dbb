#include "examples/sensor_noise.h"

#include <math.h>

FshStatus sensor_noise(const Image *clean, Random *random, Image *noisy, FshError *error)
{
    FshStatus status = image_reserve(noisy, clean->width, clean->height, clean->channels, error);
    if (status)
        return status;
    const size_t count = (size_t)clean->width * clean->height * clean->channels;
    const float deviation = 15.0F + 15.0F * random_uniform(random);
    for (size_t i = 0; i < count; i++) {
        float value = roundf((float)clean->pixels[i] + deviation * random_normal(random));
        noisy->pixels[i] = (uint8_t)(value < 0.0F ? 0.0F : value > 255.0F ? 255.0F : value);
    }
    return FSH_OK;
}
