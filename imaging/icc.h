/* icc.h - what an ICC profile says about itself, without a colour engine. Bytes may be hostile.
 * Source: ICC.1:2022, sections 7.2 (header) and 7.3 (tag table). */
#ifndef FSHARD_IMAGING_ICC_H
#define FSHARD_IMAGING_ICC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the profile is for gray (channels 1) or RGB (3) data. */
bool icc_profile_matches(const void *profile, size_t length, uint32_t channels);

/* Whether its description calls it sRGB, so that converting to sRGB would change nothing. */
bool icc_profile_is_srgb(const void *profile, size_t length);

#endif
