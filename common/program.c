#include "common/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/read_fault.h"
#include "common/text.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_REQUEUE = 75, EXIT_SIGNALLED = 128 };

void program_print_text(FILE *stream, const char *text)
{
    const size_t length = strlen(text);
    size_t written = 0; /* how much was printed */
    for (size_t at = 0, bytes = 0; at < length; at += bytes) {
        bool control = false;
        bytes = text_character(text + at, length - at, &control);
        if (!control)
            continue;
        (void)fwrite(text + written, 1, at - written, stream);
        (void)fputc('?', stream);
        written = at + bytes;
    }
    (void)fwrite(text + written, 1, length - written, stream);
}

static void print_error(const OptionTable *table, FshStatus status, const FshError *error)
{
    (void)fprintf(stderr, "%s: ", table->speaker ? table->speaker : table->program);
    program_print_text(stderr, error->message[0] ? error->message : fsh_strerror(status));
    (void)fputc('\n', stderr);
    if (status == FSH_ERR_USAGE)
        (void)fprintf(stderr, "Try '%s --help'.\n", table->program);
}

FshStatus program_take_paths(const ProgramContext *context, const char **source, const char **destination,
                             FshError *error)
{
    const OptionArguments *arguments = context->arguments;
    const OptionTable *table = context->table;
    const char **const paths[] = {source, destination};
    size_t taken = 0;
    for (size_t i = 0; i < 2; i++) {
        if (!*paths[i] && taken < arguments->count)
            *paths[i] = arguments->items[taken++];
        if (!*paths[i])
            return fsh_error_set(error, FSH_ERR_USAGE, "%s is missing; usage: %s %s",
                                 i == 0 ? "SRC, the folder of images," : "DST, the folder to write to,",
                                 table->program, table->usage);
        if ((*paths[i])[0] == '-' && !(*paths[i])[1]) /* of a file it would make a folder of this name */
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 i == 0
                                     ? "-: SRC is not read from standard input; name a folder or a file"
                                     : "-: DST is not written to standard output; name a folder or a file");
    }
    if (taken < arguments->count)
        return fsh_error_set(error, FSH_ERR_USAGE, "'%s': one argument too many; usage: %s %s",
                             arguments->items[taken], table->program, table->usage);
    return FSH_OK;
}

static int exit_status(FshStatus status, bool partial)
{
    if (status == FSH_ERR_INTERRUPTED && interrupt_requeues())
        return EXIT_REQUEUE;
    if (status == FSH_ERR_INTERRUPTED && interrupt_signal())
        return EXIT_SIGNALLED + interrupt_signal();
    return status == FSH_OK && partial ? EXIT_FAILED : fsh_exit_status(status);
}

/* Returns whether stdout is a pipe or socket whose reader has gone, as head does when it has its lines. */
static bool reader_has_left(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

/* Closes stdout. Returns false, with a message, if something written did not arrive: the last place where a
 * full disk shows. A reader that has left gets no message. */
static bool close_output(const OptionTable *table)
{
    const bool failed = ferror(stdout) != 0, left = reader_has_left();
    errno = 0;
    if (fclose(stdout) == 0 && !failed)
        return true;
    if (left || errno == EPIPE)
        return false;
    (void)fprintf(stderr, "%s: standard output: cannot write%s%s\n", table->program, errno ? ": " : "",
                  errno ? strerror(errno) : "");
    return false;
}

static void print_version(const OptionTable *table, ProgramVersions versions)
{
    char line[256];
    (void)printf("%s (fshard) %s\n", table->program, FSHARD_VERSION);
    if (versions)
        (void)printf("%s\n", versions(line, sizeof line));
}

static void free_list(const Option *option, void *context)
{
    (void)context;
    if (option->kind == OPTION_LIST)
        option_list_free(option->value);
}

static int run_program(int argc, char **argv, const OptionTable *table, void *settings,
                       ProgramVersions versions, ProgramRun run)
{
    FshError error = {0};
    OptionArguments arguments = {0};
    bool partial = false;
    /* For the test that compares man pages with the table, and for the build; users need neither. */
    if (argc == 2 && strcmp(argv[1], "--help-options") == 0) {
        options_print_list(table, stdout);
        return EXIT_OK;
    }
    if (argc == 3 && strcmp(argv[1], "--help-completion") == 0 &&
        options_print_completion(table, argv[2], stdout))
        return EXIT_OK;
    FshStatus status = options_parse(table, argc, argv, &arguments, &error);
    if (!status && arguments.help) {
        options_print_help(table, stdout);
    } else if (!status && arguments.version) {
        print_version(table, versions);
    } else if (!status) {
        interrupt_install();
        read_fault_outlive();
        const ProgramContext context = {.table = table, .settings = settings, .arguments = &arguments};
        status = run(&context, &partial, &error);
    }
    if (status)
        print_error(table, status, &error);
    options_arguments_free(&arguments);
    options_each(table, free_list, NULL);
    return exit_status(status, partial);
}

/* Fills missing standard streams. A program may be started without them (`2>&-`); the next file opened would
 * take the free number, and text for stderr would be written into it. The filler cannot be used in that
 * direction, so that writing to stdout still fails and is reported. */
static void fill_standard_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null",
                       stream == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* takes the lowest free number */
    }
}

int program_main(int argc, char **argv, const OptionTable *table, void *settings, ProgramVersions versions,
                 ProgramRun run)
{
    fill_standard_streams();
    int status = run_program(argc, argv, table, settings, versions, run);
    return close_output(table) || status != EXIT_OK ? status : EXIT_FAILED;
}
