#include "tools/verify/verify_html.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "imaging/encode.h"
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

/* The page as it grows; after a failure nothing more is added. */
typedef struct Page {
    Buffer text;
    ImageEncoder *encoder;
    Buffer jpeg;
    FshStatus status;
    FshError *error;
} Page;

/* ---- text ---- */

/* Bytes of the UTF-8 character at text, or 0: none, or a control character. */
static size_t character_bytes(const unsigned char *text, size_t length)
{
    const unsigned char first = text[0];
    const size_t bytes = first < 0x80                    ? 1
                         : first >= 0xC2 && first < 0xE0 ? 2
                         : first >= 0xE0 && first < 0xF0 ? 3
                         : first >= 0xF0 && first < 0xF5 ? 4
                                                         : 0;
    if (bytes == 0 || bytes > length || first < 32 || first == 127)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    const unsigned char second = bytes > 1 ? text[1] : 0;
    if ((first == 0xC2 && second < 0xA0) || (first == 0xE0 && second < 0xA0) ||
        (first == 0xED && second > 0x9F) || (first == 0xF0 && second < 0x90) ||
        (first == 0xF4 && second > 0x8F))
        return 0; /* C1 controls, overlong forms, surrogates, beyond Unicode */
    return bytes;
}

FshStatus html_append_text(Buffer *page, const char *text, size_t length, FshError *error)
{
    static const struct {
        char character;
        const char *text;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < length && !status;) {
        const size_t bytes = character_bytes((const unsigned char *)text + i, length - i);
        const char *piece = bytes ? text + i : "\xEF\xBF\xBD";
        size_t piece_bytes = bytes ? bytes : 3;
        for (size_t e = 0; e < sizeof escapes / sizeof *escapes && bytes == 1; e++) {
            if (text[i] == escapes[e].character) {
                piece = escapes[e].text;
                piece_bytes = strlen(piece);
            }
        }
        status = buffer_append(page, piece, piece_bytes, error);
        i += bytes ? bytes : 1;
    }
    return status;
}

static void add_text(Page *page, const char *text, size_t length)
{
    if (!page->status)
        page->status = html_append_text(&page->text, text, length, page->error);
}

static void add_string(Page *page, const char *text)
{
    add_text(page, text, strlen(text));
}

/* Markup of our own, with numbers. Never with text of others. */
static void add(Page *page, const char *format, ...) FSH_PRINTF(2, 3);
static void add(Page *page, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    const int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (!page->status && length > 0)
        page->status = buffer_append(
            &page->text, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1, page->error);
}

/* ---- pictures ---- */

static void add_base64(Page *page, const uint8_t *bytes, size_t length)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length && !page->status; i += 3) {
        const size_t left = length - i;
        const uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? bytes[i + 2] : 0);
        const char text[4] = {digits[group >> 18], digits[group >> 12 & 63],
                              left > 1 ? digits[group >> 6 & 63] : '=', left > 2 ? digits[group & 63] : '='};
        page->status = buffer_append(&page->text, text, sizeof text, page->error);
    }
}

static void add_image(Page *page, const Image *image, const char *alt, size_t alt_bytes)
{
    const ImageEncodeOptions options = {.format = IMAGE_JPEG, .quality = PAGE_QUALITY};
    if (!page->status && !page->encoder)
        page->status = image_encoder_new(&page->encoder, page->error);
    if (!page->status)
        page->status = image_encode(page->encoder, image, &options, &page->jpeg, page->error);
    if (page->status)
        return;
    add(page, "<img width=\"%" PRIu32 "\" height=\"%" PRIu32 "\" alt=\"", image->width, image->height);
    add_text(page, alt, alt_bytes);
    add(page, "\" src=\"data:image/jpeg;base64,");
    add_base64(page, page->jpeg.bytes, page->jpeg.length);
    add(page, "\">");
}

static void add_caption(Page *page, const FshDataset *dataset, const Thumb *thumb)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    const FshSample *sample = &thumb->sample;
    char where[512];
    add(page, "<figcaption><b>");
    if (sample->field_count)
        add_text(page, sample->key, sample->key_bytes);
    else
        add_string(page, fsh_sample_where(thumb->split, thumb->index, where, sizeof where));
    add(page, "</b><br>");
    add_string(page, thumb->split->info->name);
    if (sample->label >= 0 && (uint64_t)sample->label < manifest->class_count) {
        add(page, " · ");
        add_string(page, manifest->class_names[sample->label]);
    }
    if (sample->field_count && sample->fields[0].width)
        add(page, " · %" PRIu32 "×%" PRIu32 " %s", sample->fields[0].width, sample->fields[0].height,
            fsh_codec_name(sample->fields[0].codec));
    if (thumb->reason[0]) {
        add(page, "<br><em>");
        add_string(page, thumb->reason);
        add(page, "</em>");
    }
    add(page, "</figcaption>");
}

/* Thumbnails; of pairs the middle of each side, pixel for pixel, where blur can be seen. */
static void add_samples(Page *page, const FshDataset *dataset, const Thumbs *thumbs, bool crops)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    add(page, crops ? "<h2>Pairs</h2><p>The middle of each side, pixel for pixel: " : "<h2>Samples</h2><p>");
    for (size_t i = 0; i < manifest->field_count && crops; i++) {
        add(page, i ? ", " : "");
        add_string(page, manifest->field_names[i]);
    }
    add(page, "</p><div class=\"sheet\">");
    for (size_t i = 0; i < thumbs->count; i++) {
        const Thumb *thumb = &thumbs->items[i];
        const unsigned columns = thumb->sample.field_count > 2 ? thumb->sample.field_count : 2;
        add(page, "<figure style=\"max-width:%upx\">", columns * (PAGE_EDGE_PX + PAGE_GAP_PX));
        for (unsigned j = 0; j < thumb->sample.field_count; j++) {
            const Image *image = crops ? &thumb->crop[j] : &thumb->images[j];
            if (thumb->images[j].width)
                add_image(page, image, thumb->sample.key, thumb->sample.key_bytes);
        }
        add_caption(page, dataset, thumb);
        add(page, "</figure>");
    }
    add(page, "</div>");
}

/* ---- charts ---- */

static double bar_step(size_t bars)
{
    return (double)CHART_WIDTH / (double)(bars < CHART_BARS ? CHART_BARS : bars);
}

/* One bar of `count`, with a label that appears under the pointer. */
static void add_bar(Page *page, size_t at, size_t bars, uint64_t count, uint64_t most, const char *label)
{
    const double step = bar_step(bars), height = most ? (double)count / (double)most * CHART_HEIGHT : 0;
    add(page, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>", (double)at * step,
        CHART_HEIGHT - height, step > 4 ? step - 2 : step, height);
    add_string(page, label);
    add(page, ": %" PRIu64 "</title></rect>", count);
}

/* The bars have no scale: what the highest stands for is said beside the title. */
static void begin_chart(Page *page, const char *title, uint64_t most)
{
    char count[32];
    add(page, "<h3>");
    add_string(page, title);
    add(page, " <small>highest bar: %s</small>", progress_format_count(count, sizeof count, most));
    add(page, "</h3><svg viewBox=\"0 0 %d %d\" role=\"img\">", CHART_WIDTH, CHART_HEIGHT + 18);
}

/* The ends of the axis below the bars. */
static void end_chart(Page *page, size_t bars, const char *first, const char *last)
{
    add(page, "<text x=\"0\" y=\"%d\">", CHART_HEIGHT + 14);
    add_string(page, first);
    add(page, "</text>");
    if (bars > 1) {
        add(page, "<text x=\"%.2f\" y=\"%d\" text-anchor=\"end\">", (double)bars * bar_step(bars),
            CHART_HEIGHT + 14);
        add_string(page, last);
        add(page, "</text>");
    }
    add(page, "</svg>");
}

static void add_histogram(Page *page, const char *title, const Histogram *histogram, bool bytes)
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

static void add_classes(Page *page, const VerifyReport *report)
{
    const FshManifest *manifest = &report->manifest;
    if (manifest->class_count == 0)
        return;
    add(page, "<h2>Classes</h2>");
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

static void add_summary(Page *page, const VerifyReport *report)
{
    char samples[32], bytes[32];
    add(page, "<table><tr><th>split<th>files<th>samples<th>bytes");
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        const VerifySplit *split = &report->splits[i];
        add(page, "<tr><td>");
        add_string(page, split->name);
        add(page, "<td>%" PRIu64 "<td>%s<td>%s", split->file_count,
            progress_format_count(samples, sizeof samples, split->sample_count),
            progress_format_bytes(bytes, sizeof bytes, split->bytes));
    }
    add(page, "</table>");
    if (report->image_count == 0)
        return;
    add(page, "<p>%s images:", progress_format_count(samples, sizeof samples, report->image_count));
    for (unsigned codec = 0; codec < VERIFY_CODECS; codec++) {
        if (report->codec_counts[codec])
            add(page, " %s %s,", progress_format_count(samples, sizeof samples, report->codec_counts[codec]),
                fsh_codec_name((FshCodec)codec));
    }
    add(page, " %s gray.", progress_format_count(samples, sizeof samples, report->gray_count));
    if (report->pair_count)
        add(page, " Pairs: likeness %.3f at least, %.3f on average.", report->likeness_least,
            report->likeness_sum / (double)report->pair_count);
    add(page, "</p>");
}

static void add_cell(Page *page, const char *text)
{
    add(page, "<td>");
    if (text)
        add_string(page, text);
}

static void add_problems(Page *page, const char *title, const VerifyProblem *problems, size_t count)
{
    if (count == 0)
        return;
    char text[32];
    add(page, "<h2>%s: %s</h2><table><tr><th>file<th>record<th>key<th>source<th>what", title,
        progress_format_count(text, sizeof text, count));
    for (size_t i = 0; i < count && i < PAGE_PROBLEMS; i++) {
        const VerifyProblem *problem = &problems[i];
        add(page, "<tr>");
        add_cell(page, problem->file);
        if (problem->record >= 0)
            add(page, "<td>%" PRId64, problem->record);
        else
            add(page, "<td>");
        add_cell(page, problem->key);
        add_cell(page, problem->source);
        add_cell(page, problem->reason);
    }
    add(page, "</table>");
    if (count > PAGE_PROBLEMS)
        add(page, "<p>… and %s more: --json lists them.</p>",
            progress_format_count(text, sizeof text, count - PAGE_PROBLEMS));
}

static void add_heading(Page *page, const VerifyReport *report, const VerifyOptions *options)
{
    char count[32], claim[256];
    add(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
              "<meta http-equiv=\"Content-Security-Policy\" "
              "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
              "<meta name=\"viewport\" content=\"width=device-width\"><title>fverify: ");
    add_string(page, report->path);
    add(page, "</title><style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1200px;"
              "padding:0 1em;color:#222;background:#fff}table{border-collapse:collapse}"
              "th,td{text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid #ddd;"
              "overflow-wrap:anywhere}th{white-space:nowrap}small{color:#555;font-weight:normal}svg{width:"
              "100%%;max-width:900px;display:block}rect{fill:#3b6ea5}");
    add(page, "text{font-size:12px;fill:#555}.sheet{display:flex;flex-wrap:wrap;gap:12px}"
              "figure{margin:0;font-size:12px;overflow-wrap:anywhere}"
              "img{margin-right:4px;vertical-align:bottom}.ok{color:#1a7f37}.bad,em{color:#b3261e}"
              "</style></head><body><h1>");
    add_string(page, report->path);
    if (report->problem_count)
        add(page, "</h1><p class=\"bad\">%s problem%s</p>",
            progress_format_count(count, sizeof count, report->problem_count),
            report->problem_count == 1 ? "" : "s");
    else
        add(page, "</h1><p class=\"ok\">ok</p>");
    if (!report->opened)
        return;
    const FshManifest *manifest = &report->manifest;
    add(page, "<p>%s%s", verify_container_name(manifest->container),
        manifest->kind == FSH_KIND_PAIRS ? " of pairs" : "");
    if (manifest->id[0]) /* containers of others have none */
        add(page, ", id %s", manifest->id);
    add(page, "; %s.</p>", verify_claim(claim, sizeof claim, report, options));
}

/* ---- the page ---- */

FshStatus verify_write_html(const VerifyReport *report, const VerifyOptions *options,
                            const FshDataset *dataset, const char *path, bool force, FshError *error)
{
    Page page = {.error = error};
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
        add(&page, "<h2>Sizes</h2>");
        add_histogram(&page, "width", &report->widths, false);
        add_histogram(&page, "height", &report->heights, false);
        add_histogram(&page, "bytes", &report->bytes, true);
    }
    if (dataset)
        add_samples(&page, dataset, &thumbs, crops);
    add(&page, "</body></html>\n");
    if (!page.status)
        page.status = file_write_atomic(path, page.text.bytes, page.text.length, force, false, error);
    buffer_free(&page.text);
    buffer_free(&page.jpeg);
    image_encoder_free(&page.encoder);
    thumbs_free(&thumbs);
    return page.status;
}
