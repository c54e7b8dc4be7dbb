/* stop_at.c - a process that stops itself (SIGSTOP) when a file gets its name: LD_PRELOAD of
 * build/tests/libfshard-test-stop.so.
 *
 * FSHARD_STOP_AT is the end of that file's path. The process stops once, after the call of rename, renameat2
 * or link. With FSHARD_STOP_SECONDS it does not stop: the thread that gives the file its name sleeps for so
 * long before, each time, as on a slow disk. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPLACES __attribute__((visibility("default")))

/* The C library's headers name their parameters "__fd". */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

static atomic_flag has_stopped = ATOMIC_FLAG_INIT;

/* Returns whether it is the file that is waited for. */
static int is_meant(const char *path)
{
    const char *end = getenv("FSHARD_STOP_AT");
    const size_t length = strlen(path), end_length = end ? strlen(end) : 0;
    return end && length >= end_length && strcmp(path + length - end_length, end) == 0;
}

static void sleep_before(const char *path)
{
    const char *seconds = getenv("FSHARD_STOP_SECONDS");
    if (seconds && is_meant(path))
        (void)usleep((useconds_t)(atof(seconds) * 1e6));
}

static int stop_behind(int result, const char *path)
{
    if (result == 0 && !getenv("FSHARD_STOP_SECONDS") && is_meant(path) &&
        !atomic_flag_test_and_set(&has_stopped))
        (void)kill(getpid(), SIGSTOP);
    return result;
}

REPLACES int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    sleep_before(to);
    return stop_behind((int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags), to);
}

REPLACES int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

REPLACES int link(const char *from, const char *to)
{
    return stop_behind((int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), to);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
