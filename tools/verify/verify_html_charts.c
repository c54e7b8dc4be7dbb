#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/html_bars.h"
#include "common/progress.h"
#include "tools/verify/verify_html_parts.h"

enum {
    BARS_LEAST = 8,   /* of a histogram: fewer would be as wide as a door */
    TICKS_MOST = 8,   /* below a histogram */
    NAMED_MOST = 30,  /* classes that need no chart beside their table */
    CLASS_BARS = 200, /* of the chart of classes: more are no wider than a line */
};

/* ---- sizes ---- */

/* Writes 2^n bytes or pixels as people say it: "64 px", "2 KiB". */
static void format_edge(char text[HTML_BAR_TEXT], uint64_t value, bool bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes && value >= 1024 && value % 1024 == 0 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text, HTML_BAR_TEXT, "%" PRIu64 " %s", value, bytes ? units[unit] : "px");
}

static const char *format_pixels(char *text, size_t text_bytes, uint64_t value)
{
    (void)snprintf(text, text_bytes, "%" PRIu64 " px", value);
    return text;
}

static bool is_power_of_two(uint64_t value)
{
    return value > 0 && (value & (value - 1)) == 0;
}

/* Adds a histogram whose ticks are powers of two, every second or third of them where there are many. */
static void add_histogram(HtmlPage *page, const char *title, const Histogram *histogram, bool bytes)
{
    HtmlBar bars[HISTOGRAM_BINS] = {0};
    char low[32], high[32], mean[32], note[128];
    size_t begin, end;
    const uint64_t average = histogram->count ? histogram->sum / histogram->count : 0;
    histogram_range(histogram, &begin, &end);
    if (begin == end)
        return;
    for (size_t i = 0; end - begin < BARS_LEAST; i++) /* room on both sides */
        if (i % 2 && begin > 0)
            begin--;
        else if (end < HISTOGRAM_BINS)
            end++;
    const size_t every = ((end - begin) / 2 + TICKS_MOST - 1) / TICKS_MOST;
    size_t power = 0;
    for (size_t i = begin; i < end; i++) {
        HtmlBar *bar = &bars[i - begin];
        char from[HTML_BAR_TEXT];
        const uint64_t value = histogram_bin_begin(i);
        bar->count = histogram->counts[i];
        format_edge(from, value, bytes);
        (void)snprintf(bar->name, sizeof bar->name, "from %.40s", from);
        if (is_power_of_two(value) && power++ % (every ? every : 1) == 0)
            memcpy(bar->tick, from, sizeof from);
    }
    if (histogram->minimum == histogram->maximum)
        (void)snprintf(note, sizeof note, "all %s",
                       bytes ? progress_format_bytes(low, sizeof low, histogram->minimum)
                             : format_pixels(low, sizeof low, histogram->minimum));
    else if (bytes)
        (void)snprintf(note, sizeof note, "%s to %s, %s on average",
                       progress_format_bytes(low, sizeof low, histogram->minimum),
                       progress_format_bytes(high, sizeof high, histogram->maximum),
                       progress_format_bytes(mean, sizeof mean, average));
    else
        (void)snprintf(note, sizeof note, "%" PRIu64 " to %" PRIu64 " px, %" PRIu64 " on average",
                       histogram->minimum, histogram->maximum, average);
    html_add_bars(page, title, note, "images", bars, end - begin);
}

void verify_html_add_sizes(HtmlPage *page, const VerifyReport *report)
{
    html_add(page, "<h2>Sizes</h2><div class=\"charts\">");
    add_histogram(page, "Width", &report->widths, false);
    add_histogram(page, "Height", &report->heights, false);
    add_histogram(page, "Bytes of an image", &report->bytes, true);
    html_add(page, "</div>");
}

/* ---- classes ---- */

static int compare_down(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* Returns 1, 2 or 5 times a power of ten: of the ticks below so many classes. */
static size_t tick_step(size_t count)
{
    static const size_t digits[] = {1, 2, 5};
    size_t power = 1;
    for (;; power *= 10)
        for (size_t i = 0; i < sizeof digits / sizeof *digits; i++)
            if (digits[i] * power * TICKS_MOST >= count)
                return digits[i] * power;
}

/* Adds the classes of a split from the largest to the smallest: how even they are. Neighbours share a bar
 * where there are many. */
static void add_class_chart(HtmlPage *page, const VerifySplit *split, size_t class_count)
{
    const size_t group = (class_count + CLASS_BARS - 1) / CLASS_BARS,
                 bars = (class_count + group - 1) / group;
    HtmlBar chart[CLASS_BARS] = {0};
    uint64_t *sorted = malloc(class_count * sizeof *sorted);
    char note[128];
    if (!sorted) {
        page->status = page->status ? page->status
                                    : fsh_error_set(page->error, FSH_ERR_MEMORY, "classes: out of memory");
        return;
    }
    memcpy(sorted, split->class_counts, class_count * sizeof *sorted);
    qsort(sorted, class_count, sizeof *sorted, compare_down);
    size_t next_tick = 0;
    for (size_t i = 0; i < bars; i++) {
        const size_t first = i * group, last = first + group < class_count ? first + group : class_count;
        uint64_t sum = 0;
        for (size_t c = first; c < last; c++)
            sum += sorted[c];
        chart[i].count = sum / (last - first);
        (void)snprintf(chart[i].name, sizeof chart[i].name, "class %zu by size", first);
        if (first >= next_tick) {
            (void)snprintf(chart[i].tick, sizeof chart[i].tick, "%zu", next_tick);
            next_tick += tick_step(class_count);
        }
    }
    (void)snprintf(note, sizeof note, "classes from the largest, %" PRIu64 ", to the smallest, %" PRIu64,
                   sorted[0], sorted[class_count - 1]);
    free(sorted);
    html_add_bars(page, split->name, note, "samples of a class", chart, bars);
}

static void add_class_row(HtmlPage *page, const VerifyReport *report, size_t class, const uint64_t *most)
{
    html_add(page, "<tr><td>");
    char name[1280];
    html_add_string(page, fsh_class_display(&report->manifest, class, name, sizeof name));
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        const uint64_t count = report->splits[i].class_counts[class];
        html_add(page, "<td class=\"n\">%" PRIu64 "<td class=\"share\"><i style=\"width:%.1f%%\"></i>", count,
                 most[i] ? 100.0 * (double)count / (double)most[i] : 0);
    }
}

void verify_html_add_classes(HtmlPage *page, const VerifyReport *report)
{
    const FshManifest *manifest = &report->manifest;
    uint64_t *most = calloc(manifest->split_count + 1, sizeof *most);
    if (manifest->class_count == 0 || !most) {
        free(most);
        return;
    }
    html_add(page, "<h2>Classes</h2>");
    if (manifest->class_count > NAMED_MOST) {
        html_add(page, "<div class=\"charts\">");
        for (size_t i = 0; i < manifest->split_count; i++)
            add_class_chart(page, &report->splits[i], manifest->class_count);
        html_add(page, "</div><br>");
    }
    html_add(page, "<div><div class=\"tall\"><table class=\"sort\"><thead><tr><th>class");
    for (size_t i = 0; i < manifest->split_count; i++) {
        html_add(page, "<th class=\"n\">");
        html_add_string(page, report->splits[i].name);
        html_add(page, "<td class=\"share\">");
        for (size_t c = 0; c < manifest->class_count; c++)
            most[i] =
                report->splits[i].class_counts[c] > most[i] ? report->splits[i].class_counts[c] : most[i];
    }
    html_add(page, "</thead><tbody>");
    for (size_t c = 0; c < manifest->class_count; c++)
        add_class_row(page, report, c, most);
    html_add(page, "</tbody></table></div></div>");
    free(most);
}
