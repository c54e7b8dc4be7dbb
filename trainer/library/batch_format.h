/* batch_format.h - pixels of the loader, u8 [height, width, channels], to the values and the order that a
 * program wants. A value follows from the byte and its channel alone, so it is looked up.
 *
 * Threads: constant once made. */
#ifndef FSHARD_TRAINER_LIBRARY_BATCH_FORMAT_H
#define FSHARD_TRAINER_LIBRARY_BATCH_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/library/fshard_loader.h"

typedef struct BatchFormat {
    uint32_t channels;
    size_t element_bytes;
    bool planes;            /* [channels, height, width] */
    bool same;              /* bytes in the order that they have: nothing is to be done */
    uint32_t table[4][256]; /* of each channel: the value of a byte, in the lower element_bytes */
} BatchFormat;

/* Makes the format: value = (byte / 255 - mean) / deviation; of FSH_LOADER_U8 the byte. */
void batch_format_make(BatchFormat *format, FshLoaderElement element, bool planes, uint32_t channels,
                       const double *mean, const double *deviation);
/* Writes one image of so many pixels to target, [pixels, channels] or [channels, pixels]. */
void batch_format_image(const BatchFormat *format, const uint8_t *source, size_t pixels, void *target);

#endif
