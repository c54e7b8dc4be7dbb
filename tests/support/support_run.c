#include "tests/support/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"

enum { DEFAULT_TIMEOUT_SECONDS = 60, ARGUMENTS_MAX = 255 };

void sleep_seconds(double seconds)
{
    double whole = floor(seconds);
    struct timespec rest = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
    while (nanosleep(&rest, &rest) && errno == EINTR)
        ;
}

bool wait_for_file(const char *path, double seconds)
{
    double end = progress_now_seconds() + seconds;
    struct stat status;
    while (lstat(path, &status)) {
        if (progress_now_seconds() > end)
            return false;
        sleep_seconds(0.001);
    }
    return true;
}

/* ---- what the child gets ---- */

/* A NULL-terminated array of strings, all owned. */
typedef struct Strings {
    char **items;
    size_t count;
} Strings;

static void add_string(Strings *strings, const char *format, ...) FSH_PRINTF(2, 3);
static void add_string(Strings *strings, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    char **items = realloc(strings->items, (strings->count + 2) * sizeof *items);
    if (length < 0 || !items) {
        free(items);
        fail_msg("out of memory");
        return; /* fail_msg does not come back, but no header says so */
    }
    items[strings->count++] = text;
    items[strings->count] = NULL;
    strings->items = items;
}

static void free_strings(Strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
}

/* Replaces a variable, since the first of two with one name would win. */
static void set_variable(Strings *environment, const char *variable)
{
    size_t name_length = strcspn(variable, "=");
    for (size_t i = 0; i < environment->count; i++) {
        if (strncmp(environment->items[i], variable, name_length + 1) != 0)
            continue;
        free(environment->items[i]);
        environment->items[i] = strdup(variable);
        if (!environment->items[i])
            fail_msg("out of memory");
        return;
    }
    add_string(environment, "%s", variable);
}

/* Adds the library that a run wants to be preloaded, with what it is told. */
static void add_preload(Strings *environment, const RunOptions *options)
{
    char bytes[32];
    (void)snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)options->disk_bytes);
    const struct {
        const char *value, *library, *variable;
    } preloads[] = {{options->limit_disk ? bytes : NULL, "FSHARD_ENOSPC", "FSHARD_ENOSPC_BYTES"},
                    {options->stop_at, "FSHARD_STOP", "FSHARD_STOP_AT"},
                    {options->bad_disk, "FSHARD_BAD", "FSHARD_BAD_DISK"},
                    {options->cores, "FSHARD_CORES_SHIM", "FSHARD_CORES"},
                    {options->slow_disk, "FSHARD_SLOW", "FSHARD_SLOW_DISK"}};
    Strings more = {0};
    for (size_t i = 0; i < sizeof preloads / sizeof *preloads; i++) {
        const char *library = getenv(preloads[i].library), *asan = getenv("ASAN_OPTIONS");
        if (!preloads[i].value)
            continue;
        if (!library)
            fail_msg("%s: not set: run the test through ctest", preloads[i].library);
        if (more.count)
            fail_msg("a run has a full disk, a bad or a slow one, or stops itself, or has other cores");
        add_string(&more, "LD_PRELOAD=%s", library);
        add_string(&more, "%s=%s", preloads[i].variable, preloads[i].value);
        if (options->told_free_bytes)
            add_string(&more, "FSHARD_TOLD_FREE_BYTES=%llu", (unsigned long long)options->told_free_bytes);
        /* ASan wants to be the first library; enospc.c does not come between the two. */
        add_string(&more, "ASAN_OPTIONS=%s%sverify_asan_link_order=0", asan ? asan : "", asan ? ":" : "");
    }
    for (size_t i = 0; i < more.count; i++)
        set_variable(environment, more.items[i]);
    free_strings(&more);
}

static Strings make_environment(const RunOptions *options)
{
    Strings environment = {0};
    for (char **variable = environ; *variable; variable++)
        add_string(&environment, "%s", *variable);
    for (const char *const *variable = options->environment; variable && *variable; variable++)
        set_variable(&environment, *variable);
    add_preload(&environment, options);
    return environment;
}

static Strings make_arguments(const char *program, const char *const *arguments)
{
    Strings strings = {0};
    const char *folder = getenv("FSHARD_BIN");
    if (strchr(program, '/'))
        add_string(&strings, "%s", program);
    else if (folder)
        add_string(&strings, "%s/%s", folder, program);
    else
        fail_msg("FSHARD_BIN is not set: run the test through ctest");
    for (; *arguments; arguments++)
        add_string(&strings, "%s", *arguments);
    return strings;
}

/* Makes the forked child the program: ends in exec, or with 126 or 127. Does only what is safe between fork
 * and exec, as the test may have threads. */
static void become_program(const RunOptions *options, int in, int out, int err, char **arguments,
                           char **environment)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGPIPE, SIGHUP};
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* no program outlives a test that dies */
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], SIG_DFL); /* whatever started the tests may ignore SIGINT */
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
        _exit(126);
    if (options->folder && chdir(options->folder))
        _exit(126);
    (void)execve(arguments[0], arguments, environment);
    _exit(127);
}

/* ---- start, wait ---- */

RunningProgram run_start(const RunOptions *options, const char *program, const char *const *arguments)
{
    static const RunOptions defaults = {0};
    if (!options)
        options = &defaults;
    RunningProgram running = {
        .start_seconds = progress_now_seconds(),
        .timeout_seconds = options->timeout_seconds > 0 ? options->timeout_seconds : DEFAULT_TIMEOUT_SECONDS,
        .out = -1,
    };
    (void)snprintf(running.name, sizeof running.name, "%s", program);
    Strings words = make_arguments(program, arguments), environment = make_environment(options);

    /* Files in memory, not pipes: nothing blocks, whoever writes how much. */
    int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = options->stdout_path ? open(options->stdout_path, O_WRONLY | O_CLOEXEC)
                                   : memfd_create("stdout", MFD_CLOEXEC);
    running.err = memfd_create("stderr", MFD_CLOEXEC);
    if (in < 0 || out < 0 || running.err < 0)
        fail_msg("%s: no files for its input and output: %s", program, strerror(errno));
    running.process = fork();
    if (running.process == 0)
        become_program(options, in, out, running.err, words.items, environment.items);
    if (running.process < 0)
        fail_msg("%s: cannot fork: %s", program, strerror(errno));
    (void)setpgid(running.process, running.process); /* whichever of the two comes first */
    (void)close(in);
    if (options->stdout_path)
        (void)close(out);
    else
        running.out = out;
    free_strings(&words);
    free_strings(&environment);
    return running;
}

/* Returns all that has been written to a file in memory, of *length_ret bytes. The caller frees the text. */
static char *read_output(int descriptor, size_t *length_ret)
{
    struct stat status = {0};
    if (descriptor >= 0 && fstat(descriptor, &status))
        fail_msg("output of a program: %s", strerror(errno));
    size_t length = (size_t)status.st_size;
    char *text = calloc(length + 1, 1);
    if (!text)
        fail_msg("out of memory");
    if (length && pread(descriptor, text, length, 0) != (ssize_t)length)
        fail_msg("output of a program: %s", strerror(errno));
    *length_ret = length;
    return text;
}

/* Does the same, and closes the file. */
static char *take_output(int descriptor, size_t *length_ret)
{
    char *text = read_output(descriptor, length_ret);
    if (descriptor >= 0)
        (void)close(descriptor);
    return text;
}

void run_wait_for_text(const RunningProgram *running, const char *text)
{
    for (bool found = false; !found;) {
        size_t length = 0;
        char *err = read_output(running->err, &length);
        found = strstr(err, text) != NULL;
        if (!found && progress_now_seconds() - running->start_seconds > running->timeout_seconds) {
            (void)kill(-running->process, SIGKILL);
            fail_msg("%s: does not say '%s'; it printed:\n%s", running->name, text, err);
        }
        free(err);
        sleep_seconds(0.005);
    }
}

RunResult run_wait(RunningProgram *running)
{
    RunResult result = {0};
    struct rusage usage = {0};
    int status = 0;
    bool timed_out = false;
    for (;;) {
        pid_t ended = wait4(running->process, &status, WNOHANG, &usage);
        if (ended == running->process)
            break;
        if (ended < 0 && errno != EINTR)
            fail_msg("%s: cannot wait for it: %s", running->name, strerror(errno));
        timed_out = progress_now_seconds() - running->start_seconds > running->timeout_seconds;
        if (timed_out) {
            (void)kill(-running->process, SIGKILL);
            (void)waitpid(running->process, &status, 0);
            break;
        }
        sleep_seconds(0.001);
    }
    result.seconds = progress_now_seconds() - running->start_seconds;
    result.resident_bytes = (uint64_t)usage.ru_maxrss * 1024;
    result.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    result.out = take_output(running->out, &result.out_bytes);
    result.err = take_output(running->err, &result.err_bytes);
    if (timed_out)
        fail_msg("%s: still running after %.0f s; it printed:\n%s\n%s", running->name,
                 running->timeout_seconds, result.out, result.err);
    if (result.exit_status == 127)
        fail_msg("%s: cannot be run; is it built?", running->name);
    return result;
}

void run_wait_until_stopped(const RunningProgram *running)
{
    int status = 0;
    pid_t changed = 0;
    while ((changed = waitpid(running->process, &status, WNOHANG | WUNTRACED)) == 0 &&
           progress_now_seconds() - running->start_seconds < running->timeout_seconds)
        sleep_seconds(0.001);
    if (changed != running->process || !WIFSTOPPED(status)) {
        if (changed == 0)
            (void)kill(-running->process, SIGKILL);
        size_t length = 0;
        fail_msg("%s: has not stopped where it should; it printed:\n%s", running->name,
                 take_output(running->err, &length));
    }
}

void run_go_on(const RunningProgram *running, int signal_number)
{
    assert_int_equal(kill(running->process, signal_number), 0);
    assert_int_equal(kill(running->process, SIGCONT), 0);
}

RunResult run_program_arguments(const RunOptions *options, const char *program, const char *const *arguments)
{
    RunningProgram running = run_start(options, program, arguments);
    return run_wait(&running);
}

RunResult run_program(const RunOptions *options, const char *program, ...)
{
    const char *arguments[ARGUMENTS_MAX + 1];
    size_t count = 0;
    va_list list;
    va_start(list, program);
    const char *argument = va_arg(list, const char *);
    for (; argument && count < ARGUMENTS_MAX; argument = va_arg(list, const char *))
        arguments[count++] = argument;
    va_end(list);
    if (argument)
        fail_msg("%s: more than %d arguments", program, ARGUMENTS_MAX);
    arguments[count] = NULL;
    return run_program_arguments(options, program, arguments);
}

void run_result_free(RunResult *result)
{
    free(result->out);
    free(result->err);
    *result = (RunResult){0};
}

uint16_t test_free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(made >= 0 && bind(made, (struct sockaddr *)&address, sizeof address) == 0 &&
                getsockname(made, (struct sockaddr *)&address, &bytes) == 0);
    (void)close(made);
    return ntohs(address.sin_port);
}
