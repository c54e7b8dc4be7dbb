/* mirror.h - rows of pixels from right to left.
 *
 * Threads: no state. */
#ifndef FSHARD_IMAGING_MIRROR_H
#define FSHARD_IMAGING_MIRROR_H

#include <stddef.h>
#include <stdint.h>

/* target: width pixels of channels (1 or 3) bytes each, source's in reverse order. Nothing outside is read or
 * written; the two do not overlap. */
void image_mirror_row(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);

/* The definition, which the fast one is held against. */
void image_mirror_row_portable(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);

#ifdef FSHARD_RESAMPLE_X86
/* Only where the processor has AVX2. */
void image_mirror_row_avx2(const uint8_t *source, size_t width, uint32_t channels, uint8_t *target);
#endif

#endif
