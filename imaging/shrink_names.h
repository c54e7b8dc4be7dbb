/* shrink_names.h - chooses the name that an image is written under, and which of two sources gets a name that
 * both want.
 *
 * The name decides the format of the output, the content that of the input:
 *   --format keep    .jpg .jpeg .jpe .jfif .png .webp   the same name, in that format
 *                    .heic .heif .avif .jp2             JPEG, the extension becomes .jpg
 *                    .gif .bmp .tif .tiff .pnm …        PNG, the extension becomes .png
 *                    any other name                     the same name, in the format of its content
 *   --format jpeg    a name of that format is kept, any other image extension becomes .jpg; a name without
 *                    one gets it
 *
 * Of two sources that would be written to one name, the one that already has this name gets it, else the
 * first in order; the other is left out and reported. */
#ifndef FSHARD_IMAGING_SHRINK_NAMES_H
#define FSHARD_IMAGING_SHRINK_NAMES_H

#include <limits.h>

#include "imaging/image.h"

/* Writes the name of path's output to target. format: what all images become; IMAGE_UNKNOWN: keep. Sets
 * *format_ret to the format that the target's name promises, IMAGE_UNKNOWN if none. FSH_ERR_MEMORY: the new
 * name is longer than PATH_MAX. */
FshStatus shrink_name_target(const char *path, ImageFormat format, char target[PATH_MAX],
                             ImageFormat *format_ret, FshError *error);

/* The names already given to sources. If the sources come sorted in byte order of their paths, only the few
 * names that a later source can still want are kept; otherwise all of them are, as hashes of 16 to 32 bytes
 * each. */
typedef struct NameClaims NameClaims;

FshStatus name_claims_new(NameClaims **claims, bool sorted, FshError *error);
/* Gives the name target to the source path; call it for the sources in their order. Sets *taken_ret to true
 * if the name was given away before; *owner_ret is then the path that has it, valid until the next call, or
 * NULL if paths are not kept (unsorted). Sorted sources whose target is their own path need no claim, but may
 * make one: the caller looks up whether such a source exists. FSH_ERR_MEMORY. */
FshStatus name_claims_take(NameClaims *claims, const char *path, const char *target, bool *taken_ret,
                           const char **owner_ret, FshError *error);
/* Returns whether target was given away; for unsorted sources only. */
bool name_claims_has(const NameClaims *claims, const char *target);
void name_claims_free(NameClaims **claims);

#endif
