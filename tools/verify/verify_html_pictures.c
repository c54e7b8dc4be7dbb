#include <inttypes.h>
#include <string.h>

#include "imaging/html_image.h"
#include "tools/verify/verify_html_parts.h"

static void add_place(HtmlPage *page, const Thumb *thumb)
{
    char where[512];
    html_add_string(page, fsh_sample_where(thumb->split, thumb->index, where, sizeof where));
}

/* Adds class or key in bold, then what there is to say, muted. */
static void add_caption(HtmlPage *page, const Thumb *thumb)
{
    const FshManifest *manifest = fsh_manifest(thumb->split->dataset);
    const FshSample *sample = &thumb->sample;
    const bool named = sample->label >= 0 && (uint64_t)sample->label < manifest->class_count;
    char name[1280];
    html_add(page, "<figcaption><b>");
    if (named)
        html_add_string(page, fsh_class_display(manifest, (size_t)sample->label, name, sizeof name));
    else if (sample->field_count)
        html_add_text(page, sample->key, sample->key_bytes);
    else
        add_place(page, thumb);
    html_add(page, "</b>");
    if (thumb->note[0]) {
        html_add(page, "<br><em>");
        html_add_string(page, thumb->note);
        html_add(page, "</em>");
    }
    html_add(page, "<br><span class=\"key\">");
    if (named) {
        html_add_text(page, sample->key, sample->key_bytes);
        html_add(page, "<br>");
    }
    html_add_string(page, thumb->split->info->name);
    html_add(page, " %" PRIu64, thumb->index);
    if (sample->field_count && sample->fields[0].width)
        html_add(page, " · %" PRIu32 "×%" PRIu32 " %s", sample->fields[0].width, sample->fields[0].height,
                 fsh_codec_name(sample->fields[0].codec));
    html_add(page, "</span></figcaption>");
}

static void add_side(HtmlPage *page, HtmlImages *images, const Thumb *thumb, unsigned side, bool crops)
{
    const FshSample *sample = &thumb->sample;
    const Image *image = crops ? &thumb->crop[side] : &thumb->images[side];
    if (sample->field_count && thumb->images[side].width) {
        html_add_image(page, images, image, sample->key, sample->key_bytes);
        return;
    }
    html_add(page, "<div class=\"none\">");
    html_add_string(page, thumb->reason);
    html_add(page, "</div>");
}

void verify_html_add_pictures(HtmlPage *page, const Thumbs *thumbs, bool crops)
{
    HtmlImages images = {.quality = PAGE_QUALITY};
    unsigned most = 1;
    for (size_t i = 0; i < thumbs->count; i++)
        most = thumbs->items[i].sample.field_count > most ? thumbs->items[i].sample.field_count : most;
    html_add(page, "<div class=\"sheet%s\">", most > 1 ? " pairs" : "");
    for (size_t i = 0; i < thumbs->count; i++) {
        const Thumb *thumb = &thumbs->items[i];
        const FshManifest *manifest = fsh_manifest(thumb->split->dataset);
        const unsigned sides = thumb->sample.field_count;
        html_add(page, sides > 1 ? "<figure><div class=\"sides\">" : "<figure>");
        for (unsigned j = 0; j < sides || j == 0; j++) {
            if (sides > 1)
                html_add(page, "<div>");
            add_side(page, &images, thumb, j, crops);
            if (sides > 1) {
                html_add(page, "<small>");
                html_add_string(page, j < manifest->field_count ? manifest->field_names[j] : "");
                html_add(page, "</small></div>");
            }
        }
        html_add(page, sides > 1 ? "</div>" : "");
        add_caption(page, thumb);
        html_add(page, "</figure>");
    }
    html_add(page, "</div>");
    html_images_free(&images);
}
