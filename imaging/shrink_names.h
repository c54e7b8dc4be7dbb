/* shrink_names.h - under which name an image is written, and who gets a name that two want.
 *
 * The name decides the format of the output, the content that of the input:
 *   --format keep    .jpg .jpeg .jpe .jfif .png .webp   the same name, in that format
 *                    .heic .heif .avif .jp2             JPEG, the extension becomes .jpg
 *                    .gif .bmp .tif .tiff .pnm …        PNG, the extension becomes .png
 *                    any other name                     the same name, in the format of its content
 *   --format jpeg    a name of that format is kept, any other image extension becomes .jpg; a name without
 *                    one gets it
 *
 * Of two sources that would be written to one name, the one that has this name already gets it, else the
 * first in order; the other is told and left out. */
#ifndef FSHARD_IMAGING_SHRINK_NAMES_H
#define FSHARD_IMAGING_SHRINK_NAMES_H

#include <limits.h>

#include "imaging/image.h"

/* format: IMAGE_UNKNOWN keeps, else what all images become. *format_ret: what the name of target promises;
 * IMAGE_UNKNOWN: nothing. FSH_ERR_MEMORY: the new name is longer than PATH_MAX. */
FshStatus shrink_name_target(const char *path, ImageFormat format, char target[PATH_MAX],
                             ImageFormat *format_ret, FshError *error);

/* Names that are given away. Where sources come in byte order of their paths, only those that another can
 * still want are remembered: a handful. Else all of them, by a hash: 16 to 32 bytes each. */
typedef struct NameClaims NameClaims;

FshStatus name_claims_new(NameClaims **claims, bool sorted, FshError *error);
/* Gives target to path, sources in their order. *taken_ret: it was given away before; then *owner_ret is the
 * path that has it, until the next call, or NULL where that is not remembered (unsorted). Sorted sources
 * whose target is their own path need no claim (but may make one): whether a source has the name that another
 * is to get is for the caller to look up. FSH_ERR_MEMORY. */
FshStatus name_claims_take(NameClaims *claims, const char *path, const char *target, bool *taken_ret,
                           const char **owner_ret, FshError *error);
/* Whether target was given away; unsorted only. */
bool name_claims_has(const NameClaims *claims, const char *target);
void name_claims_free(NameClaims **claims);

#endif
