/* sensor_noise.h - what a camera makes of a picture at night: noise. */
#ifndef FSHARD_EXAMPLES_SENSOR_NOISE_H
#define FSHARD_EXAMPLES_SENSOR_NOISE_H

#include "common/random.h"
#include "imaging/image.h"

/* Writes to noisy a copy of clean (u8, 1 or 3 channels) with normal noise on every value, of one deviation of
 * 15 to 30 levels that random draws. FSH_ERR_MEMORY. */
FshStatus sensor_noise(const Image *clean, Random *random, Image *noisy, FshError *error);

#endif
