#include "trainer/report/console.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
    console_clear(console);
    (void)fputs(prefix, console->stream);
    (void)vfprintf(console->stream, format, arguments);
    (void)fputc('\n', console->stream);
    (void)fflush(console->stream);
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
    va_start(arguments, format);
    print_line(console, "warning: ", format, arguments);
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

void console_step(Console *console, const StepReport *report)
{
    console_line(console,
                 "Epoch: [%llu][%*llu/%llu]\tTime %6.3f (%6.3f)\tData %6.3f (%6.3f)\tLoss %.4e (%.4e)\t"
                 "Acc@1 %6.2f (%6.2f)\tAcc@5 %6.2f (%6.2f)",
                 (unsigned long long)report->epoch, digits_of(report->steps),
                 (unsigned long long)report->step + 1, (unsigned long long)report->steps, report->seconds_now,
                 report->seconds_mean, report->data_now, report->data_mean, report->loss_now,
                 report->loss_mean, report->top1_now, report->top1_mean, report->top5_now, report->top5_mean);
}

static size_t terminal_columns(const Console *console)
{
    struct winsize size = {0};
    if (ioctl(fileno(console->stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
        return size.ws_col;
    return 80;
}

/* Time to draw again? */
static bool is_due(Console *console)
{
    double now = progress_now_seconds();
    if (!console->terminal || now < console->next_draw_seconds)
        return false;
    console->next_draw_seconds = now + draw_interval_seconds;
    return true;
}

/* A line wider than the terminal would wrap and leave its first half standing: cut it. */
static void draw(Console *console, const char *text)
{
    (void)fprintf(console->stream, "\r%.*s\033[K", (int)terminal_columns(console) - 1, text);
    (void)fflush(console->stream);
    console->drawn = true;
}

void console_progress(Console *console, const StepReport *report)
{
    if (!is_due(console))
        return;
    char remaining[32], text[512];
    double data_share = report->seconds_mean > 0 ? 100 * report->data_mean / report->seconds_mean : 0;
    (void)snprintf(
        text, sizeof text,
        "epoch %llu/%llu step %*llu/%llu  loss %.3f  top-1 %.1f  lr %.2g  %.0f images/s  %s left  data %.0f "
        "%%",
        (unsigned long long)report->epoch, (unsigned long long)report->epochs, digits_of(report->steps),
        (unsigned long long)report->step + 1, (unsigned long long)report->steps, report->loss_mean,
        report->top1_mean, report->learning_rate, report->images_per_second,
        progress_format_duration(remaining, sizeof remaining, report->remaining_seconds), data_share);
    draw(console, text);
}

void console_evaluating(Console *console, uint64_t step, uint64_t steps)
{
    if (!is_due(console))
        return;
    char text[80];
    (void)snprintf(text, sizeof text, "evaluating %llu/%llu", (unsigned long long)step + 1,
                   (unsigned long long)steps);
    draw(console, text);
}

void console_evaluated(Console *console, double top1, double top5, double loss, const char *note)
{
    console_line(console, " *   Acc@1 %.3f Acc@5 %.3f Loss %.4f%s", top1, top5, loss, note);
}
