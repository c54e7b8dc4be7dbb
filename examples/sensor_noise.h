/* sensor_noise.h - adds the noise of a camera at night. */
#ifndef FSHARD_EXAMPLES_SENSOR_NOISE_H
#define FSHARD_EXAMPLES_SENSOR_NOISE_H

#include "common/random.h"
#include "imaging/image.h"

/* Writes a copy of clean (u8, 1 or 3 channels) with normal noise on every value to noisy. random draws the
 * deviation, 15 to 30 levels. FSH_ERR_MEMORY. */
FshStatus sensor_noise(const Image *clean, Random *random, Image *noisy, FshError *error);

#endif
