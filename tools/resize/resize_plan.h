/* resize_plan.h - which files of a folder are images, and under which name each is written.
 *
 * The name decides the format of the output, the content that of the input:
 *   .jpg .jpeg .jpe .jfif                        JPEG, same name
 *   .png                                         PNG, same name
 *   .webp .heic .heif .avif .jp2                 JPEG, the extension becomes .jpg
 *   .gif .bmp .tif .tiff .ppm .pgm .pbm .pnm     PNG, the extension becomes .png
 *   any other name, if the content is an image   JPEG or PNG by resize_format_for, same name
 *   any other file                               left alone, counted */
#ifndef FSHARD_RESIZE_PLAN_H
#define FSHARD_RESIZE_PLAN_H

#include "common/walk.h"
#include "imaging/image.h"

typedef struct ResizeItem {
    const FileEntry *source; /* in the plan's list */
    const char *target;      /* relative to the destination; the source's own path, or owned by the plan */
    ImageFormat format;      /* IMAGE_JPEG, IMAGE_PNG; IMAGE_UNKNOWN: by content */
    const char *conflict; /* path of the source that takes target's name, or that of a folder; NULL: none */
} ResizeItem;

typedef struct ResizePlan {
    FileList list;
    ResizeItem *items; /* in byte order of the sources' paths */
    uint64_t count;
    uint64_t other_count; /* files that are no images */
    uint64_t bytes;       /* of all items */
} ResizePlan;

/* Walks root. FSH_ERR_NOT_FOUND: no such folder, or no image in it. Files that cannot be read are items, or the list's
 * problems: both fail later, by name. */
FshStatus resize_plan_make(ResizePlan *plan, const char *root, int jobs, FshError *error);
void resize_plan_free(ResizePlan *plan);

#endif
