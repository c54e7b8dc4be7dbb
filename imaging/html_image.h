/* html_image.h - images inside a page of common/html.h, as data: URIs. Threads: one object, one thread. */
#ifndef FSHARD_IMAGING_HTML_IMAGE_H
#define FSHARD_IMAGING_HTML_IMAGE_H

#include "common/html.h"
#include "imaging/encode.h"

/* The encoder and its buffer, kept from image to image. The caller sets the first two members and zeroes the
 * rest. */
typedef struct HtmlImages {
    int quality;                  /* of JPEG, 1..100 */
    ImageSubsampling subsampling; /* of JPEG */
    ImageEncoder *encoder;        /* made at the first image; owned */
    Buffer jpeg;
} HtmlImages;

/* Adds an <img> to the page: the image as JPEG, at its own size. alt is escaped. */
void html_add_image(HtmlPage *page, HtmlImages *images, const Image *image, const char *alt,
                    size_t alt_bytes);
void html_images_free(HtmlImages *images);

#endif
