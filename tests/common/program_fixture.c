/* program_fixture.c - the smallest program over program_main; program_test.c watches it from outside. */
#include "common/program.h"

#include <string.h>
#include <time.h>

#include "common/file.h"
#include "common/interrupt.h"

typedef struct Settings {
    ProgramOptions program;
    int end; /* of ends */
    const char *ready, *write_path, *stdio_path;
    int64_t bytes, lines;
    OptionList list;
} Settings;

enum {
    END_OK,
    END_PARTIAL,
    END_CORRUPT,
    END_USAGE,
    END_SILENT,
    END_INTERRUPTED,
    END_WAIT,
    END_IGNORE,
    END_REQUEUE,
};
static const char *const ends[] = {"ok",          "partial", "corrupt", "usage",   "silent",
                                   "interrupted", "wait",    "ignore",  "requeue", NULL};

static void nap(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    (void)nanosleep(&pause, NULL);
}

/* Says by a file that the signal handlers are there, then waits for a signal. */
static FshStatus wait_for_signal(const Settings *settings, bool for_ever, FshError *error)
{
    FshStatus status = file_write_atomic(settings->ready, "", 0, true, false, error);
    while (!status && (for_ever || !interrupt_requested()))
        nap();
    return status ? status : fsh_error_set(error, FSH_ERR_INTERRUPTED, "stopped after %d files", 3);
}

/* Writes `bytes` bytes in pieces, as a program writes a shard. */
static FshStatus write_atomic(const Settings *settings, FshError *error)
{
    static const char piece[1000] = {0};
    AtomicFile file;
    FshStatus status = atomic_file_open(&file, settings->write_path, true, error);
    if (status)
        return status;
    for (int64_t left = settings->bytes; left > 0 && !status; left -= (int64_t)sizeof piece)
        status = atomic_file_write(&file, piece, left < (int64_t)sizeof piece ? (size_t)left : sizeof piece,
                                   error);
    if (status)
        atomic_file_abandon(&file);
    else
        status = atomic_file_commit(&file, true, error);
    return status;
}

static FshStatus write_stdio(const Settings *settings, FshError *error)
{
    FILE *stream = fopen(settings->stdio_path, "we");
    bool written = stream != NULL;
    for (int64_t i = 0; written && i < settings->bytes; i++)
        written = fputc('x', stream) != EOF;
    if (stream && fclose(stream))
        written = false;
    return written ? FSH_OK
                   : fsh_error_set(error, FSH_ERR_NO_SPACE, "%s: cannot write", settings->stdio_path);
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    FshStatus status = FSH_OK;
    if (settings->write_path)
        status = write_atomic(settings, error);
    if (!status && settings->stdio_path)
        status = write_stdio(settings, error);
    for (int64_t i = 0; i < settings->lines; i++)
        (void)printf("line %lld\n", (long long)i);
    for (size_t i = 0; i < context->arguments->count; i++)
        (void)printf("%s\n", context->arguments->items[i]);
    if (status)
        return status;
    if (settings->end == END_PARTIAL)
        *partial_ret = true;
    if (settings->end == END_CORRUPT)
        return fsh_error_set(error, FSH_ERR_CORRUPT, "a.fshard: torn");
    if (settings->end == END_USAGE)
        return fsh_error_set(error, FSH_ERR_USAGE, "--a and --b contradict each other");
    if (settings->end == END_SILENT)
        return FSH_ERR_LIBRARY;
    if (settings->end == END_INTERRUPTED)
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "stopped");
    if (settings->end == END_REQUEUE)
        interrupt_install_requeue();
    if (settings->end == END_WAIT || settings->end == END_REQUEUE)
        return wait_for_signal(settings, false, error);
    if (settings->end == END_IGNORE)
        return wait_for_signal(settings, true, error);
    return FSH_OK;
}

static const char *versions(char *buffer, size_t buffer_bytes)
{
    (void)snprintf(buffer, buffer_bytes, "libnothing 1.0");
    return buffer;
}

int main(int argc, char **argv)
{
    Settings settings = {.end = END_OK};
    const Option options[] = {
        {.name = "end",
         .kind = OPTION_CHOICE,
         .value = &settings.end,
         .argument = "HOW",
         .choices = ends,
         .help = "how run ends"},
        {.name = "ready",
         .kind = OPTION_TEXT,
         .value = &settings.ready,
         .argument = "FILE",
         .help = "made when waiting"},
        {.name = "write",
         .kind = OPTION_TEXT,
         .value = &settings.write_path,
         .argument = "FILE",
         .help = "to write"},
        {.name = "stdio",
         .kind = OPTION_TEXT,
         .value = &settings.stdio_path,
         .argument = "FILE",
         .help = "to write"},
        {.name = "bytes",
         .kind = OPTION_INTEGER,
         .value = &settings.bytes,
         .argument = "N",
         .help = "how many"},
        {.name = "lines",
         .kind = OPTION_INTEGER,
         .value = &settings.lines,
         .argument = "N",
         .help = "to print"},
        {.name = "list", .kind = OPTION_LIST, .value = &settings.list, .argument = "X", .help = "anything"},
        PROGRAM_OPTIONS(&settings.program),
        {0},
    };
    const OptionTable table = {.program = "fixture",
                               .summary = "Does as it is told.",
                               .usage = "[OPTIONS] [WORD]",
                               .options = options,
                               .arguments_max = 1};
    return program_main(argc, argv, &table, &settings, versions, run);
}
