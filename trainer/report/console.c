#include "trainer/report/console.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/program.h"
#include "common/progress.h"

static const double draw_interval_seconds = 0.1;

void console_open(Console *console, FILE *stream, bool quiet)
{
    const char *terminal = getenv("TERM");
    *console = (Console){.stream = stream, .quiet = quiet};
    console->terminal = !quiet && isatty(fileno(stream)) && !(terminal && strcmp(terminal, "dumb") == 0);
}

void console_clear(Console *console)
{
    if (console->drawn)
        (void)fputs("\r\033[K", console->stream);
    console->drawn = false;
}

static void print_line(Console *console, const char *prefix, const char *format, va_list arguments)
{
    char text[4096]; /* messages are shorter; the keys and paths in them may be hostile */
    (void)vsnprintf(text, sizeof text, format, arguments);
    console_clear(console);
    (void)fputs(prefix, console->stream);
    for (char *part = text, *tab = NULL; part;
         part = tab) { /* columns are separated by tabs, which are harmless */
        tab = strchr(part, '\t');
        if (tab)
            *tab++ = '\0';
        program_print_text(console->stream, part);
        if (tab)
            (void)fputc('\t', console->stream);
    }
    (void)fputc('\n', console->stream);
    (void)fflush(console->stream);
}

void console_set_rank(Console *console, uint64_t rank)
{
    console->rank = rank;
    console->quiet = true;
    console->terminal = false;
}

void console_line(Console *console, const char *format, ...)
{
    if (console->quiet)
        return;
    va_list arguments;
    va_start(arguments, format);
    print_line(console, "", format, arguments);
    va_end(arguments);
}

void console_warning(Console *console, const char *format, ...)
{
    va_list arguments;
    char prefix[48] = "warning: ";
    if (console->rank)
        (void)snprintf(prefix, sizeof prefix, "warning: rank %llu: ", (unsigned long long)console->rank);
    va_start(arguments, format);
    print_line(console, prefix, format, arguments);
    va_end(arguments);
}

static int digits_of(uint64_t number)
{
    int digits = 1;
    while (number >= 10) {
        number /= 10;
        digits++;
    }
    return digits;
}

/* Appends to text as far as there is room. Returns the new length. */
FSH_PRINTF(4, 5) static size_t append(char *text, size_t text_bytes, size_t length, const char *format, ...);

static size_t append(char *text, size_t text_bytes, size_t length, const char *format, ...)
{
    va_list arguments;
    if (length >= text_bytes)
        return length;
    va_start(arguments, format);
    const int wrote = vsnprintf(text + length, text_bytes - length, format, arguments);
    va_end(arguments);
    return length + (wrote > 0 ? (size_t)wrote : 0);
}

/* Returns the seconds to the end of the run, evaluation included. */
static double remaining_seconds(const StepReport *report)
{
    return report->remaining_seconds + report->remaining_evaluation_seconds;
}

void console_step(Console *console, const StepReport *report)
{
    char text[512], remaining[32];
    size_t length =
        report->iterations
            ? append(text, sizeof text, 0, "Iteration: [%*llu/%llu]", digits_of(report->iterations),
                     (unsigned long long)report->iteration, (unsigned long long)report->iterations)
            : append(text, sizeof text, 0, "Epoch: [%llu][%*llu/%llu]", (unsigned long long)report->epoch,
                     digits_of(report->steps), (unsigned long long)report->step + 1,
                     (unsigned long long)report->steps);
    length = append(text, sizeof text, length, "\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)",
                    report->seconds_now, report->seconds_mean, report->data_now, report->data_mean);
    for (int i = 0; i < METRIC_COUNT; i++)
        if (metrics_has(&report->mean, (Metric)i) && metric_is_shown((Metric)i, console->classes))
            length = append(text, sizeof text, length,
                            i == METRIC_LOSS ? "\t%s %.4e (%.4e)" : "\t%s %6.2f (%6.2f)", metric_titles[i],
                            metrics_value(&report->now, (Metric)i), metrics_value(&report->mean, (Metric)i));
    (void)append(text, sizeof text, length, "\tETA %s",
                 progress_format_duration(remaining, sizeof remaining, remaining_seconds(report)));
    console_line(console, "%s", text);
}

static size_t terminal_columns(const Console *console)
{
    struct winsize size = {0};
    if (ioctl(fileno(console->stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        return size.ws_col;
    return 80;
}

/* Returns whether the progress line is due to be drawn again. */
static bool is_due(Console *console)
{
    double now = progress_now_seconds();
    if (!console->terminal || now < console->next_draw_seconds)
        return false;
    console->next_draw_seconds = now + draw_interval_seconds;
    return true;
}

/* Returns how many bytes of the text stand in as many columns at most, with no part of a word: 0.1 would be
 * read of 0.15. */
static size_t whole_words(const char *text, size_t columns)
{
    size_t bytes = strlen(text);
    if (bytes <= columns)
        return bytes;
    bytes = columns;
    while (bytes && text[bytes] != ' ' && text[bytes - 1] != ' ')
        bytes--;
    return bytes;
}

/* Draws the progress line, cut to the terminal's width: a wider line would wrap and its first half would
 * stay. */
static void draw(Console *console, const char *text)
{
    const size_t bytes = whole_words(text, terminal_columns(console) - 1);
    (void)fprintf(console->stream, "\r%.*s\033[K", (int)bytes, text);
    (void)fflush(console->stream);
    console->drawn = true;
}

/* What the progress line shows: all; no share that another one tells; fewer words, for a narrow terminal. */
typedef enum ProgressForm { FORM_ALL, FORM_DATA_ALONE, FORM_BRIEF } ProgressForm;

/* Formats the progress line, whose numbers keep their columns while they change. Returns its length, which
 * may be more than text has room for. */
static size_t format_progress(const StepReport *report, ProgressForm form, char *text, size_t text_bytes)
{
    static const Metric shown[] = {METRIC_LOSS, METRIC_TOP1, METRIC_PSNR};
    const bool brief = form == FORM_BRIEF;
    const int epoch_columns = brief ? 0 : digits_of(report->epochs);
    char remaining[32], place[40] = "";
    if (!brief)
        (void)snprintf(place, sizeof place, "epoch %*llu (", epoch_columns,
                       (unsigned long long)report->epoch);
    const double data_share = report->seconds_mean > 0 ? 100 * report->data_mean / report->seconds_mean : 0;
    size_t length = report->iterations
                        ? append(text, text_bytes, 0, brief ? "%*llu/%llu " : "iteration %*llu/%llu ",
                                 digits_of(report->iterations), (unsigned long long)report->iteration,
                                 (unsigned long long)report->iterations)
                        : append(text, text_bytes, 0, "%s%*llu/%llu%s%*llu/%llu ", place, epoch_columns,
                                 (unsigned long long)report->epoch + 1, (unsigned long long)report->epochs,
                                 brief ? " " : ") step ", digits_of(report->steps),
                                 (unsigned long long)report->step + 1, (unsigned long long)report->steps);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (metrics_has(&report->mean, shown[i]))
            length = append(text, text_bytes, length,
                            shown[i] != METRIC_LOSS ? (brief ? " %s %5.2f" : " %s %6.2f")
                            : brief                 ? " %s %#5.3g"
                                                    : " %s %#7.4g",
                            metric_titles[shown[i]], metrics_value(&report->mean, shown[i]));
    length =
        append(text, text_bytes, length,
               brief ? "  lr %7.2g  %4.0f img/s  %5s  data %3.0f %%"
                     : "  lr %7.2g  %6.0f images/s  %7s left  data %3.0f %%",
               report->learning_rate, report->images_per_second,
               progress_format_duration(remaining, sizeof remaining, remaining_seconds(report)), data_share);
    return form == FORM_ALL ? append(text, text_bytes, length, ", compute %3.0f %%", 100 - data_share)
                            : length;
}

void console_progress(Console *console, const StepReport *report)
{
    char text[512];
    if (!is_due(console))
        return;
    for (ProgressForm form = FORM_ALL; form <= FORM_BRIEF; form++)
        if (format_progress(report, form, text, sizeof text) < terminal_columns(console))
            break;
    draw(console, text);
}

void console_evaluating(Console *console, uint64_t step, uint64_t steps)
{
    if (!is_due(console))
        return;
    char text[80];
    (void)snprintf(text, sizeof text, "evaluating %*llu/%llu", digits_of(steps), (unsigned long long)step + 1,
                   (unsigned long long)steps);
    draw(console, text);
}

void console_evaluated(Console *console, const char *what, const Metrics *metrics, const char *note)
{
    static const Metric order[] = {
        METRIC_TOP1,     METRIC_TOP5, METRIC_PSNR, METRIC_SSIM, METRIC_INPUT_PSNR,     METRIC_MAP, METRIC_F1,
        METRIC_F1_MICRO, METRIC_MAE,  METRIC_RMSE, METRIC_MIOU, METRIC_PIXEL_ACCURACY, METRIC_LOSS};
    char text[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (metrics_has(metrics, order[i]) && metric_is_shown(order[i], console->classes))
            length = append(text, sizeof text, length,
                            order[i] == METRIC_LOSS || order[i] == METRIC_SSIM || order[i] == METRIC_MAE ||
                                    order[i] == METRIC_RMSE
                                ? " %s %.4f"
                                : " %s %.3f",
                            metric_titles[order[i]], metrics_value(metrics, order[i]));
    console_line(console, " * %s %s%s", what, text, note);
}
