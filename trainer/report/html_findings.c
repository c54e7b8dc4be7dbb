#include "trainer/report/html_findings.h"

#include <math.h>
#include <string.h>

#include "imaging/html_image.h"
#include "trainer/report/html_classes.h"

enum { QUALITY = 90 };

static void add_key(HtmlPage *page, const Example *example)
{
    html_add(page, "<span class=\"key\">");
    html_add_text(page, example->key, example->key_bytes);
    html_add(page, "</span>");
}

static void add_mistakes(HtmlPage *page, HtmlImages *images, const Example *const *examples, size_t count,
                         const char *const *names)
{
    html_add(page, "<h2>Mistakes it was surest of</h2><div class=\"sheet\">");
    for (size_t i = 0; i < count; i++) {
        const Example *example = examples[i];
        html_add(page, "<figure>");
        html_add_image(page, images, &example->image, example->key, example->key_bytes);
        html_add(page, "<figcaption><em>");
        html_add_class_name(page, names, (uint64_t)example->prediction);
        html_add(page, "</em> %.1f&nbsp;%%<br>is <b>", 100 * example->probability);
        html_add_class_name(page, names, (uint64_t)example->label);
        html_add(page, "</b><br>");
        add_key(page, example);
        html_add(page, "</figcaption></figure>");
    }
    html_add(page, "</div>");
}

static void add_side(HtmlPage *page, HtmlImages *images, const Image *image, const char *name)
{
    html_add(page, "<div>");
    html_add_image(page, images, image, name, strlen(name));
    html_add(page, "<small>%s</small></div>", name);
}

static void add_triplets(HtmlPage *page, HtmlImages *images, const Example *const *examples, size_t count)
{
    static const char *const reasons[] = {[EXAMPLE_WRONG] = "",
                                          [EXAMPLE_SPREAD] = "",
                                          [EXAMPLE_LEAST_GAIN] = "least gain",
                                          [EXAMPLE_MOST_GAIN] = "most gain"};
    html_add(page,
             "<h2>Restored images</h2><p class=\"note\">Of each the part where input and target differ most, "
             "pixel for pixel; PSNR is that of the whole image.</p><div class=\"triplets\">");
    for (size_t i = 0; i < count; i++) {
        const Example *example = examples[i];
        const double gain = example->psnr - example->input_psnr;
        html_add(page, "<figure class=\"triplet\"><div class=\"sides\">");
        add_side(page, images, &example->input, "input");
        add_side(page, images, &example->output, "output");
        add_side(page, images, &example->target, "target");
        html_add(page, "</div><figcaption>PSNR %.2f → <b>%.2f dB</b>", example->input_psnr, example->psnr);
        if (isfinite(gain))
            html_add(page, " <span class=\"%s\">%+.2f</span>", gain < 0 ? "bad" : "ok", gain);
        if (reasons[example->reason][0])
            html_add(page, " <span class=\"tag\">%s</span>", reasons[example->reason]);
        html_add(page, "<br>");
        add_key(page, example);
        html_add(page, "</figcaption></figure>");
    }
    html_add(page, "</div>");
}

void html_add_findings(HtmlPage *page, const Findings *findings, const char *const *class_names)
{
    const Example *examples[FINDINGS_EXAMPLES_MAX];
    const size_t count = findings_examples(findings, examples);
    HtmlImages images = {.quality = QUALITY, .subsampling = IMAGE_SUBSAMPLING_444};
    if (count && examples[0]->reason == EXAMPLE_WRONG)
        add_mistakes(page, &images, examples, count, class_names);
    else if (count)
        add_triplets(page, &images, examples, count);
    html_images_free(&images);
}
