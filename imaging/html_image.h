/* html_image.h - images inside a page of common/html.h, as data: URIs. Threads: one object, one thread. */
#ifndef FSHARD_IMAGING_HTML_IMAGE_H
#define FSHARD_IMAGING_HTML_IMAGE_H

#include "common/html.h"
#include "imaging/encode.h"

/* What encodes them, kept from image to image. Begin with the first two members alone. */
typedef struct HtmlImages {
    int quality;                  /* of JPEG, 1..100 */
    ImageSubsampling subsampling; /* of its colours */
    ImageEncoder *encoder;        /* owned; made at the first image */
    Buffer jpeg;
} HtmlImages;

/* An <img> of the image's size, as JPEG. alt is escaped. */
void html_add_image(HtmlPage *page, HtmlImages *images, const Image *image, const char *alt,
                    size_t alt_bytes);
void html_images_free(HtmlImages *images);

#endif
