#include "trainer/report/html_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static const char hostile[] = "<script>alert(1)</script>&\"'\x01\xff";

/* Three epochs; the second is the best. */
static const char classes_rows[] =
    "{\"event\":\"step\",\"epoch\":0,\"step\":4,\"loss\":2.4,\"lr\":0.05}\n"
    "{\"event\":\"step\",\"epoch\":1,\"step\":4,\"loss\":1.9,\"lr\":0.1}\n"
    "{\"event\":\"epoch\",\"epoch\":0,\"time\":10,\"train_loss\":2.2,\"eval_loss\":2.1,\"eval_top1\":40.5,"
    "\"lr\":0.1,"
    "\"images_per_second\":100,\"step_seconds\":6,\"loader_wait_seconds\":1.5,\"evaluation_seconds\":2}\n"
    "{\"event\":\"epoch\",\"epoch\":1,\"time\":20,\"train_loss\":1.2,\"eval_loss\":1.1,\"eval_top1\":62.25,"
    "\"ema_top1\":61,"
    "\"lr\":0.05,\"images_per_second\":200,\"step_seconds\":6,\"loader_wait_seconds\":1.5,\"evaluation_"
    "seconds\":2}\n"
    "{\"event\":\"epoch\",\"epoch\":2,\"time\":30,\"train_loss\":1.0,\"eval_loss\":1.2,\"eval_top1\":61.5,"
    "\"lr\":0,"
    "\"images_per_second\":300,\"step_seconds\":6,\"loader_wait_seconds\":1.5,\"evaluation_seconds\":2}\n";

static const char pairs_rows[] =
    "{\"event\":\"epoch\",\"epoch\":0,\"time\":10,\"train_psnr\":27,\"eval_psnr\":28.5,"
    "\"eval_ssim\":0.9,\"eval_input_psnr\":26.25,\"step_seconds\":6}\n";

/* Returns the page of the rows; the caller frees it. */
static char *write_page(TestFolder *folder, const char *rows, HtmlReport report)
{
    const char *path = test_path(folder, "report.html"), *metrics = test_path(folder, "metrics.jsonl");
    RunHistory history;
    FshError error = {0};
    test_file_write_text(metrics, rows);
    assert_ok(run_history_read(&history, metrics, &error), &error);
    report.history = &history;
    assert_ok(html_report_write(&report, path, &error), &error);
    run_history_free(&history);
    return test_file_read(path, NULL);
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* Returns findings of ten samples of class 1: the first seven are known, the others taken for class 0. Counts
 * them in counts. */
static Findings *class_findings(ClassCounts *counts, uint64_t classes)
{
    const FindingsOptions options = {.classes = classes};
    static uint8_t pixels[16 * 16 * 3];
    const ImageView view = {pixels, 48, 16, 16, 3};
    Findings *findings = NULL;
    FshError error = {0};
    assert_ok(findings_new(&findings, &options, &error), &error);
    assert_ok(class_counts_reset(counts, classes, &error), &error);
    for (int i = 0; i < 10; i++) {
        assert_ok(findings_add_class(findings, "a/<b>.jpg", 9, &view, 1, i < 7, 0.75, &error), &error);
        assert_ok(class_counts_add(counts, 1, i < 7, &error), &error);
    }
    return findings;
}

TEST_IN_FOLDER(test_a_run_of_classes_is_told, folder)
{
    static const char *const names[] = {"cat", "dog", hostile};
    const ReportFact facts[] = {{"--lr", "0.1"}, {hostile, hostile}};
    const ReportFacts tables[] = {{"Options", facts, 2}, {"Empty table", NULL, 0}};
    ClassCounts counts = {0};
    Findings *findings = class_findings(&counts, 3);
    char *page = write_page(folder, classes_rows,
                            (HtmlReport){.title = hostile,
                                         .subtitle = hostile,
                                         .verdict = "loader bound: 62 %",
                                         .main_metric = "top1",
                                         .metric_rises = true,
                                         .steps_per_epoch = 10,
                                         .facts = tables,
                                         .fact_tables = 2,
                                         .classes = &counts,
                                         .findings = findings,
                                         .class_names = names});
    static const char *const parts[] = {
        "<!DOCTYPE html>",
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-",
        "<table class=\"sort\"><thead><tr><th>class<",
        "<tr><td>dog<td class=\"n\">10<td class=\"n\">70.0&nbsp;%<td class=\"n\">100.0&nbsp;%<td ",
        "100.0&nbsp;%<td class=\"n\">82.4&nbsp;%<td>cat<td class=\"n\">3<tr>",
        "prefers-color-scheme:dark",
        "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#39;\xEF\xBF\xBD\xEF\xBF\xBD",
        "<b>62.25 %</b><span>best top-1, epoch 1</span>",
        "<b>61.00 %</b><span>best top-1 of averaged weights, epoch 1</span>",
        "<b>200</b><span>images/s in training</span>",
        "<b>0:30</b><span>in all</span>",
        "loader bound: 62 %",
        "evaluation: 62.25 % at epoch 1",
        "computing <b>45.0&nbsp;%</b> (0:14)",
        "waiting for data <b>15.0&nbsp;%</b>",
        "evaluation <b>20.0&nbsp;%</b>",
        "the rest <b>20.0&nbsp;%</b>",
        "<tr class=\"best\"><td class=\"n\">1<",
        "dog taken for cat: 3 of 10 (30.0 %)",
        "dog known: 7 of 10 (70.0 %)",
        "<td>dog<td>cat<td class=\"n\">3<td class=\"n\">30.0&nbsp;%",
        "a/&lt;b&gt;.jpg",
        "<em>cat</em> 75.0&nbsp;%<br>is <b>dog</b>",
        "data:image/jpeg;base64,/9j/",
        "--lr<td>0.1",
        "</body></html>\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(page, parts[i]);
    assert_int_equal(count_of(page, "base64,"), 3); /* one for each mistake */
    assert_int_equal(count_of(page, "<script"), 1); /* ours */
    static const char *const absent[] = {"http:", "https:", "Empty table", "PSNR",
                                         "SSIM",  ">nan",   "Top-5",       "Restored"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_contains_not(page, absent[i]);
    findings_free(&findings);
    class_counts_free(&counts);
    free(page);
}

/* 300 images in the first second, 900 in the nine that followed. */
TEST_IN_FOLDER(test_the_rate_is_all_images_over_all_seconds, folder)
{
    char *page =
        write_page(folder,
                   "{\"event\":\"epoch\",\"epoch\":0,\"images_per_second\":300,\"step_seconds\":1}\n"
                   "{\"event\":\"epoch\",\"epoch\":1,\"images_per_second\":100,\"step_seconds\":9}\n",
                   (HtmlReport){.title = "out", .main_metric = "loss"});
    assert_contains(page, "<b>120</b><span>images/s in training</span>");
    free(page);
}

/* As summary.csv, the log and the names of checkpoints do. */
TEST_IN_FOLDER(test_epochs_count_from_0_in_curves_tiles_and_tables, folder)
{
    char *page = write_page(
        folder, classes_rows,
        (HtmlReport){.title = "out", .main_metric = "top1", .metric_rises = true, .steps_per_epoch = 5});
    static const char *const parts[] = {
        "best top-1, epoch 1</span>", "<tr class=\"best\"><td class=\"n\">1<", "<tr><td class=\"n\">0<",
        "evaluation: 62.25 % at epoch 1<", "training: 2.2  at epoch 0<", "text-anchor=\"start\">epoch</text>",
        /* The axis: 0, 1 and 2, the last epoch at its end. */
        "text-anchor=\"middle\">0</text>", "x=\"468.0\" y=\"224\" text-anchor=\"middle\">2</text>"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(page, parts[i]);
    assert_contains_not(page, ">3</text>");
    assert_contains_not(page, ">-1</text>");
    free(page);
    /* Epoch 0 lies in one place, whatever a chart has beside epochs: at a third of -1 to 2. */
    page =
        write_page(folder, classes_rows,
                   (HtmlReport){.title = "out", .main_metric = "top1", .metric_rises = true, .top5 = true});
    assert_contains(page, "x=\"194.7\" y=\"224\" text-anchor=\"middle\">0</text>");
    assert_contains_not(page, "x=\"58.0\" y=\"224\"");
    free(page);
}

/* Beside the matrix there is room for a word or two. */
TEST_IN_FOLDER(test_long_names_are_cut_beside_the_matrix, folder)
{
    static const char *const names[] = {"cat", "black stork, Ciconia nigra (n02002724)",
                                        "scorpion (n01770393)"};
    ClassCounts counts = {0};
    Findings *findings = class_findings(&counts, 3);
    char *page = write_page(folder, classes_rows,
                            (HtmlReport){.title = "out",
                                         .main_metric = "top1",
                                         .metric_rises = true,
                                         .classes = &counts,
                                         .class_names = names});
    assert_contains(page, ">black stork…<title>black stork, Ciconia nigra (n02002724)</title></text>");
    assert_contains(page, ">scorpion…<title>scorpion (n01770393)</title></text>");
    assert_contains(page, ">cat</text>");
    class_counts_free(&counts);
    findings_free(&findings);
    free(page);
}

TEST_IN_FOLDER(test_a_run_of_pairs_is_told, folder)
{
    const FindingsOptions options = {.pairs = true, .samples = 1};
    static uint8_t pixels[20 * 10];
    const ImageView view = {pixels, 20, 20, 10, 1};
    Findings *findings = NULL;
    FshError error = {0};
    assert_ok(findings_new(&findings, &options, &error), &error);
    assert_ok(findings_add_pair(findings, "p<1>", 4, &view, &view, &view, 28.5, 26.25, &error), &error);
    char *page = write_page(
        folder, pairs_rows,
        (HtmlReport){.title = "out", .main_metric = "psnr", .metric_rises = true, .findings = findings});
    static const char *const parts[] = {"<b>28.50 dB</b><span>best PSNR, epoch 0</span>",
                                        "<b>+2.25 dB</b><span>over the input&#39;s 26.25 dB</span>",
                                        "the input as it is <b>26.25</b>",
                                        "path class=\"rf\"",
                                        "PSNR 26.25 → <b>28.50 dB</b> <span class=\"ok\">+2.25</span>",
                                        "p&lt;1&gt;",
                                        "<small>target</small>",
                                        "least gain"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_contains(page, parts[i]);
    assert_int_equal(count_of(page, "base64,"), 3);
    static const char *const absent[] = {"Confusion", "Top-1", "class=\"verdict\"", "logged steps", ">nan"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_contains_not(page, absent[i]);
    findings_free(&findings);
    free(page);
}

TEST_IN_FOLDER(test_many_classes_are_told_as_tables, folder)
{
    ClassCounts counts = {0};
    Findings *findings = class_findings(&counts, 50);
    char *page = write_page(folder, classes_rows,
                            (HtmlReport){.title = "out",
                                         .main_metric = "top1",
                                         .metric_rises = true,
                                         .classes = &counts,
                                         .findings = findings});
    assert_contains_not(page, "class=\"matrix\"");
    assert_contains(page, "<td>1<td>0<td class=\"n\">3<td class=\"n\">30.0&nbsp;%"); /* no names: numbers */
    assert_contains(page, "<td>1<td class=\"n\">10<td class=\"n\">70.0&nbsp;%");
    findings_free(&findings);
    class_counts_free(&counts);
    free(page);
}

/* ---- where the run stands ---- */

TEST_IN_FOLDER(test_a_run_that_goes_on_says_where_and_is_loaded_again, folder)
{
    HtmlReport report = {.title = "out",
                         .main_metric = "top1",
                         .metric_rises = true,
                         .status = {.state = REPORT_RUNNING,
                                    .epoch = 3,
                                    .epochs = 20,
                                    .step = 40,
                                    .steps = 100,
                                    .remaining_seconds = 250,
                                    .written = 1700000000}};
    char *page = write_page(folder, classes_rows, report);
    assert_contains(page, "<b>Running</b>: epoch 3 (4 of 20), step 40 of 100, about <b>4:10</b> left");
    assert_contains(page, "data-written=\"1700000000\"");
    assert_contains(page, "<progress max=\"2000\" value=\"340\">");
    assert_contains(page, "<meta http-equiv=\"refresh\" content=\"15\">");
    free(page);
    report.status.remaining_seconds = NAN;
    report.status.epoch = 20; /* after the last, while its files are written */
    report.status.step = 0;
    page = write_page(folder, classes_rows, report);
    assert_contains(page, "<b>Running</b>: 20 of 20 epochs");
    free(page);
    report.status.epoch = 3;
    page = write_page(folder, classes_rows, report);
    assert_contains_not(page, " left");
    free(page);
}

TEST_IN_FOLDER(test_a_run_that_has_ended_is_not_loaded_again, folder)
{
    HtmlReport report = {.title = "out",
                         .main_metric = "top1",
                         .metric_rises = true,
                         .status = {.state = REPORT_FINISHED, .epoch = 20, .epochs = 20, .steps = 100}};
    char *page = write_page(folder, classes_rows, report);
    assert_contains(page, "<b class=\"ok\">Finished</b>: 20 of 20 epochs</p>");
    assert_contains_not(page, "http-equiv=\"refresh\"");
    assert_contains_not(page, "<body data-refresh");
    assert_contains_not(page, "data-written=\"");
    free(page);
    report.status = (ReportStatus){
        .state = REPORT_STOPPED, .epoch = 3, .epochs = 20, .step = 7, .steps = 100, .why = "disk <full>"};
    page = write_page(folder, classes_rows, report);
    assert_contains(page, "Stopped</b> in epoch 3 (4 of 20), after 7 of 100 steps. disk &lt;full&gt;</p>");
    assert_contains_not(page, "http-equiv=\"refresh\"");
    free(page);
}

/* A thousand classes: all of them in a table that scrolls, nothing that grows with their square. */
TEST_IN_FOLDER(test_a_thousand_classes_stay_a_page, folder)
{
    ClassCounts counts = {0};
    FshError error = {0};
    assert_ok(class_counts_reset(&counts, 1000, &error), &error);
    for (int64_t i = 0; i < 50000; i++)
        assert_ok(class_counts_add(&counts, i % 1000, i % 7 ? i % 1000 : (i * 13) % 1000, &error), &error);
    char *page = write_page(
        folder, classes_rows,
        (HtmlReport){.title = "out", .main_metric = "top1", .metric_rises = true, .classes = &counts});
    assert_contains(page, "<div class=\"tall\"><table class=\"sort\">");
    assert_contains(page, "<tr><td>999<td class=\"n\">50<");
    assert_true(strlen(page) < 300000);
    class_counts_free(&counts);
    free(page);
}

TEST_IN_FOLDER(test_a_run_without_an_epoch_is_a_page_too, folder)
{
    char *page = write_page(folder, "", (HtmlReport){.title = "out", .main_metric = "loss"});
    assert_contains(page, "<h1>out</h1>");
    assert_contains_not(page, "Curves");
    free(page);
    page = write_page(folder,
                      "{\"event\":\"epoch\",\"epoch\":0,\"train_loss\":null,\"eval_loss\":null,\"time\":1}\n",
                      (HtmlReport){.title = "out", .main_metric = "loss"});
    assert_contains(page, "<b>1</b><span>epoch</span>");
    assert_contains_not(page, ">nan");
    free(page);
}

/* The lowest loss is the best one; a long table is folded up. */
TEST_IN_FOLDER(test_a_long_run_is_folded_and_thinned, folder)
{
    char *rows = malloc(1000000), *at = rows;
    for (int i = 0; i < 3000; i++)
        at +=
            sprintf(at, "{\"event\":\"epoch\",\"epoch\":%d,\"time\":%d,\"train_loss\":%d,\"eval_loss\":%g}\n",
                    i, i, 3000 - i, 1 + 1e-3 * abs(i - 1234));
    char *page = write_page(folder, rows, (HtmlReport){.title = "out", .main_metric = "loss"});
    free(rows);
    assert_contains(page, "<details><summary>3000 epochs</summary>");
    assert_contains(page, "best loss, epoch 1234");
    const char *line = strstr(page, "<path class=\"tr\" d=\"");
    assert_non_null(line);
    assert_true(strchr(line, '>') - line < 600 * 14);
    assert_contains_not(page, "<circle");
    free(page);
}
