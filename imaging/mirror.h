/* mirror.h - reverses rows of pixels from left to right.
 *
 * Threads: no state. */
#ifndef FSHARD_IMAGING_MIRROR_H
#define FSHARD_IMAGING_MIRROR_H

#include <stddef.h>
#include <stdint.h>

/* Writes the `width` pixels of source, of `channels` (1 or 3) bytes each, to target in reverse order. Reads
 * and writes nothing outside; the two must not overlap. */
void image_mirror_row(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);

/* Does the same in plain C: the definition that the fast version is tested against. */
void image_mirror_row_portable(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);

#ifdef FSHARD_RESAMPLE_X86
/* Does the same on processors with AVX2. */
void image_mirror_row_avx2(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);
#endif

#endif
