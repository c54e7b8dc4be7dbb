/* image_names.h - which names of files are those of images, by their extensions alone. */
#ifndef FSHARD_COMMON_IMAGE_NAMES_H
#define FSHARD_COMMON_IMAGE_NAMES_H

/* Returns the format that the extension of path promises, in any case: "jpeg", "png", …, "other" for one that
 * is not read here; static. NULL: the name is not that of an image. A dot at the beginning of a name begins
 * no extension. */
const char *image_name_kind(const char *path);

#endif
