/* slow_disk.c - a process whose files all come from a disk, as the system tells it: LD_PRELOAD of
 * build/tests/libfshard-test-slow-disk.so.
 *
 * Each time that a thread asks (getrusage) more blocks were read for it; with FSHARD_SLOW_DISK_LOOKS=N the
 * first N times of the process only. What it asks to be read ahead (posix_fadvise, POSIX_FADV_WILLNEED) is
 * appended to the file FSHARD_SLOW_DISK, a path in a line. */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REPLACES __attribute__((visibility("default")))

/* The C library's headers name their parameters "__fd". */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

static atomic_long looks;

REPLACES int getrusage(__rusage_who_t who, struct rusage *usage)
{
    const int result = (int)syscall(SYS_getrusage, who, usage);
    const char *most = getenv("FSHARD_SLOW_DISK_LOOKS");
    if (result == 0 && who == RUSAGE_THREAD) {
        const long look = atomic_fetch_add(&looks, 1) + 1, last = most ? atol(most) : LONG_MAX; /* NOLINT */
        usage->ru_inblock = look < last ? look : last;
    }
    return result;
}

static void note(int descriptor)
{
    char link[64], line[PATH_MAX + 1];
    const char *notes = getenv("FSHARD_SLOW_DISK");
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, line, PATH_MAX);
    const int file = notes && length > 0 ? open(notes, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file < 0)
        return;
    line[length] = '\n';
    if (write(file, line, (size_t)length + 1) != length + 1)
        abort();
    (void)close(file);
}

REPLACES int posix_fadvise(int descriptor, off_t offset, off_t length, int advice)
{
    if (advice == POSIX_FADV_WILLNEED)
        note(descriptor);
    return (int)-syscall(SYS_fadvise64, descriptor, offset, length, advice);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
