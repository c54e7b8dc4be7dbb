/* folder_lock.h - lets one process at a time write into a folder, by a hidden file in it that is locked
 * (flock) as long as the process lives.
 *
 *   FolderLock lock = FOLDER_LOCK_NONE;
 *   status = folder_lock_take(&lock, "run1", ".ftrain-lock", "ftrain", &error);
 *   // FSH_ERR_EXISTS: "run1: another ftrain is writing there (process 4711 on node7, since …); …"
 *   folder_lock_release(&lock);
 *
 * The file holds the process, its host and the time, for a process that finds it locked. The kernel releases
 * the lock with the process, however that ends; the file of a killed process stays, does no harm, and is
 * removed with the next lock. On NFS the server holds the lock for all hosts; a mount with nolock or
 * local_lock guards only against processes of its own host, which cannot be detected. On a file system
 * without locks `guards` is false, and the caller says so.
 *
 * Threads: one object belongs to one thread at a time. Two objects of one process exclude each other, too. */
#ifndef FSHARD_COMMON_FOLDER_LOCK_H
#define FSHARD_COMMON_FOLDER_LOCK_H

#include <limits.h>
#include <stdbool.h>

#include "common/error.h"

typedef struct FolderLock {
    char path[PATH_MAX]; /* of the locked file */
    int descriptor;      /* -1: no lock is held */
    bool guards;         /* false: the file system has no locks */
} FolderLock;
#define FOLDER_LOCK_NONE                                                                                     \
    {                                                                                                        \
        .descriptor = -1                                                                                     \
    }

/* Takes the lock on FOLDER/NAME, and makes the file if necessary. FSH_ERR_EXISTS: another process holds it,
 * and the message, which begins with folder, says which; program: the one that writes there. FSH_ERR_SYSTEM.
 * On failure nothing is held or changed. */
FshStatus folder_lock_take(FolderLock *lock, const char *folder, const char *name, const char *program,
                           FshError *error);

/* Removes the file and releases the lock. Safe twice, and on FOLDER_LOCK_NONE. */
void folder_lock_release(FolderLock *lock);

#endif
