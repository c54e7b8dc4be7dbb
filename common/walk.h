/* walk.h - every file below a folder, in byte order.
 *
 *   FileList list = {0};
 *   FshStatus status = walk_files(root, jobs, &list, &error);
 *   for (uint64_t i = 0; i < list.count; i++) use(list.files[i].path, list.files[i].bytes);
 *   file_list_free(&list);
 *
 * Files are looked at in parallel; the result is sorted by the bytes of the relative path, so it does not
 * depend on the file system or on threads. Names that begin with "." are skipped, files and folders, and
 * reported only by count; the root itself may have such a name. Only regular files are listed.
 *
 * Links are followed, with two bounds. A folder met a second time on its own path (same device and inode
 * among its ancestors) is not entered again. And a link to a folder that is itself in a linked folder is
 * followed once for each folder it leads to: the first in the order is. So a link to a class folder works as
 * often as there are such links, while folders full of links to each other, which have more paths than there
 * are files on earth, come to an end: at most (links + folders) times folders are entered. What is not
 * entered is a problem in the list. */
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

/* Something below the root that is no file to list. */
typedef struct WalkProblem {
    const char *path;   /* as FileEntry's; owned by the list */
    const char *reason; /* "link to nothing", "cannot be read: Permission denied"; owned by the list */
    bool unread;        /* the system failed: there may be files, which another time can be read */
} WalkProblem;

typedef struct FileList {
    FileEntry *files;
    uint64_t count;
    uint64_t total_bytes;
    uint64_t hidden_count;  /* names skipped because they begin with "." */
    uint64_t problem_count; /* entries left out: dangling links, folders without permission, loops, devices
                               and pipes */
    WalkProblem *problems;  /* problem_count of them, sorted by path */
    struct WalkArena *arena;
} FileList;

/* FSH_ERR_NOT_FOUND: root does not exist or is no folder. An unreadable folder below the root is a problem in
 * the list, not a failure; an unreadable root is a failure. An empty list is FSH_OK: the caller knows what it
 * was looking for. FSH_ERR_INTERRUPTED after a signal. On failure the list is empty and needs no free. */
FshStatus walk_files(const char *root, int jobs, FileList *list, FshError *error);

/* The same of some folders below root alone, "a" or "a/b", in byte order and none in another; their paths
 * begin with them. */
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
 * The order, what is skipped and what is a problem are those of walk_files, to the byte. Files are not looked
 * at (no stat), but for links and on file systems that do not tell kinds: a file that is gone, or may not be
 * read, is found out by who opens it. Memory: the names of the folders on the way down to the one in hand,
 * and 20 bytes more for each, 36 while they are sorted (300,000 files in one folder: 20 MB). No folder stays
 * open, and none is read before its turn. Threads: one at a time. */
typedef struct WalkCursor WalkCursor;

typedef struct WalkEntry {
    const char *path;   /* relative to the root; the cursor's, until its next step; NULL: the end */
    const char *reason; /* NULL: a regular file; else why nothing can be read there, as WalkProblem's */
    bool unread;        /* with reason; as WalkProblem's */
    bool looked_at;     /* the two below are known: it was a link, or the file system does not tell kinds */
    uint64_t bytes;
    int64_t modified_ns;
} WalkEntry;

/* As walk_files: FSH_ERR_NOT_FOUND, or an unreadable root. */
FshStatus walk_open(WalkCursor **cursor, const char *root, FshError *error);
/* Keeps the walk out of a folder to which a link below the root may lead, or above it: what lies in it is a
 * problem in the list. For who writes there while walking. It need not exist yet. folder stays the caller's,
 * as long as the cursor. */
void walk_avoid(WalkCursor *cursor, const char *folder);
/* FSH_ERR_INTERRUPTED after a signal; FSH_ERR_MEMORY. */
FshStatus walk_next(WalkCursor *cursor, WalkEntry *entry, FshError *error);
/* Names skipped so far because they begin with ".". */
uint64_t walk_hidden_count(const WalkCursor *cursor);
/* Frees and sets to NULL; NULL is fine. */
void walk_close(WalkCursor **cursor);

#endif
