/* file.h - reads whole files, and writes files that are either absent or complete.
 *
 * AtomicFile writes to a hidden temporary name beside its target (".NAME.tmp-PID-N"), syncs, then renames:
 * after any stop, kill -9 included, the target is the old file or the new one. A temporary file left by a
 * killed run begins with a dot, so walk_files skips it; file_remove_stale_temporaries removes it. A writer
 * holds a lock on its file, so that files of living writers stay, in other containers and on other machines
 * too.
 *
 * Threads: nothing is shared; one object belongs to one thread at a time. */
#ifndef FSHARD_COMMON_FILE_H
#define FSHARD_COMMON_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "common/error.h"

/* A growing buffer that a thread keeps for file after file. */
typedef struct Buffer {
    uint8_t *bytes;  /* owned; 64-byte aligned */
    size_t length;   /* bytes in use */
    size_t capacity; /* bytes owned */
} Buffer;

/* Makes room for at least capacity bytes and keeps the content. FSH_ERR_MEMORY. */
FshStatus buffer_reserve(Buffer *buffer, size_t capacity, FshError *error);
FshStatus buffer_append(Buffer *buffer, const void *bytes, size_t length, FshError *error);
/* Appends text without its zero byte. */
FshStatus buffer_append_text(Buffer *buffer, const char *text, FshError *error);
void buffer_free(Buffer *buffer);

/* Reads the whole regular file into buffer and sets its length. FSH_ERR_UNSUPPORTED: a folder, pipe or
 * device. FSH_ERR_MISMATCH: it is longer than most_bytes, which is checked before memory is taken, and again
 * while reading, for a file that grows or does not give its size. */
FshStatus file_read_most(const char *path, uint64_t most_bytes, Buffer *buffer, FshError *error);
/* Does the same without a bound: for files of our own making. Read a file that a user names with a bound. */
FshStatus file_read(const char *path, Buffer *buffer, FshError *error);

/* Does what file_read_most does for a list that a user names, which may also be a pipe, such as a shell's
 * <(command), or "-" for standard input. FSH_ERR_UNSUPPORTED: a folder. */
FshStatus file_read_stream(const char *path, uint64_t most_bytes, Buffer *buffer, FshError *error);

/* A read-only mapping of a whole file. bytes is NULL for an empty file. */
typedef struct FileMapping {
    const uint8_t *bytes;
    uint64_t length;
    bool ours; /* owned or writable by this user; otherwise Linux does not tell which pages are in memory */
    struct ReadFaults *faults; /* pages that could not be read (read_fault.h) */
} FileMapping;
FshStatus file_map(const char *path, FileMapping *mapping, FshError *error);
void file_unmap(FileMapping *mapping);
/* Checks that these bytes of the mapping could be read; call it after reading them. FSH_ERR_SYSTEM names the
 * first that could not. For programs that have called read_fault_outlive; in others reading such a byte ends
 * the process. */
FshStatus file_mapping_check(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error);
/* Message about such a byte, to follow a path; its argument is the place as unsigned long long. */
#define FILE_BYTE_UNREADABLE "byte %llu cannot be read: the disk fails, or the file was cut short meanwhile"

typedef struct AtomicFile {
    char *path, *temporary_path; /* owned */
    int descriptor;              /* -1 when closed */
    uint64_t offset;             /* bytes written so far by atomic_file_write */
    uint64_t sent;               /* of them, those that are on their way to the disk */
    bool force;                  /* an existing target may be replaced */
} AtomicFile;

/* Opens the temporary file. FSH_ERR_EXISTS: the target exists, and force is not set (checked again at the
 * rename). */
FshStatus atomic_file_open(AtomicFile *file, const char *path, bool force, FshError *error);
FshStatus atomic_file_write(AtomicFile *file, const void *bytes, size_t length, FshError *error);
/* Begins to bring to the disk what has been written, in steps of some megabytes, so that the fsync of
 * atomic_file_commit has little left to wait for. */
void atomic_file_send(AtomicFile *file);
/* Overwrites bytes that atomic_file_write has written, such as a header that is only known at the end. */
FshStatus atomic_file_rewrite(AtomicFile *file, uint64_t offset, const void *bytes, size_t length,
                              FshError *error);
/* Does fsync (when sync), rename, close, fsync of the folder (when sync). On failure no file is left. */
FshStatus atomic_file_commit(AtomicFile *file, bool sync, FshError *error);
/* Removes the temporary file if there is one. Safe after commit, after a failure and on a zeroed struct. */
void atomic_file_abandon(AtomicFile *file);

/* Opens, writes and commits a file in one call. */
FshStatus file_write_atomic(const char *path, const void *bytes, size_t length, bool force, bool sync,
                            FshError *error);

/* Makes a folder and those above it (mkdir -p). FSH_ERR_EXISTS: a file has the name. Several threads may make
 * the same folders. */
FshStatus file_make_folders(const char *path, FshError *error);
/* Makes the folders above path. */
FshStatus file_make_parent_folders(const char *path, FshError *error);

/* Checks that the folder exists into which path is to be written; for use before the long work whose result
 * goes there. FSH_ERR_NOT_FOUND. */
FshStatus file_check_parent_folder(const char *path, FshError *error);

/* Waits until the names in path's folder are on disk: a synced file can still lose its name. */
FshStatus file_sync_parent_folder(const char *path, FshError *error);

/* Writes folder/name to buffer. FSH_ERR_MEMORY: it does not fit (PATH_MAX buffers are usual). */
FshStatus file_join(char *buffer, size_t buffer_bytes, const char *folder, const char *name, FshError *error);

/* Returns whether the name is one of the ".*.tmp-PID-N" that files have while they are written. */
bool file_is_temporary_name(const char *name);
/* Removes the ".*.tmp-PID-N" files directly in folder whose writer is gone. Returns how many. On a file
 * system without locks (some Lustre mounts) all of them stay. */
uint64_t file_remove_stale_temporaries(const char *folder);

/* Returns a file's time as nanoseconds since 1970, negative before. Times beyond the years 1677 and 2262,
 * which file systems can hold, become these limits. */
int64_t file_time_ns(struct timespec time);
/* Returns the time for which file_time_ns gives this number. */
struct timespec file_time_of_ns(int64_t time_ns);

/* Return whether path exists; whether it is a folder. Links are followed: a dangling link does not exist. */
bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* Returns whether folder/name exists. */
bool file_exists_in(const char *folder, const char *name);

#endif
