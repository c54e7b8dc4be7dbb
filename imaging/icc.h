/* icc.h - ICC profiles of photographs: which colours a profile is for, and the conversion to sRGB from
 * profiles that are a matrix and three curves (cameras, displays, Adobe RGB) or one curve (gray). libvips
 * converts from other kinds. Bytes may be hostile; nothing outside them is read. Source: ICC.1:2022, sections
 * 7.2 (header), 7.3 (tag table), 10.6 (curves), 10.18 (parametric curves), 10.31 (XYZ). */
#ifndef FSHARD_IMAGING_ICC_H
#define FSHARD_IMAGING_ICC_H

#include "imaging/image.h"

/* Returns whether the profile is for data of this many channels: gray (1) or RGB (3). */
bool icc_profile_matches(const void *profile, size_t length, uint32_t channels);

/* Returns whether the profile's description calls it sRGB, so that converting to sRGB would change
 * nothing. */
bool icc_profile_is_srgb(const void *profile, size_t length);

/* A profile prepared for conversion. 20 kB; no pointers. Zero it before its first use; it can be prepared
 * again for another profile. */
typedef struct IccConversion {
    uint32_t channels;
    float linear[3][256]; /* sample to light, 0..1; gray uses the first */
    float matrix[3][3];   /* [to][from], the file's linear RGB to linear sRGB */
    /* linear sRGB, 0..1 in equal steps, to a sample: a step is at most a fifth of a level */
    uint8_t encoded[1 << 14];
} IccConversion;

/* Prepares the conversion. Returns false if the profile is of another kind, is damaged, or does not match
 * channels (1 or 3). Results are those of Little CMS with relative colorimetric intent, within one level (two
 * in dark colours). */
bool icc_conversion_prepare(const void *profile, size_t length, uint32_t channels, IccConversion *conversion);

/* Converts image to sRGB in place. image must have the conversion's channels. */
void icc_conversion_apply(const IccConversion *conversion, Image *image);

#endif
