#include "tools/verify/verify_html.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/progress.h"
#include "imaging/html_image.h"
#include "tools/verify/verify_report.h"

enum {
    PAGE_THUMBS = 96,
    PAGE_EDGE_PX = 160,
    PAGE_GAP_PX = 8, /* room beside it */
    PAGE_QUALITY = 80,
    PAGE_PROBLEMS = 1000,
    CHART_WIDTH = 900, /* of the drawing, in its own units */
    CHART_HEIGHT = 160,
    CHART_BARS = 12, /* fewer are no wider than as many */
};

/* ---- pictures ---- */

static void add_caption(HtmlPage *page, const FshDataset *dataset, const Thumb *thumb)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    const FshSample *sample = &thumb->sample;
    char where[512];
    html_add(page, "<figcaption><b>");
    if (sample->field_count)
        html_add_text(page, sample->key, sample->key_bytes);
    else
        html_add_string(page, fsh_sample_where(thumb->split, thumb->index, where, sizeof where));
    html_add(page, "</b><br>");
    html_add_string(page, thumb->split->info->name);
    if (sample->label >= 0 && (uint64_t)sample->label < manifest->class_count) {
        html_add(page, " · ");
        html_add_string(page, manifest->class_names[sample->label]);
    }
    if (sample->field_count && sample->fields[0].width)
        html_add(page, " · %" PRIu32 "×%" PRIu32 " %s", sample->fields[0].width, sample->fields[0].height,
                 fsh_codec_name(sample->fields[0].codec));
    if (thumb->reason[0]) {
        html_add(page, "<br><em>");
        html_add_string(page, thumb->reason);
        html_add(page, "</em>");
    }
    html_add(page, "</figcaption>");
}

/* Thumbnails; of pairs the middle of each side, pixel for pixel, where blur can be seen. */
static void add_samples(HtmlPage *page, const FshDataset *dataset, const Thumbs *thumbs, bool crops)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    HtmlImages images = {.quality = PAGE_QUALITY};
    html_add(page,
             crops ? "<h2>Pairs</h2><p>The middle of each side, pixel for pixel: " : "<h2>Samples</h2><p>");
    for (size_t i = 0; i < manifest->field_count && crops; i++) {
        html_add(page, i ? ", " : "");
        html_add_string(page, manifest->field_names[i]);
    }
    html_add(page, "</p><div class=\"sheet\">");
    for (size_t i = 0; i < thumbs->count; i++) {
        const Thumb *thumb = &thumbs->items[i];
        const unsigned columns = thumb->sample.field_count > 2 ? thumb->sample.field_count : 2;
        html_add(page, "<figure style=\"max-width:%upx\">", columns * (PAGE_EDGE_PX + PAGE_GAP_PX));
        for (unsigned j = 0; j < thumb->sample.field_count; j++) {
            const Image *image = crops ? &thumb->crop[j] : &thumb->images[j];
            if (thumb->images[j].width)
                html_add_image(page, &images, image, thumb->sample.key, thumb->sample.key_bytes);
        }
        add_caption(page, dataset, thumb);
        html_add(page, "</figure>");
    }
    html_add(page, "</div>");
    html_images_free(&images);
}

/* ---- charts ---- */

static double bar_step(size_t bars)
{
    return (double)CHART_WIDTH / (double)(bars < CHART_BARS ? CHART_BARS : bars);
}

/* One bar of `count`, with a label that appears under the pointer. */
static void add_bar(HtmlPage *page, size_t at, size_t bars, uint64_t count, uint64_t most, const char *label)
{
    const double step = bar_step(bars), height = most ? (double)count / (double)most * CHART_HEIGHT : 0;
    html_add(page, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>", (double)at * step,
             CHART_HEIGHT - height, step > 4 ? step - 2 : step, height);
    html_add_string(page, label);
    html_add(page, ": %" PRIu64 "</title></rect>", count);
}

/* The bars have no scale: what the highest stands for is said beside the title. */
static void begin_chart(HtmlPage *page, const char *title, uint64_t most)
{
    char count[32];
    html_add(page, "<h3>");
    html_add_string(page, title);
    html_add(page, " <small>highest bar: %s</small>", progress_format_count(count, sizeof count, most));
    html_add(page, "</h3><svg viewBox=\"0 0 %d %d\" role=\"img\">", CHART_WIDTH, CHART_HEIGHT + 18);
}

/* The ends of the axis below the bars. */
static void end_chart(HtmlPage *page, size_t bars, const char *first, const char *last)
{
    html_add(page, "<text x=\"0\" y=\"%d\">", CHART_HEIGHT + 14);
    html_add_string(page, first);
    html_add(page, "</text>");
    if (bars > 1) {
        html_add(page, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"end\">", (double)bars * bar_step(bars),
                 CHART_HEIGHT + 14);
        html_add_string(page, last);
        html_add(page, "</text>");
    }
    html_add(page, "</svg>");
}

static void add_histogram(HtmlPage *page, const char *title, const Histogram *histogram, bool bytes)
{
    size_t begin, end;
    uint64_t most = 0;
    char first[64], last[64];
    histogram_range(histogram, &begin, &end);
    if (begin == end)
        return;
    for (size_t i = begin; i < end; i++)
        most = histogram->counts[i] > most ? histogram->counts[i] : most;
    begin_chart(page, title, most);
    for (size_t i = begin; i < end; i++) {
        char label[128];
        if (bytes)
            (void)snprintf(label, sizeof label, "from %s",
                           progress_format_bytes(first, sizeof first, histogram_bin_begin(i)));
        else
            (void)snprintf(label, sizeof label, "from %" PRIu64 " px", histogram_bin_begin(i));
        add_bar(page, i - begin, end - begin, histogram->counts[i], most, label);
    }
    if (bytes) {
        (void)progress_format_bytes(first, sizeof first, histogram->minimum);
        (void)progress_format_bytes(last, sizeof last, histogram->maximum);
    } else {
        (void)snprintf(first, sizeof first, "%" PRIu64 " px", histogram->minimum);
        (void)snprintf(last, sizeof last, "%" PRIu64 " px", histogram->maximum);
    }
    end_chart(page, end - begin, first, last);
}

static void add_classes(HtmlPage *page, const VerifyReport *report)
{
    const FshManifest *manifest = &report->manifest;
    if (manifest->class_count == 0)
        return;
    html_add(page, "<h2>Classes</h2>");
    for (size_t i = 0; i < manifest->split_count; i++) {
        const VerifySplit *split = &report->splits[i];
        uint64_t most = 0;
        for (size_t c = 0; c < manifest->class_count; c++)
            most = split->class_counts[c] > most ? split->class_counts[c] : most;
        begin_chart(page, split->name, most);
        for (size_t c = 0; c < manifest->class_count; c++)
            add_bar(page, c, manifest->class_count, split->class_counts[c], most, manifest->class_names[c]);
        end_chart(page, manifest->class_count, manifest->class_names[0],
                  manifest->class_names[manifest->class_count - 1]);
    }
}

/* ---- tables ---- */

static void add_summary(HtmlPage *page, const VerifyReport *report)
{
    char samples[32], bytes[32];
    html_add(page, "<table><tr><th>split<th>files<th>samples<th>bytes");
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        const VerifySplit *split = &report->splits[i];
        html_add(page, "<tr><td>");
        html_add_string(page, split->name);
        html_add(page, "<td>%" PRIu64 "<td>%s<td>%s", split->file_count,
                 progress_format_count(samples, sizeof samples, split->sample_count),
                 progress_format_bytes(bytes, sizeof bytes, split->bytes));
    }
    html_add(page, "</table>");
    if (report->image_count == 0)
        return;
    html_add(page, "<p>%s images:", progress_format_count(samples, sizeof samples, report->image_count));
    for (unsigned codec = 0; codec < VERIFY_CODECS; codec++) {
        if (report->codec_counts[codec])
            html_add(page, " %s %s,",
                     progress_format_count(samples, sizeof samples, report->codec_counts[codec]),
                     fsh_codec_name((FshCodec)codec));
    }
    html_add(page, " %s gray.", progress_format_count(samples, sizeof samples, report->gray_count));
    if (report->pair_count)
        html_add(page, " Pairs: likeness %.3f at least, %.3f on average.", report->likeness_least,
                 report->likeness_sum / (double)report->pair_count);
    html_add(page, "</p>");
}

static void add_cell(HtmlPage *page, const char *text)
{
    html_add(page, "<td>");
    if (text)
        html_add_string(page, text);
}

static void add_problems(HtmlPage *page, const char *title, const VerifyProblem *problems, size_t count)
{
    if (count == 0)
        return;
    char text[32];
    html_add(page, "<h2>%s: %s</h2><table><tr><th>file<th>record<th>key<th>source<th>what", title,
             progress_format_count(text, sizeof text, count));
    for (size_t i = 0; i < count && i < PAGE_PROBLEMS; i++) {
        const VerifyProblem *problem = &problems[i];
        html_add(page, "<tr>");
        add_cell(page, problem->file);
        if (problem->record >= 0)
            html_add(page, "<td>%" PRId64, problem->record);
        else
            html_add(page, "<td>");
        add_cell(page, problem->key);
        add_cell(page, problem->source);
        add_cell(page, problem->reason);
    }
    html_add(page, "</table>");
    if (count > PAGE_PROBLEMS)
        html_add(page, "<p>… and %s more: --json lists them.</p>",
                 progress_format_count(text, sizeof text, count - PAGE_PROBLEMS));
}

static void add_heading(HtmlPage *page, const VerifyReport *report, const VerifyOptions *options)
{
    char count[32], claim[256], title[PATH_MAX + 16];
    (void)snprintf(title, sizeof title, "fverify: %s", report->path);
    html_begin(page, title, 0);
    html_add(page, "<h1>");
    html_add_string(page, report->path);
    if (report->problem_count)
        html_add(page, "</h1><p class=\"bad\">%s problem%s</p>",
                 progress_format_count(count, sizeof count, report->problem_count),
                 report->problem_count == 1 ? "" : "s");
    else
        html_add(page, "</h1><p class=\"ok\">ok</p>");
    if (!report->opened)
        return;
    const FshManifest *manifest = &report->manifest;
    html_add(page, "<p>%s%s", verify_container_name(manifest->container),
             manifest->kind == FSH_KIND_PAIRS ? " of pairs" : "");
    if (manifest->id[0]) /* containers of others have none */
        html_add(page, ", id %s", manifest->id);
    html_add(page, "; %s.</p>", verify_claim(claim, sizeof claim, report, options));
}

/* ---- the page ---- */

FshStatus verify_write_html(const VerifyReport *report, const VerifyOptions *options,
                            const FshDataset *dataset, const char *path, bool force, FshError *error)
{
    HtmlPage page = {.error = error};
    Thumbs thumbs = {0};
    const bool crops = dataset && fsh_manifest(dataset)->kind == FSH_KIND_PAIRS;
    const ThumbOptions thumb_options = {.count = crops ? PAGE_THUMBS / 2 : PAGE_THUMBS,
                                        .edge = PAGE_EDGE_PX,
                                        .with_crops = crops,
                                        .jobs = options->jobs};
    if (dataset)
        page.status = thumbs_make(dataset, &thumb_options, &thumbs, error);
    add_heading(&page, report, options);
    if (report->opened)
        add_summary(&page, report);
    add_problems(&page, "Problems", report->problems, report->problem_count);
    add_problems(&page, "Notes", report->remarks, report->remark_count);
    if (report->opened)
        add_classes(&page, report);
    if (report->image_count) {
        html_add(&page, "<h2>Sizes</h2>");
        add_histogram(&page, "width", &report->widths, false);
        add_histogram(&page, "height", &report->heights, false);
        add_histogram(&page, "bytes", &report->bytes, true);
    }
    if (dataset)
        add_samples(&page, dataset, &thumbs, crops);
    const FshStatus status = html_write(&page, path, force);
    thumbs_free(&thumbs);
    return status;
}
