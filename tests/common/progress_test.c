#include "common/progress.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common/pool.h"
#include "tests/support/support.h"

TEST(test_bytes_have_three_digits_and_binary_units)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {10 * 1024 + 103, "10.1 KiB"},
        {320 * 1024, "320 KiB"},
        {1023 * 1024, "1023 KiB"},
        {1024 * 1024 - 1, "1 MiB"},
        {UINT64_C(3) << 29, "1.5 GiB"},
        {UINT64_MAX, "16 EiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        assert_ptr_equal(progress_format_bytes(text, sizeof text, cases[i].bytes), text);
        assert_string_equal(text, cases[i].text);
    }
}

TEST(test_durations_read_as_clocks)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {
        {0, "0:00"},
        {7, "0:07"},
        {7.4, "0:07"},
        {59.6, "1:00"},
        {125, "2:05"},
        {3599.6, "1:00:00"},
        {3723, "1:02:03"},
        {360000, "100:00:00"},
        {-3, "0:00"},
        {NAN, "0:00"},
        {INFINITY, "99999:59:59"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        assert_ptr_equal(progress_format_duration(text, sizeof text, cases[i].seconds), text);
        assert_string_equal(text, cases[i].text);
    }
}

TEST(test_counts_have_commas)
{
    static const struct {
        uint64_t count;
        const char *text;
    } cases[] = {{0, "0"},
                 {999, "999"},
                 {1000, "1,000"},
                 {1281167, "1,281,167"},
                 {100000, "100,000"},
                 {UINT64_MAX, "18,446,744,073,709,551,615"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        assert_string_equal(progress_format_count(text, sizeof text, cases[i].count), cases[i].text);
    }
}

/* Makes the next add draw, as if 10 seconds had passed since the start. */
static void make_due(Progress *progress)
{
    progress->start_seconds = progress_now_seconds() - 10;
    atomic_store(&progress->next_draw_ns, 0);
}

TEST_IN_FOLDER(test_elsewhere_than_on_a_terminal_plain_lines_appear, folder)
{
    const char *path = test_path(folder, "log");
    FILE *stream = fopen(path, "we");
    assert_non_null(stream);
    Progress progress;
    progress_start(&progress, stream, "packing", "images", 60000, false);
    progress_add(&progress, 1, 1000, 0); /* too early for a line */
    assert_int_equal(test_file_size(path), 0);
    make_due(&progress);
    progress_add(&progress, 1233, 20 << 20, 3);
    progress_add(&progress, 1, 0, 0); /* ten seconds have not passed */
    progress_clear(&progress);
    progress_finish(&progress);
    assert_int_equal(fclose(stream), 0);
    char *text = test_file_read(path, NULL);
    assert_string_equal(text, "packing: 1,234/60,000 images, 123 images/s, 2 MiB/s, 7:56 left, 3 failed\n");
    free(text);
    assert_int_equal(progress.done, 1235);
    assert_int_equal(progress.bytes, 1000 + (20 << 20));
    assert_int_equal(progress.failed, 3);
}

TEST_IN_FOLDER(test_an_unknown_total_gives_count_and_rate_only, folder)
{
    const char *path = test_path(folder, "log");
    FILE *stream = fopen(path, "we");
    assert_non_null(stream);
    Progress progress;
    progress_start(&progress, stream, "listing", "files", 0, false);
    make_due(&progress);
    progress_add(&progress, 25, 0, 0);
    assert_int_equal(fclose(stream), 0);
    char *text = test_file_read(path, NULL);
    assert_string_equal(text, "listing: 25 files, 2.50 files/s\n");
    free(text);
}

/* Returns the line printed after ten seconds and 25 more items; the caller frees it. */
static char *line_after(TestFolder *folder, Progress *progress)
{
    const char *path = test_path(folder, "log");
    FILE *stream = fopen(path, "we");
    assert_non_null(stream);
    progress->stream = stream;
    make_due(progress);
    progress_add(progress, 25, 0, 0);
    assert_int_equal(fclose(stream), 0);
    return test_file_read(path, NULL);
}

TEST_IN_FOLDER(test_a_total_may_come_later, folder)
{
    Progress progress;
    progress_start(&progress, stdout, "resizing", "images", 0, false);
    progress_set_total(&progress, 100);
    char *text = line_after(folder, &progress);
    assert_string_equal(text, "resizing: 25/100 images, 2.50 images/s, 0:30 left\n");
    free(text);
}

TEST_IN_FOLDER(test_a_position_tells_the_time_left_until_a_total_does, folder)
{
    static const struct {
        uint64_t total, position, extent;
        const char *text;
    } cases[] = {
        {0, 1, 5, "resizing: 25 images, 20 %, 2.50 images/s, 0:40 left\n"},
        {0, UINT64_C(3) << 60, UINT64_C(3) << 61, "resizing: 25 images, 50 %, 2.50 images/s, 0:10 left\n"},
        {0, 0, 5, "resizing: 25 images, 0 %, 2.50 images/s\n"},
        {0, 6, 5, "resizing: 25 images, 100 %, 2.50 images/s\n"},
        {0, 6, 0, "resizing: 25 images, 2.50 images/s\n"},
        {50, 1, 5, "resizing: 25/50 images, 2.50 images/s, 0:10 left\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Progress progress;
        progress_start(&progress, stdout, "resizing", "images", cases[i].total, false);
        progress_set_position(&progress, cases[i].position, cases[i].extent);
        char *text = line_after(folder, &progress);
        assert_string_equal(text, cases[i].text);
        free(text);
    }
}

TEST_IN_FOLDER(test_saved_bytes_are_told_when_there_are_any, folder)
{
    static const struct {
        int64_t first, second;
        const char *text;
    } cases[] = {
        {1 << 30, 1 << 29, "resizing: 25 images, 2.50 images/s, 1.5 GiB saved\n"},
        {-5, 6, "resizing: 25 images, 2.50 images/s, 1 B saved\n"},
        {5, -6, "resizing: 25 images, 2.50 images/s\n"},
        {0, 0, "resizing: 25 images, 2.50 images/s\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Progress progress;
        progress_start(&progress, stdout, "resizing", "images", 0, false);
        progress_add_saved(&progress, cases[i].first);
        progress_add_saved(&progress, cases[i].second);
        char *text = line_after(folder, &progress);
        assert_string_equal(text, cases[i].text);
        free(text);
    }
}

TEST_IN_FOLDER(test_quiet_prints_notes_only, folder)
{
    const char *path = test_path(folder, "log");
    FILE *stream = fopen(path, "we");
    assert_non_null(stream);
    Progress progress;
    progress_start(&progress, stream, "packing", "images", 10, true);
    make_due(&progress);
    progress_add(&progress, 5, 0, 0);
    progress_note(&progress, "%s: left out", "a.jpg");
    progress_finish(&progress);
    assert_int_equal(fclose(stream), 0);
    char *text = test_file_read(path, NULL);
    assert_string_equal(text, "a.jpg: left out\n");
    free(text);
    assert_int_equal(progress.done, 5);
}

static FshStatus add_one(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    (void)error;
    progress_add(context, 1, item, item % 10 == 0);
    return FSH_OK;
}

TEST(test_threads_lose_no_count)
{
    FILE *stream = fopen("/dev/null", "we");
    assert_non_null(stream);
    Progress progress;
    progress_start(&progress, stream, "packing", "images", 20000, false);
    assert_int_equal(pool_run(8, 20000, add_one, &progress, NULL), FSH_OK);
    assert_int_equal(progress.done, 20000);
    assert_int_equal(progress.bytes, UINT64_C(20000) * 19999 / 2);
    assert_int_equal(progress.failed, 2000);
    (void)fclose(stream);
}

/* ---- on a terminal ---- */

typedef struct Terminal {
    int master;
    FILE *stream;
} Terminal;

static void open_terminal(Terminal *terminal, unsigned short columns)
{
    terminal->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal->master < 0 || grantpt(terminal->master) || unlockpt(terminal->master))
        skip();
    char name[64];
    assert_int_equal(ptsname_r(terminal->master, name, sizeof name), 0);
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    struct termios settings;
    assert_int_equal(tcgetattr(slave, &settings), 0);
    cfmakeraw(&settings); /* bytes arrive as they were written */
    assert_int_equal(tcsetattr(slave, TCSANOW, &settings), 0);
    const struct winsize size = {.ws_row = 25, .ws_col = columns};
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    terminal->stream = fdopen(slave, "w");
    assert_non_null(terminal->stream);
    assert_int_equal(fcntl(terminal->master, F_SETFL, O_NONBLOCK), 0);
}

static void close_terminal(Terminal *terminal)
{
    (void)fclose(terminal->stream);
    (void)close(terminal->master);
}

/* Reads into text what has arrived on the screen since the last call. */
static void look(const Terminal *terminal, char *text, size_t text_bytes)
{
    size_t length = 0;
    for (int quiet = 0; quiet < 20 && length + 1 < text_bytes;) {
        ssize_t got = read(terminal->master, text + length, text_bytes - 1 - length);
        if (got > 0) {
            length += (size_t)got;
            quiet = 0;
        } else {
            quiet++;
            sleep_seconds(0.001);
        }
    }
    text[length] = '\0';
}

#define CLEAR "\r\033[K"

TEST(test_on_a_terminal_a_bar_is_redrawn_and_cleared)
{
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    Terminal terminal;
    Progress progress;
    char text[1024];
    open_terminal(&terminal, 120);
    progress_start(&progress, terminal.stream, "packing", "images", 200, false);
    assert_true((double)progress.next_draw_ns * 1e-9 > progress.start_seconds + 0.05);
    atomic_store(&progress.next_draw_ns, UINT64_MAX); /* not due, however slow this machine is */
    progress_add(&progress, 9, 0, 0);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, "");
    make_due(&progress);
    progress_add(&progress, 101, 0, 0);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, CLEAR
                        "packing 110/200 images [===========>        ]  55 %,     11 images/s,    0:08 left");
    progress_note(&progress, "%s: left out", "a.jpg");
    look(&terminal, text, sizeof text);
    assert_string_equal(text, CLEAR "a.jpg: left out\n");
    progress_clear(&progress); /* nothing stands there any more */
    look(&terminal, text, sizeof text);
    assert_string_equal(text, "");
    make_due(&progress);
    progress_add(&progress, 90, 0, 0);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, CLEAR "packing 200/200 images [====================] 100 %,     20 images/s");
    progress_finish(&progress);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, CLEAR);
    close_terminal(&terminal);
}

TEST(test_a_position_draws_a_bar)
{
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    Terminal terminal;
    Progress progress;
    char text[1024];
    open_terminal(&terminal, 120);
    progress_start(&progress, terminal.stream, "resizing", "images", 0, false);
    progress_set_position(&progress, 55, 100);
    progress_add_saved(&progress, 1 << 20);
    make_due(&progress);
    progress_add(&progress, 110, 0, 2);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, CLEAR
                        "resizing 110 images [===========>        ]  55 %,     11 images/s,    0:08 left, "
                        "   1 MiB saved, 2 failed");
    progress_finish(&progress);
    close_terminal(&terminal);
}

TEST(test_a_bar_is_cut_to_the_width_of_the_terminal)
{
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    Terminal terminal;
    Progress progress;
    char text[1024];
    open_terminal(&terminal, 30);
    progress_start(&progress, terminal.stream, "packing", "images", 200, false);
    make_due(&progress);
    progress_add(&progress, 100, 1 << 20, 1);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, CLEAR "packing 100/200 images  50 %,");
    assert_int_equal(strlen(text) - strlen(CLEAR), 29);
    close_terminal(&terminal);
}

/* The bar goes first, then bytes: what was cut off in 80 columns were the time that is left and the
 * failures. */
TEST(test_80_columns_hold_what_matters)
{
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    static const struct {
        uint64_t done, total, bytes, saved;
        const char *text;
    } cases[] = {
        {100, 200, UINT64_C(1) << 20, 0,
         CLEAR "packing 100/200 files  50 %,     10 files/s,  102 KiB/s,  0:10 left, 3 failed"},
        {100000, 2000000, UINT64_C(1) << 40, 0,
         CLEAR "packing   100,000/2,000,000 files   5 %, 10,000 files/s,  3:10 left, 3 failed"},
        {100000, 2000000, UINT64_C(1) << 40, UINT64_C(1) << 39,
         CLEAR "packing   100,000/2,000,000 files   5 %, 10,000 files/s,  3:10 left, 3 failed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Terminal terminal;
        Progress progress;
        char text[1024];
        open_terminal(&terminal, 80);
        progress_start(&progress, terminal.stream, "packing", "files", cases[i].total, false);
        progress_add_saved(&progress, (int64_t)cases[i].saved);
        make_due(&progress);
        progress_add(&progress, cases[i].done, cases[i].bytes, 3);
        look(&terminal, text, sizeof text);
        assert_string_equal(text, cases[i].text);
        close_terminal(&terminal);
    }
}

/* Numbers grow, and the line does not move: its columns are those of the end. */
TEST(test_a_bar_keeps_its_width_while_it_runs)
{
    static const struct {
        uint64_t count, bytes;
    } steps[] = {{7, 900},        {90, UINT64_C(3) << 20},    {900, 1},
                 {2000, 1 << 30}, {30000, UINT64_C(1) << 36}, {27002, UINT64_C(1) << 37}};
    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    Terminal terminal;
    Progress progress;
    char text[1024];
    size_t width = 0;
    open_terminal(&terminal, 120);
    progress_start(&progress, terminal.stream, "packing", "images", 60000, false);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        make_due(&progress);
        progress.start_seconds = progress_now_seconds() - 1;
        progress_add(&progress, steps[i].count, steps[i].bytes, 0);
        look(&terminal, text, sizeof text);
        if (i && strlen(text) != width)
            fail_msg("\"%s\" is %zu wide, not %zu", text + strlen(CLEAR), strlen(text), width);
        width = strlen(text);
    }
    progress_finish(&progress);
    close_terminal(&terminal);
}

TEST(test_a_dumb_terminal_gets_plain_lines)
{
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    Terminal terminal;
    Progress progress;
    char text[1024];
    open_terminal(&terminal, 100);
    progress_start(&progress, terminal.stream, "packing", "images", 200, false);
    make_due(&progress);
    progress_add(&progress, 100, 0, 0);
    look(&terminal, text, sizeof text);
    assert_string_equal(text, "packing: 100/200 images, 10 images/s, 0:10 left\n");
    close_terminal(&terminal);
}
