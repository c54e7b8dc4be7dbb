#include "common/progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "common/program.h"

enum { LINE_BYTES = 512 };
static const uint64_t bar_interval_ns = 100 * UINT64_C(1000000);
static const uint64_t line_interval_ns = 10 * UINT64_C(1000000000);

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

double progress_now_seconds(void)
{
    return (double)now_ns() * 1e-9;
}

double progress_thread_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double progress_lap_seconds(double *start_seconds)
{
    const double now = progress_now_seconds(), taken = now - *start_seconds;
    *start_seconds = now;
    return taken;
}

/* ---- numbers for people ---- */

const char *progress_format_bytes(char *buffer, size_t buffer_bytes, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        (void)snprintf(buffer, buffer_bytes, "%u B", (unsigned)bytes);
        return buffer;
    }
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1023.5 && unit + 1 < sizeof units / sizeof *units) { /* would be rounded to 1024 */
        value /= 1024;
        unit++;
    }
    /* %.3g would write 1000 and more with an exponent. */
    (void)snprintf(buffer, buffer_bytes, value < 100 ? "%.3g %s" : "%.0f %s", value, units[unit]);
    return buffer;
}

const char *progress_format_duration(char *buffer, size_t buffer_bytes, double seconds)
{
    const double longest = 359999999; /* 99999:59:59 */
    if (!(seconds >= 0))              /* NaN too */
        seconds = 0;
    unsigned long whole = (unsigned long)lround(seconds < longest ? seconds : longest);
    unsigned long hours = whole / 3600, minutes = whole / 60 % 60;
    if (hours)
        (void)snprintf(buffer, buffer_bytes, "%lu:%02lu:%02lu", hours, minutes, whole % 60);
    else
        (void)snprintf(buffer, buffer_bytes, "%lu:%02lu", minutes, whole % 60);
    return buffer;
}

const char *progress_format_count(char *buffer, size_t buffer_bytes, uint64_t count)
{
    char digits[24];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)count), used = 0;
    for (size_t i = 0; i < length && used + 2 < buffer_bytes; i++) {
        if (i && (length - i) % 3 == 0)
            buffer[used++] = ',';
        buffer[used++] = digits[i];
    }
    if (buffer_bytes)
        buffer[used] = '\0';
    return buffer;
}

/* ---- the line ---- */

typedef struct Snapshot {
    uint64_t total, done, bytes, failed;
    int64_t saved_bytes;
    double part; /* share done, 0 to 1; negative: unknown */
    double seconds;
} Snapshot;

static Snapshot take_snapshot(Progress *progress)
{
    Snapshot now = {
        .total = atomic_load_explicit(&progress->total, memory_order_relaxed),
        .done = atomic_load_explicit(&progress->done, memory_order_relaxed),
        .bytes = atomic_load_explicit(&progress->bytes, memory_order_relaxed),
        .failed = atomic_load_explicit(&progress->failed, memory_order_relaxed),
        .saved_bytes = atomic_load_explicit(&progress->saved_bytes, memory_order_relaxed),
        .part = -1,
        .seconds = progress_now_seconds() - progress->start_seconds,
    };
    uint64_t position = atomic_load_explicit(&progress->position, memory_order_relaxed);
    uint64_t extent = atomic_load_explicit(&progress->extent, memory_order_relaxed);
    if (now.total)
        now.part = (double)now.done / (double)now.total;
    else if (extent)
        now.part = (double)position / (double)extent;
    if (now.part > 1)
        now.part = 1;
    return now;
}

/* A line under construction, cut when it is full. */
typedef struct Line {
    char text[LINE_BYTES];
    size_t length;
} Line;

static void append(Line *line, const char *format, ...) FSH_PRINTF(2, 3);
static void append(Line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line->text + line->length, sizeof line->text - line->length, format, arguments);
    va_end(arguments);
    if (length > 0)
        line->length += (size_t)length;
    if (line->length >= sizeof line->text)
        line->length = sizeof line->text - 1;
}

/* What numbers take on a terminal, where the line stands still while they grow: as many columns as the
 * longest of usual runs, "12,345" images/s, "1.23 MiB"/s and "1:23:45" left, on a narrow one "12:34". */
enum { RATE_COLUMNS = 6, BYTES_COLUMNS = 8, DURATION_COLUMNS = 7, SHORT_DURATION_COLUMNS = 5 };

/* Appends "1,234/60,000 images"; padded: as wide as at the end. */
static void append_count(Line *line, const Snapshot *now, const char *unit, bool padded)
{
    char done[32], total[32] = "";
    if (now->total)
        (void)progress_format_count(total, sizeof total, now->total);
    append(line, "%*s", padded ? (int)strlen(total) : 0, progress_format_count(done, sizeof done, now->done));
    append(line, "%s%s %s", now->total ? "/" : "", total, unit);
}

/* What a line shows, from everything to the least, for narrow terminals: 80 columns hold the time left and
 * the failures of any run. */
typedef enum Detail { DETAIL_ALL, DETAIL_NO_BAR, DETAIL_NO_BYTES, DETAIL_LEAST } Detail;

/* Appends ", 3,456 images/s, 120 MiB/s, 0:07 left, 1.2 GiB saved, 3 failed", as far as it is known. */
static void append_rates(Line *line, const Snapshot *now, const char *unit, Detail detail, bool padded)
{
    char number[32];
    const int rate_columns = padded ? RATE_COLUMNS : 0, bytes_columns = padded ? BYTES_COLUMNS : 0,
              duration_columns = !padded                  ? 0
                                 : detail < DETAIL_NO_BAR ? DURATION_COLUMNS
                                                          : SHORT_DURATION_COLUMNS;
    if (now->seconds > 0 && now->done) {
        double rate = (double)now->done / now->seconds;
        if (rate < 9.995) /* three digits; above, whole numbers */
            append(line, ", %*.2f %s/s", rate_columns, rate, unit);
        else
            append(line, ", %*s %s/s", rate_columns,
                   progress_format_count(number, sizeof number, (uint64_t)llround(rate)), unit);
        if (now->bytes && detail < DETAIL_NO_BYTES)
            append(
                line, ", %*s/s", bytes_columns,
                progress_format_bytes(number, sizeof number, (uint64_t)((double)now->bytes / now->seconds)));
    }
    if (now->seconds > 0 && now->part > 0 && now->part < 1)
        append(line, ", %*s left", duration_columns,
               progress_format_duration(number, sizeof number, now->seconds * (1 / now->part - 1)));
    if (now->saved_bytes > 0 && detail < DETAIL_LEAST)
        append(line, ", %*s saved", bytes_columns,
               progress_format_bytes(number, sizeof number, (uint64_t)now->saved_bytes));
    if (now->failed)
        append(line, ", %s failed", progress_format_count(number, sizeof number, now->failed));
}

/* Appends " [=====>    ]  55 %"; without cells "  55 %". */
static void append_bar(Line *line, const Snapshot *now, unsigned cells)
{
    unsigned full = (unsigned)(now->part * cells);
    append(line, cells ? " [" : "");
    for (unsigned i = 0; i < cells; i++)
        append(line, "%c", i < full ? '=' : i == full ? '>' : ' ');
    append(line, "%s %3u %%", cells ? "]" : "", (unsigned)(now->part * 100));
}

static size_t terminal_columns(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 10)
        return size.ws_col;
    return 80;
}

/* Fills a terminal's line of at most `columns` columns, without control sequences, with as much as fits; the
 * bar is shortened first. */
static void fill_line(Line *line, const Progress *progress, const Snapshot *now, size_t columns)
{
    static const struct {
        unsigned cells;
        Detail detail;
    } forms[] = {{20, DETAIL_ALL},   {10, DETAIL_ALL},     {5, DETAIL_ALL},
                 {0, DETAIL_NO_BAR}, {0, DETAIL_NO_BYTES}, {0, DETAIL_LEAST}};
    const size_t begin = line->length;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        line->length = begin;
        append(line, "%s ", progress->verb);
        append_count(line, now, progress->unit, true);
        if (now->part >= 0)
            append_bar(line, now, forms[i].cells);
        append_rates(line, now, progress->unit, forms[i].detail, true);
        if (line->length - begin <= columns)
            return;
    }
    line->length = begin + columns;
}

static void draw(Progress *progress)
{
    Snapshot now = take_snapshot(progress);
    Line line = {.length = 0};
    if (progress->terminal) {
        append(&line, "\r\033[K");
        fill_line(&line, progress, &now,
                  terminal_columns(progress->stream) - 1); /* the last column would wrap */
    } else {
        append(&line, "%s: ", progress->verb);
        append_count(&line, &now, progress->unit, false);
        if (!now.total && now.part >= 0)
            append(&line, ", %u %%", (unsigned)(now.part * 100));
        append_rates(&line, &now, progress->unit, DETAIL_ALL, false);
        append(&line, "\n");
    }
    flockfile(progress->stream); /* progress_note may be between its clearing and its line */
    atomic_store(&progress->drawn, progress->terminal);
    (void)fwrite(line.text, 1, line.length, progress->stream);
    (void)fflush(progress->stream);
    funlockfile(progress->stream);
}

/* ---- for callers ---- */

static bool is_terminal(FILE *stream)
{
    const char *kind = getenv("TERM");
    return isatty(fileno(stream)) && kind && strcmp(kind, "dumb") != 0;
}

static uint64_t interval_of(const Progress *progress)
{
    return progress->terminal ? bar_interval_ns : line_interval_ns;
}

void progress_start(Progress *progress, FILE *stream, const char *verb, const char *unit, uint64_t total,
                    bool quiet)
{
    progress->stream = stream;
    progress->verb = verb;
    progress->unit = unit;
    progress->quiet = quiet;
    progress->terminal = is_terminal(stream);
    progress->start_seconds = progress_now_seconds();
    atomic_init(&progress->total, total);
    atomic_init(&progress->done, 0);
    atomic_init(&progress->bytes, 0);
    atomic_init(&progress->failed, 0);
    atomic_init(&progress->position, 0);
    atomic_init(&progress->extent, 0);
    atomic_init(&progress->saved_bytes, 0);
    atomic_init(&progress->drawn, false);
    /* Not at once: work that ends within the first interval needs no line. */
    atomic_init(&progress->next_draw_ns, now_ns() + interval_of(progress));
}

void progress_add(Progress *progress, uint64_t count, uint64_t bytes, uint64_t failed)
{
    (void)atomic_fetch_add_explicit(&progress->done, count, memory_order_relaxed);
    if (bytes)
        (void)atomic_fetch_add_explicit(&progress->bytes, bytes, memory_order_relaxed);
    if (failed)
        (void)atomic_fetch_add_explicit(&progress->failed, failed, memory_order_relaxed);
    if (progress->quiet)
        return;
    uint64_t now = now_ns(), due = atomic_load_explicit(&progress->next_draw_ns, memory_order_relaxed);
    if (now >= due &&
        atomic_compare_exchange_strong(&progress->next_draw_ns, &due, now + interval_of(progress)))
        draw(progress);
}

void progress_set_total(Progress *progress, uint64_t total)
{
    atomic_store_explicit(&progress->total, total, memory_order_relaxed);
}

void progress_set_position(Progress *progress, uint64_t position, uint64_t extent)
{
    atomic_store_explicit(&progress->position, position, memory_order_relaxed);
    atomic_store_explicit(&progress->extent, extent, memory_order_relaxed);
}

void progress_add_saved(Progress *progress, int64_t bytes)
{
    (void)atomic_fetch_add_explicit(&progress->saved_bytes, bytes, memory_order_relaxed);
}

void progress_clear(Progress *progress)
{
    if (atomic_exchange(&progress->drawn, false)) {
        (void)fputs("\r\033[K", progress->stream);
        (void)fflush(progress->stream);
    }
}

void progress_note(Progress *progress, const char *format, ...)
{
    char text[4096]; /* messages are shorter; the paths in them may be hostile */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    flockfile(progress->stream);
    progress_clear(progress);
    program_print_text(progress->stream, text);
    (void)fputc('\n', progress->stream);
    (void)fflush(progress->stream);
    funlockfile(progress->stream);
}

void progress_finish(Progress *progress)
{
    progress->quiet = true;
    progress_clear(progress);
}
