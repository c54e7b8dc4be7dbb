/* folder_lock.h - one process at a time writes into a folder: a hidden file in it, locked (flock) for as long
 * as that process lives.
 *
 *   FolderLock lock = FOLDER_LOCK_NONE;
 *   status = folder_lock_take(&lock, "run1", ".ftrain-lock", "ftrain", &error);
 *   // FSH_ERR_EXISTS: "run1: another ftrain is writing there (process 4711 on node7, since …); …"
 *   folder_lock_release(&lock);
 *
 * The file holds the process, its host and the time, for whoever finds it locked. The kernel drops the lock
 * with the process, however that ends; the file of a killed one stays, is in nobody's way, and goes with the
 * next lock. On NFS the server holds the lock, for all hosts; a mount with nolock or local_lock guards
 * against processes of its own host alone, and does not tell. Where a file system knows no locks, `guards` is
 * false: the caller says so.
 *
 * Threads: one object belongs to one thread at a time. Two objects of one process exclude each other, too. */
#ifndef FSHARD_COMMON_FOLDER_LOCK_H
#define FSHARD_COMMON_FOLDER_LOCK_H

#include <limits.h>
#include <stdbool.h>

#include "common/error.h"

typedef struct FolderLock {
    char path[PATH_MAX]; /* of the locked file */
    int descriptor;      /* -1: nothing is held */
    bool guards;         /* false: the file system knows no locks */
} FolderLock;
#define FOLDER_LOCK_NONE                                                                                     \
    {                                                                                                        \
        .descriptor = -1                                                                                     \
    }

/* Takes the lock on FOLDER/NAME, which it makes where there is none. FSH_ERR_EXISTS: another process holds
 * it, and the message, which begins with folder, says which; program is what writes there. FSH_ERR_SYSTEM. On
 * failure nothing is held or changed. */
FshStatus folder_lock_take(FolderLock *lock, const char *folder, const char *name, const char *program,
                           FshError *error);

/* Removes the file and lets go. Safe twice, and on FOLDER_LOCK_NONE. */
void folder_lock_release(FolderLock *lock);

#endif
