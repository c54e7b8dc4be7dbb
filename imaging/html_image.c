#include "imaging/html_image.h"

#include <inttypes.h>

enum { SMALL_PX = 100 };

void html_add_image(HtmlPage *page, HtmlImages *images, const Image *image, const char *alt, size_t alt_bytes)
{
    const ImageEncodeOptions options = {
        .format = IMAGE_JPEG, .quality = images->quality, .subsampling = images->subsampling};
    if (!page->status && !images->encoder)
        page->status = image_encoder_new(&images->encoder, page->error);
    if (!page->status)
        page->status = image_encode(images->encoder, image, &options, &images->jpeg, page->error);
    if (page->status)
        return;
    /* An image that is shown enlarged shows its pixels. */
    html_add(page, "<img%s width=\"%" PRIu32 "\" height=\"%" PRIu32 "\" alt=\"",
             image->width < SMALL_PX && image->height < SMALL_PX ? " class=\"small\"" : "", image->width,
             image->height);
    html_add_text(page, alt, alt_bytes);
    html_add(page, "\" src=\"data:image/jpeg;base64,");
    html_add_base64(page, images->jpeg.bytes, images->jpeg.length);
    html_add(page, "\">");
}

void html_images_free(HtmlImages *images)
{
    buffer_free(&images->jpeg);
    image_encoder_free(&images->encoder);
}
