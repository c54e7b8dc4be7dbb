#include "formats/manifest_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"

void manifest_old_name(char *buffer, size_t buffer_bytes, uint32_t updates)
{
    (void)snprintf(buffer, buffer_bytes, MANIFEST_OLD_PREFIX "%" PRIu32 ".json", updates);
}

bool manifest_is_old_name(const char *name)
{
    const size_t prefix = sizeof MANIFEST_OLD_PREFIX - 1;
    if (strncmp(name, MANIFEST_OLD_PREFIX, prefix) != 0)
        return false;
    const size_t digits = strspn(name + prefix, "0123456789");
    return digits && strcmp(name + prefix + digits, ".json") == 0;
}

/* Returns a descriptor of the file at path with a shared lock; -1: there is none to be had. */
static int lock_shared(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is refused, not waited for */
    if (descriptor >= 0 && flock(descriptor, LOCK_SH | LOCK_NB)) {
        (void)close(descriptor);
        descriptor = -1;
    }
    return descriptor;
}

/* Returns whether path still leads to the open file. */
static bool is_still(int descriptor, const char *path)
{
    struct stat opened, named;
    return fstat(descriptor, &opened) || stat(path, &named) ||
           (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino);
}

FshStatus manifest_lock_load(int *lock_ret, FshManifest *manifest, const char *path, FshError *error)
{
    enum { TRIES = 16 };
    char inside[PATH_MAX];
    FshStatus status = FSH_OK;
    *lock_ret = -1;
    *manifest = (FshManifest){0};
    if (file_is_folder(path)) {
        status = file_join(inside, sizeof inside, path, FSH_MANIFEST_NAME, error);
        path = inside;
    }
    for (int tried = 0; tried < TRIES && !status; tried++) {
        int lock = lock_shared(path);
        status = fsh_manifest_load(manifest, path, error);
        /* An update may have replaced it between the two: then the lock is on a file that is not read. */
        if (status || lock < 0 || is_still(lock, path) || tried == TRIES - 1) {
            *lock_ret = lock;
            break;
        }
        (void)close(lock);
        fsh_manifest_free(manifest);
        *lock_ret = -1;
    }
    if (status && *lock_ret >= 0) {
        (void)close(*lock_ret);
        *lock_ret = -1;
    }
    return status;
}

bool manifest_is_read(const char *path)
{
    int descriptor = open(path, O_RDWR | O_CLOEXEC); /* NFS gives a lock of one's own to writers only */
    if (descriptor < 0)
        descriptor = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_read = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    if (descriptor >= 0)
        (void)close(descriptor);
    return is_read;
}
