/* icc.h - colour profiles, as far as photographs need them: what one says about itself, and the conversion to
 * sRGB for those that are a matrix and three curves (cameras, displays, Adobe RGB), or one curve (gray).
 * Others are libvips' work. Bytes may be hostile; nothing outside them is read. Source: ICC.1:2022, sections
 * 7.2 (header), 7.3 (tag table), 10.6 (curves), 10.18 (parametric curves), 10.31 (XYZ). */
#ifndef FSHARD_IMAGING_ICC_H
#define FSHARD_IMAGING_ICC_H

#include "imaging/image.h"

/* Whether the profile is for gray (channels 1) or RGB (3) data. */
bool icc_profile_matches(const void *profile, size_t length, uint32_t channels);

/* Whether its description calls it sRGB, so that converting to sRGB would change nothing. */
bool icc_profile_is_srgb(const void *profile, size_t length);

/* A profile made ready. 20 kB; no pointers. Zeroed before its first use, then good for one profile after
 * another. */
typedef struct IccConversion {
    uint32_t channels;
    float linear[3][256]; /* a sample's light, 0..1; gray uses the first */
    float matrix[3][3];   /* [to][from], the file's linear RGB to linear sRGB */
    /* linear sRGB, 0..1 in equal steps, to a sample: a step is at most a fifth of one */
    uint8_t encoded[1 << 14];
} IccConversion;

/* False if the profile is of another kind, is damaged, or does not match channels (1 or 3). The same meaning
 * as relative colorimetric intent in Little CMS, within a level (two in the dark). */
bool icc_conversion_prepare(const void *profile, size_t length, uint32_t channels, IccConversion *conversion);

/* Converts in place. image's channels are the conversion's. */
void icc_conversion_apply(const IccConversion *conversion, Image *image);

#endif
