/* picture.h - the picture of golden/make_augment.py and make_operations.py, and the hash of what becomes of
 * it. */
#ifndef FSHARD_TESTS_TRAINER_PICTURE_H
#define FSHARD_TESTS_TRAINER_PICTURE_H

#include <stddef.h>
#include <stdint.h>

/* Sets pixels, [height, width, channels], to the picture. seed: added to every value. */
void picture_draw(uint32_t width, uint32_t height, uint32_t channels, uint32_t seed, uint8_t *pixels);

/* Returns the FNV-1a hash of count bytes. */
uint64_t picture_hash(const uint8_t *bytes, size_t count);

#endif
