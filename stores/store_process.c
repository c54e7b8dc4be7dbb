#include "stores/store_process.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "common/text.h"
#include "stores/store_ask.h"

enum { OUTPUT_BYTES_MAX = 1 << 16, ARGUMENTS_MAX = 64, PROMPT_MS = 50 };

/* ---- the command ---- */

/* Moves the next argument, unquoted, to *place_ret. Returns where it ends; NULL: a quote does not end. */
static char *unquote(char *at, char **place_ret)
{
    char *place = *place_ret, quote = '\0';
    for (; *at && (quote || !text_is_blank(*at)); at++) {
        const bool escapes = *at == '\\' && quote != '\'' && (!quote || (at[1] == '"' || at[1] == '\\'));
        if (escapes && !at[1])
            return NULL;
        if (escapes)
            *place++ = *++at;
        else if (quote ? *at == quote : (*at == '"' || *at == '\''))
            quote = quote ? '\0' : *at;
        else
            *place++ = *at;
    }
    *place_ret = place;
    return quote ? NULL : at;
}

size_t store_process_split(char *command, char **arguments, size_t most)
{
    size_t count = 0;
    const char *end = command + strlen(command);
    for (char *at = command; *(at += text_skip_blanks(at, end) - at);) {
        char *place = at;
        if (count + 1 >= most)
            return 0;
        arguments[count++] = at;
        char *next = unquote(at, &place);
        if (!next)
            return 0;
        at = *next ? next + 1 : next; /* before the NUL may take the blank's place */
        *place = '\0';
    }
    arguments[count] = NULL;
    return count;
}

/* ---- what it prints ---- */

FshStatus store_process_parse(StoreLent *lent, const char *text, size_t length, const char *from,
                              FshError *error)
{
    json_t *object = json_loadb(text, length, 0, NULL);
    const json_int_t version = json_integer_value(json_object_get(object, "Version"));
    const char *key = json_string_value(json_object_get(object, "AccessKeyId")),
               *secret = json_string_value(json_object_get(object, "SecretAccessKey")),
               *token = json_string_value(json_object_get(object, "SessionToken")),
               *end = json_string_value(json_object_get(object, "Expiration"));
    FshStatus status = FSH_OK;
    *lent = (StoreLent){.end_seconds = store_read_time(end)};
    (void)snprintf(lent->from, sizeof lent->from, "%s", from);
    if (!json_is_object(object) || version != 1)
        status = fsh_error_set(error, FSH_ERR_SYSTEM,
                               "%s: its credential_process prints no JSON with \"Version\": 1", from);
    else if (!store_take(lent->key, sizeof lent->key, key) ||
             !store_take(lent->secret, sizeof lent->secret, secret) ||
             (token && *token && !store_take(lent->token, sizeof lent->token, token)))
        status = fsh_error_set(error, FSH_ERR_SYSTEM,
                               "%s: its credential_process prints no AccessKeyId and SecretAccessKey that "
                               "can be used",
                               from);
    else if (end && !lent->end_seconds)
        status = fsh_error_set(error, FSH_ERR_SYSTEM,
                               "%s: the Expiration that its credential_process prints is no time as "
                               "2026-11-24T03:00:00Z",
                               from);
    else if (end && lent->end_seconds <= (int64_t)time(NULL))
        status = fsh_error_set(error, FSH_ERR_SYSTEM,
                               "%s: the keys that its credential_process prints have ended already", from);
    lent->found = !status;
    json_decref(object);
    return status;
}

/* ---- running it ---- */

/* A program under way. */
typedef struct Running {
    pid_t process;
    int output; /* of its stdout */
    const char *from;
    double end_seconds; /* of progress_now_seconds: when it is killed */
    double seconds;
} Running;

/* Starts the program: nothing comes to its stdin, and its stderr is ours. */
static FshStatus start(Running *running, char **arguments, FshError *error)
{
    int ends[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t usual;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return fsh_error_system(error, errno, "%s: its credential_process cannot be started", running->from);
    (void)sigemptyset(&usual);
    (void)sigaddset(&usual, SIGPIPE);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    int failure = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    failure = failure ? failure : posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    failure = failure ? failure : posix_spawnattr_setsigdefault(&attributes, &usual);
    failure = failure ? failure : posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    failure = failure
                  ? failure
                  : posix_spawnp(&running->process, *arguments, &actions, &attributes, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    (void)close(ends[1]);
    running->output = ends[0];
    if (!failure)
        return FSH_OK;
    (void)close(ends[0]);
    return fsh_error_set(error, FSH_ERR_SYSTEM,
                         "%s: its credential_process cannot be run: %s: %s; no shell reads the command, so "
                         "that ~ and variables are not replaced",
                         running->from, *arguments, strerror(failure));
}

/* Returns FSH_OK while the program may go on. */
static FshStatus look_up(const Running *running, FshError *error)
{
    if (interrupt_requested())
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
    if (progress_now_seconds() < running->end_seconds)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: its credential_process did not end within %g s",
                         running->from, running->seconds);
}

/* Reads its stdout to the end; *length_ret: of text. */
static FshStatus read_output(const Running *running, char *text, size_t *length_ret, FshError *error)
{
    size_t length = 0;
    FshStatus status = FSH_OK;
    for (;;) {
        struct pollfd ready = {.fd = running->output, .events = POLLIN};
        status = look_up(running, error);
        if (status)
            break;
        if (poll(&ready, 1, PROMPT_MS) <= 0)
            continue;
        const ssize_t got = read(running->output, text + length, OUTPUT_BYTES_MAX - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
        if (length == OUTPUT_BYTES_MAX) {
            status =
                fsh_error_set(error, FSH_ERR_SYSTEM,
                              "%s: its credential_process prints more than any credentials", running->from);
            break;
        }
    }
    *length_ret = length;
    return status;
}

/* Waits for its end, or kills it where something has failed already. */
static FshStatus finish(const Running *running, FshStatus status, FshError *error)
{
    int told = 0;
    pid_t ended = 0;
    while (!status && (ended = waitpid(running->process, &told, WNOHANG)) == 0) {
        const struct timespec nap = {.tv_nsec = 2000000};
        (void)nanosleep(&nap, NULL);
        status = look_up(running, error);
    }
    if (status && ended == 0) {
        (void)kill(running->process, SIGKILL);
        while (waitpid(running->process, &told, 0) < 0 && errno == EINTR)
            continue;
        return status;
    }
    if (ended > 0 && WIFSIGNALED(told))
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s: its credential_process was ended by signal %d",
                             running->from, WTERMSIG(told));
    if (ended > 0 && WEXITSTATUS(told))
        return fsh_error_set(
            error, FSH_ERR_SYSTEM,
            "%s: its credential_process failed with exit status %d; what it says stands above", running->from,
            WEXITSTATUS(told));
    return status;
}

FshStatus store_lent_by_process(StoreLent *lent, const char *command, const char *from, double seconds,
                                FshError *error)
{
    char *arguments[ARGUMENTS_MAX];
    Running running = {
        .from = from, .seconds = seconds, .end_seconds = progress_now_seconds() + seconds, .output = -1};
    size_t length = 0;
    *lent = (StoreLent){0};
    char *words = strdup(command), *text = malloc(OUTPUT_BYTES_MAX);
    FshStatus status = words && text ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    if (!status && !store_process_split(words, arguments, ARGUMENTS_MAX))
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "%s: its credential_process is no command: a quote does not end, or it has "
                               "none or more than %d words",
                               from, ARGUMENTS_MAX - 1);
    if (!status)
        status = start(&running, arguments, error);
    if (!status) {
        status = read_output(&running, text, &length, error);
        status = finish(&running, status, error);
        (void)close(running.output);
        if (!status)
            status = store_process_parse(lent, text, length, from, error);
    }
    if (text)
        explicit_bzero(text, OUTPUT_BYTES_MAX);
    free(text);
    free(words);
    return status;
}
