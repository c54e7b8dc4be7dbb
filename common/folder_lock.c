#include "common/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"

/* Writes the holder into the file. On a full disk there is no room for it: a process that finds the lock then
 * gets no name, and the next write to the folder reports the full disk. */
static void write_holder(int descriptor)
{
    char host[HOST_NAME_MAX + 1] = "?", line[HOST_NAME_MAX + 64];
    const time_t now = time(NULL);
    struct tm local = {0};
    (void)gethostname(host, sizeof host - 1);
    (void)localtime_r(&now, &local);
    const int length = snprintf(line, sizeof line, "%ld %s %04d-%02d-%02d %02d:%02d:%02d\n", (long)getpid(),
                                host, local.tm_year + 1900, local.tm_mon + 1, local.tm_mday, local.tm_hour,
                                local.tm_min, local.tm_sec);
    if (ftruncate(descriptor, 0) == 0)
        (void)!pwrite(descriptor, line, (size_t)length, 0);
}

/* Sets text to " (process 4711 on node7, since …)", or to "" if the file does not say. */
static void read_holder(int descriptor, char *text, size_t text_bytes)
{
    char line[256] = "", host[HOST_NAME_MAX + 1], date[11], clock[9];
    long process = 0;
    const ssize_t length = pread(descriptor, line, sizeof line - 1, 0);
    _Static_assert(HOST_NAME_MAX == 64, "as the width below");
    text[0] = '\0';
    if (length > 0 && sscanf(line, "%ld %64s %10s %8s", &process, host, date, clock) == 4)
        (void)snprintf(text, text_bytes, " (process %ld on %s, since %s %s)", process, host, date, clock);
}

/* Opens the file for writing, or, if another user has left it, for reading, which suffices for a lock on this
 * host. */
static int open_file(const char *path)
{
    const int descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    return descriptor < 0 && errno == EACCES ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : descriptor;
}

/* Returns whether the name still leads to the locked file; the process that releases a lock removes the
 * file. */
static bool is_named(int descriptor, const char *path)
{
    struct stat locked, named;
    return fstat(descriptor, &locked) == 0 && stat(path, &named) == 0 && locked.st_dev == named.st_dev &&
           locked.st_ino == named.st_ino;
}

FshStatus folder_lock_take(FolderLock *lock, const char *folder, const char *name, const char *program,
                           FshError *error)
{
    FolderLock taken = {.guards = true};
    *lock = (FolderLock)FOLDER_LOCK_NONE;
    FshStatus status = file_join(taken.path, sizeof taken.path, folder, name, error);
    if (status)
        return status;
    for (;;) {
        char holder[HOST_NAME_MAX + 96];
        int failed = 0;
        taken.descriptor = open_file(taken.path);
        if (taken.descriptor < 0)
            return fsh_error_system(error, errno, "%s: cannot create", taken.path);
        do
            failed = flock(taken.descriptor, LOCK_EX | LOCK_NB) ? errno : 0;
        while (failed == EINTR);
        if (failed == EWOULDBLOCK) {
            read_holder(taken.descriptor, holder, sizeof holder);
            (void)close(taken.descriptor);
            return fsh_error_set(error, FSH_ERR_EXISTS,
                                 "%s: another %s is writing there%s; wait for its end, or stop it", folder,
                                 program, holder);
        }
        taken.guards = !failed;
        if (is_named(taken.descriptor, taken.path))
            break;
        (void)close(taken.descriptor);
    }
    write_holder(taken.descriptor);
    *lock = taken;
    return FSH_OK;
}

void folder_lock_release(FolderLock *lock)
{
    if (lock->descriptor < 0)
        return;
    (void)unlink(lock->path); /* before the lock is released, so that no other's file is removed */
    (void)close(lock->descriptor);
    *lock = (FolderLock)FOLDER_LOCK_NONE;
}
