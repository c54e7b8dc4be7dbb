#include "trainer/report/console.h"

#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/support/support.h"

static const StepReport step = {.epoch = 3,
                                .epochs = 10,
                                .step = 49,
                                .steps = 156,
                                .seconds_now = 0.25,
                                .seconds_mean = 0.5,
                                .data_now = 0.001,
                                .data_mean = 0.1,
                                .now = {.count = 64, .measured = 7, .sums = {2.5 * 64, 8, 32}},
                                .mean = {.count = 128, .measured = 7, .sums = {2.25 * 128, 42.56, 96.64}},
                                .learning_rate = 0.1,
                                .images_per_second = 128,
                                .remaining_seconds = 100,
                                .remaining_evaluation_seconds = 25};

/* ---- to a file ---- */

static char *text_of(TestFolder *folder, int64_t classes, bool quiet)
{
    const char *path = test_path(folder, "log");
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    Console console;
    console_open(&console, stream, quiet);
    console.classes = classes;
    assert_false(console.terminal);
    console_line(&console, "%s %d", "line", 1);
    console_step(&console, &step);
    console_progress(&console, &step);
    console_evaluating(&console, 1, 2);
    const Metrics metrics = {.count = 1000, .measured = 7, .sums = {1900, 523, 801.25}};
    console_evaluated(&console, "", &metrics, " (best)");
    const Metrics pairs = {.count = 2,
                           .measured = 1U << METRIC_PSNR | 1U << METRIC_SSIM,
                           .sums = {[METRIC_PSNR] = 60, [METRIC_SSIM] = 1.8}};
    console_evaluated(&console, "EMA", &pairs, "");
    console_warning(&console, "%s: disk full", "out");
    console_clear(&console);
    assert_int_equal(fclose(stream), 0);
    return test_file_read(path, NULL);
}

TEST_IN_FOLDER(test_a_log_has_pytorchs_lines_and_no_progress, folder)
{
    char *text = text_of(folder, 10, false);
    assert_string_equal(
        text, "line 1\n"
              "Epoch: [3][ 50/156]\tTime  0.250 ( 0.500)\tData  0.001 ( 0.100)\t"
              "Loss 2.5000e+00 (2.2500e+00)\tAcc@1  12.50 ( 33.25)\tAcc@5  50.00 ( 75.50)\tETA 2:05\n"
              " *   Acc@1 52.300 Acc@5 80.125 Loss 1.9000 (best)\n"
              " * EMA  PSNR 30.000 SSIM 0.9000\n"
              "warning: out: disk full\n");
    free(text);
}

/* A label among the five likeliest of nine is no news. */
TEST_IN_FOLDER(test_top5_is_shown_from_ten_classes_on, folder)
{
    char *text = text_of(folder, 9, false);
    assert_contains(text, "Acc@1  12.50 ( 33.25)\tETA 2:05\n");
    assert_contains(text, " *   Acc@1 52.300 Loss 1.9000 (best)\n");
    assert_contains_not(text, "Acc@5");
    free(text);
}

TEST_IN_FOLDER(test_quiet_leaves_warnings_only, folder)
{
    char *text = text_of(folder, 10, true);
    assert_string_equal(text, "warning: out: disk full\n");
    free(text);
}

/* ---- to a terminal ---- */

typedef struct Terminal {
    int master;
    FILE *stream;
    Console console;
} Terminal;

static Terminal open_terminal(unsigned short columns)
{
    Terminal terminal;
    int slave;
    const struct winsize size = {.ws_row = 25, .ws_col = columns};
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_int_equal(openpty(&terminal.master, &slave, NULL, NULL, &size), 0);
    terminal.stream = fdopen(slave, "w");
    assert_non_null(terminal.stream);
    console_open(&terminal.console, terminal.stream, false);
    return terminal;
}

/* Reads what was written into text and closes the terminal. The system hands the text over in pieces, when it
 * likes; a mark at its end says that all has come. */
static void close_terminal(Terminal *terminal, char *text, size_t text_bytes)
{
    const char mark = '\001';
    size_t length = 0;
    assert_int_equal(fputc(mark, terminal->stream), mark);
    assert_int_equal(fflush(terminal->stream), 0);
    while (length == 0 || text[length - 1] != mark) {
        assert_true(length < text_bytes);
        const ssize_t got = read(terminal->master, text + length, text_bytes - length);
        assert_true(got > 0);
        length += (size_t)got;
    }
    text[length - 1] = '\0';
    assert_int_equal(fclose(terminal->stream), 0);
    assert_int_equal(close(terminal->master), 0);
}

TEST(test_a_terminal_gets_a_line_that_is_taken_away_again)
{
    char text[1024];
    Terminal terminal = open_terminal(120);
    assert_true(terminal.console.terminal);
    console_progress(&terminal.console, &step);
    console_line(&terminal.console, "done");
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(
        text, "\repoch  3 ( 4/10) step  50/156  Loss   2.250 Acc@1  33.25  lr     0.1     128 images/s"
              "     2:05 left  data  20 %\033[K\r\033[Kdone\r\n");
    terminal = open_terminal(140);
    console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    assert_contains(text, " left  data  20 %, compute  80 %\033[K");
}

TEST(test_progress_is_cut_to_the_terminal)
{
    char text[1024];
    Terminal terminal = open_terminal(30);
    console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(text, "\r4/10  50/156  Loss  2.25 \033[K");
    terminal = open_terminal(36); /* no part of a number */
    console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(text, "\r4/10  50/156  Loss  2.25 Acc@1 \033[K");
    terminal = open_terminal(40);
    console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(text, "\r4/10  50/156  Loss  2.25 Acc@1 33.25  \033[K");
    terminal = open_terminal(4);
    console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(text, "\r\033[K");
    terminal = open_terminal(80); /* all numbers, fewer words */
    console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(
        text, "\r4/10  50/156  Loss  2.25 Acc@1 33.25  lr     0.1   128 img/s   2:05  data  20 %\033[K");
}

/* Numbers grow and shrink, and the line does not move. */
TEST(test_progress_keeps_its_width)
{
    static const struct {
        double loss, rate, images, remaining;
        uint64_t epoch, step;
    } states[] = {{2.3, 0.1, 9, 3000, 0, 0},
                  {0.01234, 6.2e-5, 12345, 59, 8, 99},
                  {12, 0.1, 100, 5, 9, 155},
                  {0.5, 0, 1, 600, 2, 8}};
    size_t width[2] = {0};
    for (size_t i = 0; i < 2 * sizeof states / sizeof *states; i++) {
        char text[1024];
        Terminal terminal = open_terminal(i % 2 ? 80 : 140);
        StepReport report = step;
        report.mean.sums[0] = states[i / 2].loss * 128;
        report.learning_rate = states[i / 2].rate;
        report.images_per_second = states[i / 2].images;
        report.remaining_seconds = states[i / 2].remaining;
        report.epoch = states[i / 2].epoch;
        report.step = states[i / 2].step;
        console_progress(&terminal.console, &report);
        close_terminal(&terminal, text, sizeof text);
        if (i > 1 && strlen(text) != width[i % 2])
            fail_msg("\"%s\" is %zu wide, not %zu", text + 1, strlen(text), width[i % 2]);
        width[i % 2] = strlen(text);
    }
}

TEST(test_progress_is_not_drawn_more_often_than_one_can_see)
{
    char text[4096];
    Terminal terminal = open_terminal(30);
    for (int i = 0; i < 1000; i++)
        console_progress(&terminal.console, &step);
    close_terminal(&terminal, text, sizeof text);
    size_t drawn = 0;
    for (const char *at = text; (at = strchr(at, '\r')); at++)
        drawn++;
    assert_true(drawn >= 1 && drawn < 10);
}

TEST(test_a_dumb_terminal_gets_plain_lines)
{
    char text[1024];
    Terminal terminal = open_terminal(80);
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    console_open(&terminal.console, terminal.stream, false);
    console_progress(&terminal.console, &step);
    console_line(&terminal.console, "done");
    close_terminal(&terminal, text, sizeof text);
    assert_string_equal(text, "done\r\n");
}

TEST_IN_FOLDER(test_a_log_of_iterations_counts_them, folder)
{
    const char *path = test_path(folder, "log");
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    StepReport report = step;
    report.iteration = 500;
    report.iterations = 20000;
    Console console;
    console_open(&console, stream, false);
    console.classes = 10;
    console_step(&console, &report);
    assert_int_equal(fclose(stream), 0);
    char *text = test_file_read(path, NULL);
    assert_contains(text, "Iteration: [  500/20000]\tTime  0.250 ( 0.500)\tData  0.001 ( 0.100)\tLoss ");
    free(text);
}
