/* walk.h - lists every file below a folder, in byte order.
 *
 *   FileList list = {0};
 *   FshStatus status = walk_files(root, jobs, &list, &error);
 *   for (uint64_t i = 0; i < list.count; i++) use(list.files[i].path, list.files[i].bytes);
 *   file_list_free(&list);
 *
 * Threads stat files in parallel; the result is sorted by the bytes of the relative path, so it does not
 * depend on the file system or on threads. Files and folders whose names begin with "." are skipped and only
 * counted; the root itself may have such a name. Only regular files are listed.
 *
 * Links are followed, with two bounds. A folder that is its own ancestor (same device and inode) is not
 * entered again. And of the links within linked folders, only the first in the order that leads to a folder
 * is followed. So any number of links to a class folder works, while folders full of links to each other,
 * which have an astronomical number of paths, come to an end: folders are entered at most (links + folders)
 * times. A folder that is not entered is a problem in the list. */
#ifndef FSHARD_COMMON_WALK_H
#define FSHARD_COMMON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct FileEntry {
    const char *path;    /* relative to the root, '/' between parts; owned by the list */
    uint64_t bytes;      /* st_size */
    int64_t modified_ns; /* st_mtim, as file_time_ns gives it */
} FileEntry;

/* An entry below the root that cannot be listed as a file. */
typedef struct WalkProblem {
    const char *path;   /* as in FileEntry; owned by the list */
    const char *reason; /* "link to nothing", "cannot be read: Permission denied"; owned by the list */
    bool unread;        /* the system failed: there may be files that can be read another time */
} WalkProblem;

typedef struct FileList {
    FileEntry *files;
    uint64_t count;
    uint64_t total_bytes;
    uint64_t hidden_count;  /* names skipped because they begin with "." */
    uint64_t problem_count; /* dangling links, unreadable folders, loops, devices and pipes */
    WalkProblem *problems;  /* [problem_count], sorted by path */
    struct WalkArena *arena;
} FileList;

/* Lists the files below root. FSH_ERR_NOT_FOUND: root does not exist or is no folder. An unreadable folder
 * below the root is a problem in the list, an unreadable root a failure. An empty list is FSH_OK.
 * FSH_ERR_INTERRUPTED after a signal. On failure the list is empty and need not be freed. */
FshStatus walk_files(const char *root, int jobs, FileList *list, FshError *error);

/* Lists only the files of some folders below root, "a" or "a/b", which are in byte order and not within each
 * other; paths begin with them. */
FshStatus walk_folders(const char *root, const char *const *folders, size_t folder_count, int jobs,
                       FileList *list, FshError *error);

void file_list_free(FileList *list);

/* ---- the same walk, a file at a time: work begins with the first file of a million ----
 *
 *   WalkCursor *cursor = NULL;
 *   FshStatus status = walk_open(&cursor, root, &error);
 *   while (!status && !(status = walk_next(cursor, &entry, &error)) && entry.path) use(entry.path);
 *   walk_close(&cursor);
 *
 * Order, skipped entries and problems are exactly those of walk_files. There is no stat of files, except of
 * links and on file systems that do not give kinds: a file that is gone or unreadable shows when it is
 * opened. Memory: the names in the folders on the way down to the current one, and 20 bytes more for each, 36
 * while they are sorted (300,000 files in one folder: 20 MB). No folder stays open, and none is read before
 * its turn. Threads: one at a time. */
typedef struct WalkCursor WalkCursor;

typedef struct WalkEntry {
    const char *path;   /* relative to the root; owned by the cursor, until its next step; NULL: the end */
    const char *reason; /* NULL: a regular file; else why it cannot be read, as in WalkProblem */
    bool unread;        /* with reason; as in WalkProblem */
    bool looked_at;     /* bytes and modified_ns are known: it was a link, or the file system does not give
                         * kinds */
    uint64_t bytes;
    int64_t modified_ns;
} WalkEntry;

/* Begins a walk. Fails as walk_files does: FSH_ERR_NOT_FOUND, or an unreadable root. */
FshStatus walk_open(WalkCursor **cursor, const char *root, FshError *error);
/* Keeps the walk out of a folder to which a link below the root may lead, or above it: entries in it become
 * problems. For a caller that writes there while walking. The folder need not exist yet; the text must live
 * as long as the cursor. */
void walk_avoid(WalkCursor *cursor, const char *folder);
/* Sets *entry to the next file or problem. FSH_ERR_INTERRUPTED after a signal; FSH_ERR_MEMORY. */
FshStatus walk_next(WalkCursor *cursor, WalkEntry *entry, FshError *error);
/* Returns how many names were skipped so far because they begin with ".". */
uint64_t walk_hidden_count(const WalkCursor *cursor);
/* Frees and sets to NULL; NULL is fine. */
void walk_close(WalkCursor **cursor);

#endif
