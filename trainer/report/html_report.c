#include "trainer/report/html_report.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/progress.h"
#include "trainer/report/html_charts.h"
#include "trainer/report/html_classes.h"
#include "trainer/report/html_findings.h"

enum {
    ROWS_OPEN = 30, /* rows of epochs; a longer table is folded */
    SERIES_MAX = 5, /* of a chart: those of epochs, and one of steps */
};

/* The charts. A chart is left out if the run has none of its columns. step_column: a column of logged
 * steps. */
static const struct {
    const char *title, *unit;
    struct {
        const char *column, *name;
        ChartLook look;
    } series[SERIES_MAX - 1];
    const char *step_column;
    bool from_zero;
} chart_rows[] = {
    {"Loss",
     "",
     {{"train_loss", "training", LOOK_TRAINING},
      {"eval_loss", "evaluation", LOOK_EVALUATION},
      {"ema_loss", "averaged weights", LOOK_AVERAGE}},
     "loss",
     false},
    {"Top-1 accuracy",
     "%",
     {{"train_top1", "training", LOOK_TRAINING},
      {"eval_top1", "evaluation", LOOK_EVALUATION},
      {"ema_top1", "averaged weights", LOOK_AVERAGE}},
     "top1",
     false},
    {"Top-5 accuracy",
     "%",
     {{"train_top5", "training", LOOK_TRAINING},
      {"eval_top5", "evaluation", LOOK_EVALUATION},
      {"ema_top5", "averaged weights", LOOK_AVERAGE}},
     "top5",
     false},
    {"PSNR",
     "dB",
     {{"train_psnr", "training", LOOK_TRAINING},
      {"eval_psnr", "evaluation", LOOK_EVALUATION},
      {"ema_psnr", "averaged weights", LOOK_AVERAGE},
      {"eval_input_psnr", "the input as it is", LOOK_REFERENCE}},
     "psnr",
     false},
    {"SSIM",
     "",
     {{"eval_ssim", "evaluation", LOOK_EVALUATION}, {"ema_ssim", "averaged weights", LOOK_AVERAGE}},
     NULL,
     false},
    {"Mean average precision",
     "%",
     {{"eval_map", "evaluation", LOOK_EVALUATION}, {"ema_map", "averaged weights", LOOK_AVERAGE}},
     NULL,
     false},
    {"F1",
     "%",
     {{"eval_f1", "mean over classes", LOOK_EVALUATION},
      {"eval_f1_micro", "over all labels", LOOK_REFERENCE}},
     NULL,
     false},
    {"Mean absolute error",
     "",
     {{"eval_mae", "evaluation", LOOK_EVALUATION}, {"ema_mae", "averaged weights", LOOK_AVERAGE}},
     NULL,
     false},
    {"Learning rate", "", {{"lr", "last step", LOOK_TRAINING}}, "lr", false},
    {"Throughput", "images/s", {{"images_per_second", "training", LOOK_TRAINING}}, "images_per_second", true},
};

/* Columns of the table of epochs. */
static const struct {
    const char *column, *title, *format;
} table_columns[] = {
    {"image_size", "size", "%.0f"},
    {"train_loss", "training loss", "%.4f"},
    {"train_top1", "training top-1", "%.2f"},
    {"train_psnr", "training PSNR", "%.3f"},
    {"eval_loss", "loss", "%.4f"},
    {"eval_top1", "top-1", "%.2f"},
    {"eval_top5", "top-5", "%.2f"},
    {"eval_psnr", "PSNR", "%.3f"},
    {"eval_ssim", "SSIM", "%.4f"},
    {"eval_map", "mAP", "%.2f"},
    {"eval_f1", "F1", "%.2f"},
    {"eval_mae", "MAE", "%.4g"},
    {"eval_rmse", "RMSE", "%.4g"},
    {"eval_miou", "mIoU", "%.2f"},
    {"eval_pixel_accuracy", "pixel accuracy", "%.2f"},
    {"ema_top1", "EMA top-1", "%.2f"},
    {"ema_psnr", "EMA PSNR", "%.3f"},
    {"ema_map", "EMA mAP", "%.2f"},
    {"ema_mae", "EMA MAE", "%.4g"},
    {"ema_miou", "EMA mIoU", "%.2f"},
    {"lr", "learning rate", "%.3g"},
    {"images_per_second", "images/s", "%.0f"},
};

/* Titles and formats of metrics in tiles. */
static const struct {
    const char *name, *title, *format;
} metric_rows[] = {
    {"top1", "top-1", "%.2f %%"}, {"top5", "top-5", "%.2f %%"}, {"psnr", "PSNR", "%.2f dB"},
    {"ssim", "SSIM", "%.4f"},     {"loss", "loss", "%.4g"},     {"map", "mAP", "%.2f %%"},
    {"mae", "MAE", "%.4g"},       {"miou", "mIoU", "%.2f %%"},
};

static const double *column_of(const HtmlReport *report, const char *prefix, const char *name)
{
    char column[64];
    (void)snprintf(column, sizeof column, "%s%s", prefix, name);
    return run_table_column(&report->history->epochs, column);
}

/* Returns the row with the best value; row_count if there is none. */
static size_t best_row(const HtmlReport *report, const double *values)
{
    const size_t rows = report->history->epochs.row_count;
    size_t best = rows;
    for (size_t i = 0; i < rows && values; i++)
        if (isfinite(values[i]) &&
            (best == rows || (report->metric_rises ? values[i] > values[best] : values[i] < values[best])))
            best = i;
    return best;
}

static double sum_of(const HtmlReport *report, const char *column)
{
    const double *values = column_of(report, "", column);
    double sum = 0;
    for (size_t i = 0; i < report->history->epochs.row_count && values; i++)
        sum += isfinite(values[i]) ? values[i] : 0;
    return sum;
}

/* Returns whether the run is counted in iterations, which its rows tell then. */
static bool counts_iterations(const HtmlReport *report)
{
    return run_table_column(&report->history->epochs, "iteration") != NULL;
}

/* Returns what the run is counted in. */
static const char *unit_of(const HtmlReport *report)
{
    return counts_iterations(report) ? "iteration" : "epoch";
}

/* ---- status ---- */

/* Adds the state of the run: "Running: epoch 3 (4 of 20), step 120 of 157, about 4:10 left". */
static void add_status(HtmlPage *page, const ReportStatus *status)
{
    const bool counts = status->iterations > 0;
    const uint64_t all = counts ? status->iterations : status->epochs * status->steps,
                   done = counts ? status->iteration : status->epoch * status->steps + status->step;
    char text[32];
    if (status->epochs == 0)
        return;
    html_add(page, "<p class=\"status\">");
    if (counts)
        html_add(page,
                 status->state == REPORT_FINISHED ? "<b class=\"ok\">Finished</b>: %" PRIu64 " of %" PRIu64
                                                    " iterations"
                 : status->state == REPORT_RUNNING ? "<b>Running</b>: iteration %" PRIu64 " of %" PRIu64
                                                   : "<b class=\"bad\">Stopped</b> after %" PRIu64
                                                     " of %" PRIu64 " iterations",
                 done, all);
    else if (status->state == REPORT_FINISHED)
        html_add(page, "<b class=\"ok\">Finished</b>: %" PRIu64 " of %" PRIu64 " epochs", status->epoch,
                 status->epochs);
    else if (status->epoch >= status->epochs) /* all are done, and the end has not come */
        html_add(page, "%s: %" PRIu64 " of %" PRIu64 " epochs",
                 status->state == REPORT_RUNNING ? "<b>Running</b>" : "<b class=\"bad\">Stopped</b>",
                 status->epoch, status->epochs);
    else
        html_add(page,
                 status->state == REPORT_RUNNING ? "<b>Running</b>: epoch %" PRIu64 " (%" PRIu64
                                                   " of %" PRIu64 "), step %" PRIu64 " of %" PRIu64
                                                 : "<b class=\"bad\">Stopped</b> in epoch %" PRIu64
                                                   " (%" PRIu64 " of %" PRIu64 "), after %" PRIu64
                                                   " of %" PRIu64 " steps",
                 status->epoch, status->epoch + 1, status->epochs, status->step, status->steps);
    if (status->state == REPORT_RUNNING && isfinite(status->remaining_seconds))
        html_add(page, ", about <b>%s</b> left",
                 progress_format_duration(text, sizeof text, status->remaining_seconds));
    if (status->why) {
        html_add(page, ". ");
        html_add_string(page, status->why);
    }
    if (status->state == REPORT_RUNNING)
        html_add(page,
                 " <small data-written=\"%" PRId64 "\">This page follows the run.</small>"
                 "<progress max=\"%" PRIu64 "\" value=\"%" PRIu64 "\"></progress>",
                 status->written, all ? all : 1, done);
    html_add(page, "</p>");
}

/* ---- tiles ---- */

static void add_metric_tile(HtmlPage *page, const HtmlReport *report, const char *prefix, const char *whose)
{
    const double *values = column_of(report, prefix, report->main_metric);
    const double *epochs = column_of(report, "", unit_of(report));
    const size_t best = best_row(report, values);
    char value[64] = "", name[128];
    if (!values || !epochs || best == report->history->epochs.row_count)
        return;
    for (size_t i = 0; i < sizeof metric_rows / sizeof *metric_rows; i++) {
        if (strcmp(metric_rows[i].name, report->main_metric) != 0)
            continue;
        (void)snprintf(value, sizeof value, metric_rows[i].format, values[best]);
        (void)snprintf(name, sizeof name, "best %s%s, %s %.0f", metric_rows[i].title, whose, unit_of(report),
                       epochs[best]);
        html_add_tile(page, value, name);
    }
}

/* Adds, for pairs, how much better the output is than the input. */
static void add_gain_tile(HtmlPage *page, const HtmlReport *report)
{
    const double *psnr = column_of(report, "eval_", "psnr"),
                 *input = column_of(report, "eval_", "input_psnr");
    const size_t best = best_row(report, column_of(report, "eval_", report->main_metric));
    char value[64], name[128];
    if (!psnr || !input || best == report->history->epochs.row_count || !isfinite(psnr[best] - input[best]))
        return;
    (void)snprintf(value, sizeof value, "%+.2f dB", psnr[best] - input[best]);
    (void)snprintf(name, sizeof name, "over the input's %.2f dB", input[best]);
    html_add_tile(page, value, name);
}

/* Returns the images per second of all training steps, as the log's last line does; NaN if it is not
 * known. */
static double training_rate(const HtmlReport *report)
{
    const double *rates = column_of(report, "", "images_per_second"),
                 *seconds = column_of(report, "", "step_seconds");
    double images = 0, sum = 0;
    for (size_t i = 0; i < report->history->epochs.row_count && rates && seconds; i++)
        if (isfinite(rates[i]) && isfinite(seconds[i])) {
            images += rates[i] * seconds[i];
            sum += seconds[i];
        }
    return sum > 0 ? images / sum : NAN;
}

static void add_tiles(HtmlPage *page, const HtmlReport *report)
{
    const size_t rows = report->history->epochs.row_count;
    const double *time = column_of(report, "", "time");
    const double rate = training_rate(report);
    char value[64];
    html_add(page, "<div class=\"tiles\">");
    add_metric_tile(page, report, "eval_", "");
    add_metric_tile(page, report, "ema_", " of averaged weights");
    add_gain_tile(page, report);
    const double *iterations = column_of(report, "", "iteration");
    (void)snprintf(value, sizeof value, "%.0f", iterations && rows ? iterations[rows - 1] : (double)rows);
    html_add_tile(page, value, iterations ? "iterations" : rows == 1 ? "epoch" : "epochs");
    if (time && rows && isfinite(time[rows - 1]))
        html_add_tile(page, progress_format_duration(value, sizeof value, time[rows - 1]), "in all");
    if (isfinite(rate)) {
        (void)snprintf(value, sizeof value, "%.*f", rate < 10 ? 1 : 0, rate);
        html_add_tile(page, value, "images/s in training");
    }
    html_add(page, "</div>");
}

/* ---- charts ---- */

/* Positions of epochs and steps on the axis of epochs; owned. Epoch 3 lies at 3, as tables and the log call
 * it, with the values at its end. Its steps lie between 2 and 3, so those of the first epoch lie before 0.
 * Iterations lie where they are. */
typedef struct Places {
    double *epochs, *steps;
} Places;

static FshStatus make_places(const HtmlReport *report, Places *places, FshError *error)
{
    const RunTable *epochs = &report->history->epochs, *steps = &report->history->steps;
    const double *epoch = run_table_column(epochs, unit_of(report));
    const double *iteration = counts_iterations(report) ? run_table_column(steps, "iteration") : NULL;
    const double *step_epoch = run_table_column(steps, "epoch"), *step = run_table_column(steps, "step");
    places->epochs = malloc((epochs->row_count + 1) * sizeof(double));
    places->steps = malloc((steps->row_count + 1) * sizeof(double));
    if (!places->epochs || !places->steps)
        return fsh_error_set(error, FSH_ERR_MEMORY, "report: out of memory");
    for (size_t i = 0; i < epochs->row_count; i++)
        places->epochs[i] = epoch ? epoch[i] : (double)i;
    for (size_t i = 0; i < steps->row_count; i++)
        places->steps[i] = iteration ? iteration[i]
                           : step_epoch && step && report->steps_per_epoch
                               ? step_epoch[i] - 1 + (step[i] + 1) / (double)report->steps_per_epoch
                               : NAN;
    return FSH_OK;
}

static void add_time(HtmlPage *page, const HtmlReport *report)
{
    const size_t rows = report->history->epochs.row_count;
    const double *time = column_of(report, "", "time");
    const double steps = sum_of(report, "step_seconds"), wait = sum_of(report, "loader_wait_seconds");
    const double evaluation = sum_of(report, "evaluation_seconds");
    const double whole = time && rows && isfinite(time[rows - 1]) ? time[rows - 1] : 0;
    const ChartPart parts[] = {{"computing", fmax(0, steps - wait)},
                               {"waiting for data", wait},
                               {"evaluation", evaluation},
                               {"the rest", fmax(0, whole - steps - evaluation)}};
    if (!(steps > 0))
        return;
    html_add(page, "<figure class=\"chart\"><h3>Where time went</h3>");
    html_add_parts(page, parts, sizeof parts / sizeof *parts);
    html_add(page, "</figure>");
}

/* Returns whether the page leaves the column out: top-5 with few classes. */
static bool is_left_out(const HtmlReport *report, const char *column)
{
    return !report->top5 && strstr(column, "top5") != NULL;
}

static void add_charts(HtmlPage *page, const HtmlReport *report, const Places *places)
{
    const RunTable *epochs = &report->history->epochs, *steps = &report->history->steps;
    html_add(page, "<h2>Curves</h2>");
    if (!counts_iterations(report))
        html_add(page, "<p class=\"note\">Epochs count from 0, as in summary.csv and the log.</p>");
    html_add(page, "<div class=\"charts\">");
    for (size_t i = 0; i < sizeof chart_rows / sizeof *chart_rows; i++) {
        ChartSeries series[SERIES_MAX];
        Chart chart = {.title = chart_rows[i].title,
                       .unit = chart_rows[i].unit,
                       .x_name = unit_of(report),
                       .x_low = counts_iterations(report) ? 0 : -1, /* the first epoch begins at -1 */
                       .from_zero = chart_rows[i].from_zero,
                       .series = series};
        if (is_left_out(report, chart_rows[i].series[0].column))
            continue;
        const double *fine = chart_rows[i].step_column && report->steps_per_epoch
                                 ? run_table_column(steps, chart_rows[i].step_column)
                                 : NULL;
        if (fine)
            series[chart.series_count++] = (ChartSeries){.name = "logged steps",
                                                         .look = LOOK_FINE,
                                                         .x = places->steps,
                                                         .y = fine,
                                                         .count = steps->row_count};
        for (size_t j = 0; j < SERIES_MAX - 1 && chart_rows[i].series[j].column; j++) {
            const double *values = run_table_column(epochs, chart_rows[i].series[j].column);
            if (values)
                series[chart.series_count++] = (ChartSeries){.name = chart_rows[i].series[j].name,
                                                             .look = chart_rows[i].series[j].look,
                                                             .x = places->epochs,
                                                             .y = values,
                                                             .count = epochs->row_count};
        }
        html_add_chart(page, &chart);
    }
    add_time(page, report);
    html_add(page, "</div>");
}

/* ---- tables ---- */

static void add_epochs(HtmlPage *page, const HtmlReport *report)
{
    const RunTable *epochs = &report->history->epochs;
    const bool counts = counts_iterations(report);
    const double *numbers = run_table_column(epochs, unit_of(report)),
                 *time = run_table_column(epochs, "time");
    const size_t best = best_row(report, column_of(report, "eval_", report->main_metric));
    const bool folded = epochs->row_count > ROWS_OPEN;
    char text[64];
    html_add(page, "<h2>%s</h2>", counts ? "Iterations" : "Epochs");
    if (folded)
        html_add(page, "<details><summary>%zu %s</summary>", epochs->row_count, counts ? "rows" : "epochs");
    html_add(page, "<div class=\"wide\"><table><tr><th class=\"n\">%s", unit_of(report));
    for (size_t c = 0; c < sizeof table_columns / sizeof *table_columns; c++)
        if (run_table_column(epochs, table_columns[c].column) &&
            !is_left_out(report, table_columns[c].column))
            html_add(page, "<th class=\"n\">%s", table_columns[c].title);
    html_add(page, "<th class=\"n\">time");
    for (size_t i = 0; i < epochs->row_count; i++) {
        html_add(page, "<tr%s><td class=\"n\">%.0f", i == best ? " class=\"best\"" : "",
                 numbers ? numbers[i] : (double)i);
        for (size_t c = 0; c < sizeof table_columns / sizeof *table_columns; c++) {
            const double *values = run_table_column(epochs, table_columns[c].column);
            if (!values || is_left_out(report, table_columns[c].column))
                continue;
            (void)snprintf(text, sizeof text, table_columns[c].format, values[i]);
            html_add(page, "<td class=\"n\">%s", isfinite(values[i]) ? text : "");
        }
        html_add(page, "<td class=\"n\">%s",
                 time && isfinite(time[i]) ? progress_format_duration(text, sizeof text, time[i]) : "");
    }
    html_add(page, "</table></div>%s", folded ? "</details>" : "");
}

/* Adds a table of the last evaluation of each of several sets, and of all. */
static void add_sets(HtmlPage *page, const HtmlReport *report)
{
    const RunTable *epochs = &report->history->epochs;
    const double *all = column_of(report, "eval_", "loss");
    size_t last = epochs->row_count;
    while (last > 0 && all && !isfinite(all[last - 1]))
        last--;
    if (!report->sets || !all || !last)
        return;
    html_add(page, "<h2>Evaluation by set</h2><div class=\"wide\"><table><tr><th>set");
    for (size_t k = 0; k < sizeof metric_rows / sizeof *metric_rows; k++)
        if (column_of(report, "eval_", metric_rows[k].name) && !is_left_out(report, metric_rows[k].name))
            html_add(page, "<th class=\"n\">%s", metric_rows[k].title);
    for (size_t i = 0; i <= report->set_count; i++) {
        html_add(page, "<tr><td>");
        html_add_string(page, i < report->set_count ? report->sets[i] : "all");
        for (size_t k = 0; k < sizeof metric_rows / sizeof *metric_rows; k++) {
            char name[PATH_MAX + 64], text[64] = "";
            if (!column_of(report, "eval_", metric_rows[k].name) || is_left_out(report, metric_rows[k].name))
                continue;
            (void)snprintf(name, sizeof name, "eval_%s%s%s", metric_rows[k].name,
                           i < report->set_count ? "/" : "", i < report->set_count ? report->sets[i] : "");
            const double *values = run_table_column(epochs, name);
            if (values && isfinite(values[last - 1]))
                (void)snprintf(text, sizeof text, metric_rows[k].format, values[last - 1]);
            html_add(page, "<td class=\"n\">%s", text);
        }
    }
    html_add(page, "</table></div>");
}

static void add_facts(HtmlPage *page, const HtmlReport *report)
{
    html_add(page, "<div class=\"columns facts\">");
    for (size_t i = 0; i < report->fact_tables; i++) {
        const ReportFacts *facts = &report->facts[i];
        if (facts->count == 0)
            continue;
        html_add(page, "<div><h3>");
        html_add_string(page, facts->title);
        html_add(page, "</h3><table>");
        for (size_t j = 0; j < facts->count; j++) {
            html_add(page, "<tr><td>");
            html_add_string(page, facts->facts[j].name);
            html_add(page, "<td>");
            html_add_string(page, facts->facts[j].value);
        }
        html_add(page, "</table></div>");
    }
    html_add(page, "</div>");
}

static void add_paragraph(HtmlPage *page, const char *class, const char *text)
{
    if (!text)
        return;
    html_add(page, "<p class=\"%s\">", class);
    html_add_string(page, text);
    html_add(page, "</p>");
}

FshStatus html_report_write(const HtmlReport *report, const char *path, FshError *error)
{
    HtmlPage page = {.error = error};
    Places places = {0};
    char title[512];
    (void)snprintf(title, sizeof title, "ftrain: %s", report->title);
    html_begin(&page, title, report->status.state == REPORT_RUNNING ? REPORT_REFRESH_SECONDS : 0);
    html_add(&page, "<h1>");
    html_add_string(&page, report->title);
    html_add(&page, "</h1>");
    add_paragraph(&page, "sub", report->subtitle);
    add_status(&page, &report->status);
    if (!page.status)
        page.status = make_places(report, &places, error);
    if (!page.status && report->history->epochs.row_count + report->history->steps.row_count) {
        add_tiles(&page, report);
        add_paragraph(&page, "verdict", report->verdict);
        add_charts(&page, report, &places);
    }
    if (!page.status)
        add_sets(&page, report);
    if (report->classes)
        html_add_classes(&page, report->classes, report->class_names);
    if (report->findings)
        html_add_findings(&page, report->findings, report->class_names);
    if (!page.status && report->history->epochs.row_count)
        add_epochs(&page, report);
    add_facts(&page, report);
    free(places.epochs);
    free(places.steps);
    return html_write(&page, path, true);
}
