#include "tools/verify/verify_html.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "common/progress.h"
#include "common/text.h"
#include "tools/verify/verify_faults.h"
#include "tools/verify/verify_html_parts.h"
#include "tools/verify/verify_report.h"

enum {
    PAGE_THUMBS = 96,
    PAGE_FAULTS = 48, /* pictures of each kind of fault */
    PAGE_PROBLEMS = 1000,
};

/* ---- tables ---- */

static void add_splits(HtmlPage *page, const VerifyReport *report)
{
    char bytes[32];
    html_add(page, "<h2>Splits</h2><div class=\"wide\"><table><tr><th>split<th class=\"n\">files<th "
                   "class=\"n\">samples<th class=\"n\">bytes");
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        const VerifySplit *split = &report->splits[i];
        html_add(page, "<tr><td>");
        html_add_string(page, split->name);
        html_add(page, "<td class=\"n\">%" PRIu64 "<td class=\"n\">%" PRIu64 "<td class=\"n\">%s",
                 split->file_count, split->sample_count,
                 progress_format_bytes(bytes, sizeof bytes, split->bytes));
    }
    html_add(page, "</table></div>");
    if (report->image_count == 0)
        return;
    html_add(page, "<p class=\"note\">");
    for (unsigned codec = 0; codec < VERIFY_CODECS; codec++)
        if (report->codec_counts[codec])
            html_add(page, "%" PRIu64 " %s, ", report->codec_counts[codec], fsh_codec_name((FshCodec)codec));
    html_add(page, "%" PRIu64 " gray.", report->gray_count);
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

/* Adds a table of problems or of remarks, as many as verify_is_listed takes. */
static void add_problems(HtmlPage *page, const VerifyReport *report, const VerifyProblem *problems,
                         size_t count)
{
    VerifyListed listed = {0};
    if (count == 0)
        return;
    html_add(page,
             "<div><div class=\"tall\"><table class=\"sort\"><thead><tr><th>file<th class=\"n\">record<th>key"
             "<th>source<th>what</thead><tbody>");
    for (size_t i = 0; i < count; i++) {
        const VerifyProblem *problem = &problems[i];
        if (!verify_is_listed(report, problem, PAGE_PROBLEMS, &listed))
            continue;
        html_add(page, "<tr>");
        add_cell(page, problem->file);
        if (problem->record >= 0)
            html_add(page, "<td class=\"n\">%" PRId64, problem->record);
        else
            html_add(page, "<td class=\"n\">");
        add_cell(page, problem->key);
        add_cell(page, problem->source);
        html_add(page, "<td class=\"what\">");
        html_add_string(page, problem->reason);
    }
    html_add(page, "</tbody></table></div></div>");
    const size_t shown = listed.absent_count + listed.other_count;
    if (shown < count)
        html_add(page, "<p class=\"note\">… and %zu more: --json lists them.</p>", count - shown);
}

/* Adds what is wrong: first what only the eye can judge, then the rest, as pictures where there is a record,
 * and as a table. */
static void add_faults(HtmlPage *page, const VerifyReport *report, const VerifyOptions *options,
                       const Faults *faults)
{
    if (faults->suspects.count) {
        html_add(
            page,
            "<h2 class=\"bad\">Suspicious pairs: %zu</h2><p class=\"note\">Their sides do not look alike; "
            "the "
            "least alike first%s. Look before you throw any away: the measure sees edges, not sense.</p>",
            report->suspect_count, faults->suspects.count < report->suspect_count ? ", as many as fit" : "");
        verify_html_add_pictures(page, &faults->suspects, false);
    }
    if (report->problem_count)
        html_add(page, "<h2 class=\"bad\">Problems: %zu</h2>", report->problem_count);
    if (verify_root_is_wrong(report)) {
        char wrong[VERIFY_WRONG_ROOT_BYTES];
        html_add(page, "<p class=\"note\">");
        html_add_string(page, verify_wrong_root(wrong, sizeof wrong, report, options->against));
        html_add(page, "</p>");
    }
    if (faults->problems.count) {
        verify_html_add_pictures(page, &faults->problems, false);
        html_add(page, "<br>");
    }
    add_problems(page, report, report->problems, report->problem_count);
    if (report->remark_count)
        html_add(page, "<h2>Notes: %zu</h2>", report->remark_count);
    add_problems(page, report, report->remarks, report->remark_count);
}

static void add_tiles(HtmlPage *page, const VerifyReport *report)
{
    char text[32];
    uint64_t samples = 0, bytes = 0;
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        samples += report->splits[i].sample_count;
        bytes += report->splits[i].bytes;
    }
    html_add(page, "<div class=\"tiles\">");
    html_add_tile(page, progress_format_count(text, sizeof text, samples),
                  report->manifest.kind == FSH_KIND_PAIRS ? "pairs" : "samples");
    if (report->manifest.class_count)
        html_add_tile(page, progress_format_count(text, sizeof text, report->manifest.class_count),
                      "classes");
    html_add_tile(page, progress_format_bytes(text, sizeof text, bytes), "on disk");
    if (report->decoded_count)
        html_add_tile(page, progress_format_count(text, sizeof text, report->decoded_count),
                      "images decoded");
    if (report->pair_count) {
        (void)snprintf(text, sizeof text, "%.3f", report->likeness_least);
        html_add_tile(page, text, "least likeness of a pair");
    }
    html_add_tile(page, progress_format_count(text, sizeof text, report->problem_count),
                  report->problem_count == 1 ? "problem" : "problems");
    html_add(page, "</div>");
}

static void add_heading(HtmlPage *page, const VerifyReport *report, const VerifyOptions *options)
{
    char count[32], claim[256], title[PATH_MAX + 16];
    (void)snprintf(title, sizeof title, "fverify: %s", report->name);
    html_begin(page, title, 0);
    html_add(page, "<h1>");
    html_add_string(page, report->name);
    html_add(page, "</h1>");
    if (report->opened) {
        const FshManifest *manifest = &report->manifest;
        html_add(page, "<p class=\"sub\">%s%s", fsh_container_name(manifest->container),
                 manifest->kind == FSH_KIND_PAIRS   ? " of pairs"
                 : manifest->kind == FSH_KIND_MASKS ? " of images and masks"
                                                    : "");
        if (manifest->id[0]) /* containers of others have none */
            html_add(page, ", id %s", manifest->id);
        html_add(page, "; %s.</p>", verify_claim(claim, sizeof claim, report, options));
    }
    if (report->problem_count)
        html_add(page, "<p class=\"status\"><b class=\"bad\">%s problem%s</b></p>",
                 progress_format_count(count, sizeof count, report->problem_count),
                 text_plural(report->problem_count));
    else
        html_add(page, "<p class=\"status\"><b class=\"ok\">ok</b></p>");
    if (report->opened)
        add_tiles(page, report);
}

/* Adds the contact sheet; of pairs the middle of each side, pixel for pixel, where blur can be seen. */
static void add_samples(HtmlPage *page, const FshDataset *dataset, const Thumbs *thumbs, bool crops)
{
    const FshManifest *manifest = fsh_manifest(dataset);
    html_add(page, crops ? "<h2>Pairs</h2><p class=\"note\">The middle of each side, pixel for pixel: "
                         : "<h2>Samples</h2><p class=\"note\">Evenly spread over each split: ");
    for (size_t i = 0; i < (crops ? manifest->field_count : manifest->split_count); i++) {
        html_add(page, i ? ", " : "");
        html_add_string(page, crops ? manifest->field_names[i] : manifest->splits[i].name);
    }
    html_add(page, "</p>");
    verify_html_add_pictures(page, thumbs, crops);
}

/* ---- the page ---- */

FshStatus verify_write_html(const VerifyReport *report, const VerifyOptions *options,
                            const FshDataset *dataset, const char *path, bool force, FshError *error)
{
    HtmlPage page = {.error = error};
    Thumbs thumbs = {0};
    Faults faults = {0};
    const bool crops = dataset && fsh_manifest(dataset)->kind == FSH_KIND_PAIRS;
    const ThumbOptions thumb_options = {.count = crops ? PAGE_THUMBS / 2 : PAGE_THUMBS,
                                        .edge = PAGE_EDGE_PX,
                                        .with_crops = crops,
                                        .jobs = options->jobs},
                       fault_options = {.count = PAGE_FAULTS, .edge = PAGE_EDGE_PX, .jobs = options->jobs};
    if (dataset)
        page.status = thumbs_make(dataset, &thumb_options, &thumbs, error);
    if (!page.status)
        page.status = faults_make(report, dataset, &fault_options, &faults, error);
    add_heading(&page, report, options);
    add_faults(&page, report, options, &faults);
    if (report->opened) {
        add_splits(&page, report);
        verify_html_add_classes(&page, report);
    }
    if (report->image_count)
        verify_html_add_sizes(&page, report);
    if (dataset)
        add_samples(&page, dataset, &thumbs, crops);
    const FshStatus status = html_write(&page, path, force);
    thumbs_free(&thumbs);
    faults_free(&faults);
    return status;
}
