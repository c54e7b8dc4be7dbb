/* enospc.c - a disk that fills up, for one process: LD_PRELOAD of build/tests/libfshard-test-enospc.so.
 *
 * After FSHARD_ENOSPC_BYTES bytes written to regular files in all, writing fails with ENOSPC; the write that
 * crosses the line is cut short, as on a disk. Growing a file by ftruncate or fallocate counts as writing the
 * bytes it grows by. Descriptors 0 to 2 are not counted.
 *
 * FSHARD_TOLD_FREE_BYTES: what statvfs tells of every file system as free.
 *
 * The C library's stdio does not call write() through a symbol that could be replaced, so streams opened for
 * writing are wrapped (fopencookie) around the write() below. What this does not catch: pages written through
 * a mapping. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REPLACES __attribute__((visibility("default")))

/* The C library's headers name their parameters "__fd". */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

static _Atomic uint64_t left_bytes;
static bool limited;

__attribute__((constructor)) static void read_limit(void)
{
    const char *text = getenv("FSHARD_ENOSPC_BYTES");
    if (text) {
        atomic_store(&left_bytes, strtoull(text, NULL, 10));
        limited = true;
    }
}

static bool is_counted(int descriptor)
{
    struct stat status;
    return limited && descriptor > STDERR_FILENO && fstat(descriptor, &status) == 0 &&
           S_ISREG(status.st_mode);
}

/* Takes as many of `wanted` bytes as still fit and returns their number. */
static size_t take(size_t wanted)
{
    uint64_t left = atomic_load(&left_bytes), taken = 0;
    do {
        taken = left < wanted ? left : wanted;
    } while (!atomic_compare_exchange_weak(&left_bytes, &left, left - taken));
    return (size_t)taken;
}

/* Takes bytes as `take` does; returns 0 with ENOSPC when nothing fits. Bytes that are not counted are always
 * granted. */
static size_t grant(int descriptor, size_t wanted)
{
    if (!wanted || !is_counted(descriptor))
        return wanted;
    size_t granted = take(wanted);
    if (!granted)
        errno = ENOSPC;
    return granted;
}

/* Takes all bytes or none, for calls that cannot be cut short. */
static bool grant_all(int descriptor, size_t wanted)
{
    size_t granted = grant(descriptor, wanted);
    if (granted == wanted)
        return true;
    atomic_fetch_add(&left_bytes, granted);
    errno = ENOSPC;
    return false;
}

/* Returns a call's result, and gives back what was taken for bytes that it did not write. */
static ssize_t settle(int descriptor, size_t granted, ssize_t written)
{
    size_t kept = written > 0 ? (size_t)written : 0;
    int failure = errno;
    if (kept < granted && is_counted(descriptor))
        atomic_fetch_add(&left_bytes, granted - kept);
    errno = failure;
    return written;
}

/* Fills in the members that programs look at. */
REPLACES int statvfs(const char *path, struct statvfs *told)
{
    const char *text = getenv("FSHARD_TOLD_FREE_BYTES");
    struct statfs truth;
    if (statfs(path, &truth))
        return -1;
    *told = (struct statvfs){.f_bsize = (unsigned long)truth.f_bsize,
                             .f_frsize = text ? 1 : (unsigned long)truth.f_frsize,
                             .f_blocks = truth.f_blocks,
                             .f_bfree = truth.f_bfree,
                             .f_bavail = text ? strtoull(text, NULL, 10) : truth.f_bavail};
    return 0;
}

REPLACES int statvfs64(const char *path, struct statvfs64 *told)
{
    return statvfs(path, (struct statvfs *)told); /* the same where files have 64 bits */
}

REPLACES ssize_t write(int descriptor, const void *bytes, size_t length)
{
    size_t granted = grant(descriptor, length);
    if (length && !granted)
        return -1;
    return settle(descriptor, granted, syscall(SYS_write, descriptor, bytes, granted));
}

REPLACES ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t offset)
{
    size_t granted = grant(descriptor, length);
    if (length && !granted)
        return -1;
    return settle(descriptor, granted, syscall(SYS_pwrite64, descriptor, bytes, granted, offset));
}

REPLACES ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t offset)
{
    return pwrite(descriptor, bytes, length, offset);
}

static size_t total_of(const struct iovec *parts, int count)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += parts[i].iov_len;
    return total;
}

REPLACES ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    size_t total = total_of(parts, count);
    if (!grant_all(descriptor, total))
        return -1;
    return settle(descriptor, total, syscall(SYS_writev, descriptor, parts, count));
}

REPLACES ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset)
{
    size_t total = total_of(parts, count);
    if (!grant_all(descriptor, total))
        return -1;
    /* The kernel takes the offset as two words and, on 64 bits, ignores the high one. */
    return settle(descriptor, total, syscall(SYS_pwritev, descriptor, parts, count, offset, 0));
}

REPLACES ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset)
{
    return pwritev(descriptor, parts, count, offset);
}

REPLACES ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length,
                                 unsigned flags)
{
    size_t granted = grant(to, length);
    if (length && !granted)
        return -1;
    return settle(to, granted,
                  syscall(SYS_copy_file_range, from, from_offset, to, to_offset, granted, flags));
}

REPLACES ssize_t sendfile(int to, int from, off_t *offset, size_t length)
{
    size_t granted = grant(to, length);
    if (length && !granted)
        return -1;
    return settle(to, granted, syscall(SYS_sendfile, to, from, offset, granted));
}

REPLACES ssize_t sendfile64(int to, int from, off64_t *offset, size_t length)
{
    return sendfile(to, from, offset, length);
}

/* Takes the bytes by which a file grows to `length`. */
static bool grant_growth(int descriptor, off_t length)
{
    struct stat status;
    if (fstat(descriptor, &status) || length <= status.st_size)
        return true;
    return grant_all(descriptor, (size_t)(length - status.st_size));
}

REPLACES int ftruncate(int descriptor, off_t length)
{
    return grant_growth(descriptor, length) ? (int)syscall(SYS_ftruncate, descriptor, length) : -1;
}

REPLACES int ftruncate64(int descriptor, off64_t length)
{
    return ftruncate(descriptor, length);
}

REPLACES int fallocate(int descriptor, int mode, off_t offset, off_t length)
{
    return grant_growth(descriptor, offset + length)
               ? (int)syscall(SYS_fallocate, descriptor, mode, offset, length)
               : -1;
}

REPLACES int fallocate64(int descriptor, int mode, off64_t offset, off64_t length)
{
    return fallocate(descriptor, mode, offset, length);
}

/* Returns the error, as posix_fallocate does, and leaves errno as it was. */
REPLACES int posix_fallocate(int descriptor, off_t offset, off_t length)
{
    int kept = errno;
    int failure = fallocate(descriptor, 0, offset, length) ? errno : 0;
    if (failure == EOPNOTSUPP) /* the C library's own way out, short of writing zeros */
        failure = ftruncate(descriptor, offset + length) ? errno : 0;
    errno = kept;
    return failure;
}

REPLACES int posix_fallocate64(int descriptor, off64_t offset, off64_t length)
{
    return posix_fallocate(descriptor, offset, length);
}

/* ---- stdio ---- */

/* A stream that programs see, around the descriptor of the stream that the C library opened. */
typedef struct Wrapped {
    FILE *seen, *opened;
    struct Wrapped *next;
} Wrapped;

static pthread_mutex_t wrapped_lock = PTHREAD_MUTEX_INITIALIZER;
static Wrapped *all_wrapped;

typedef FILE *(*OpenFunction)(const char *path, const char *mode);
typedef FILE *(*OpenDescriptorFunction)(int descriptor, const char *mode);
typedef int (*DescriptorFunction)(FILE *stream);

/* ISO C knows no conversion of an object's address to a function's; POSIX promises it for dlsym. */
#define NEXT(type, name) (*(type *)&(void *){dlsym(RTLD_NEXT, name)})

static ssize_t wrapped_read(void *cookie, char *bytes, size_t length)
{
    return read(NEXT(DescriptorFunction, "fileno")(((Wrapped *)cookie)->opened), bytes, length);
}

static ssize_t wrapped_write(void *cookie, const char *bytes, size_t length)
{
    int descriptor = NEXT(DescriptorFunction, "fileno")(((Wrapped *)cookie)->opened);
    size_t written = 0;
    while (written < length) {
        ssize_t part = write(descriptor, bytes + written, length - written);
        if (part < 0)
            return 0; /* what fopencookie wants for an error; errno stays */
        written += (size_t)part;
    }
    return (ssize_t)written;
}

static int wrapped_seek(void *cookie, off64_t *offset, int origin)
{
    off_t reached = lseek(NEXT(DescriptorFunction, "fileno")(((Wrapped *)cookie)->opened), *offset, origin);
    if (reached < 0)
        return -1;
    *offset = reached;
    return 0;
}

static int wrapped_close(void *cookie)
{
    Wrapped *wrapped = cookie;
    pthread_mutex_lock(&wrapped_lock);
    Wrapped **link = &all_wrapped;
    while (*link != wrapped)
        link = &(*link)->next;
    *link = wrapped->next;
    pthread_mutex_unlock(&wrapped_lock);
    int failure = fclose(wrapped->opened);
    free(wrapped);
    return failure;
}

static FILE *wrap(FILE *opened, const char *mode)
{
    if (!opened || !strpbrk(mode, "wa+") || !is_counted(NEXT(DescriptorFunction, "fileno")(opened)))
        return opened;
    Wrapped *wrapped = calloc(1, sizeof *wrapped);
    cookie_io_functions_t functions = {
        .read = wrapped_read, .write = wrapped_write, .seek = wrapped_seek, .close = wrapped_close};
    FILE *seen = wrapped ? fopencookie(wrapped, mode, functions) : NULL;
    if (!seen) {
        free(wrapped);
        return opened;
    }
    wrapped->seen = seen;
    wrapped->opened = opened;
    pthread_mutex_lock(&wrapped_lock);
    wrapped->next = all_wrapped;
    all_wrapped = wrapped;
    pthread_mutex_unlock(&wrapped_lock);
    return seen;
}

REPLACES FILE *fopen(const char *path, const char *mode)
{
    return wrap(NEXT(OpenFunction, "fopen")(path, mode), mode);
}

REPLACES FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

REPLACES FILE *fdopen(int descriptor, const char *mode)
{
    return wrap(NEXT(OpenDescriptorFunction, "fdopen")(descriptor, mode), mode);
}

REPLACES int fileno(FILE *stream)
{
    FILE *opened = stream;
    pthread_mutex_lock(&wrapped_lock);
    for (const Wrapped *wrapped = all_wrapped; wrapped; wrapped = wrapped->next)
        if (wrapped->seen == stream)
            opened = wrapped->opened;
    pthread_mutex_unlock(&wrapped_lock);
    return NEXT(DescriptorFunction, "fileno")(opened);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
