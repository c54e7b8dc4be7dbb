/* file.h - whole files in, and files out that are either absent or complete.
 *
 * AtomicFile writes to a hidden temporary name beside its target (".NAME.tmp-PID-N"), syncs, then renames:
 * after any stop, kill -9 included, the target is the old file or the new one. A temporary name left by a
 * killed run begins with a dot, so walk_files skips it; file_remove_stale_temporaries removes it. The writer
 * holds a lock on it, so that those of living writers are left alone, in other containers and on other
 * machines too.
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

/* Makes room for at least capacity bytes; keeps what is there. FSH_ERR_MEMORY. */
FshStatus buffer_reserve(Buffer *buffer, size_t capacity, FshError *error);
FshStatus buffer_append(Buffer *buffer, const void *bytes, size_t length, FshError *error);
void buffer_free(Buffer *buffer);

/* Reads the whole regular file into buffer (length set). FSH_ERR_UNSUPPORTED: a folder, pipe or device.
 * FSH_ERR_MISMATCH: it is longer than most_bytes; found before memory is taken, and again while reading, for
 * a file that grows or does not tell its size. */
FshStatus file_read_most(const char *path, uint64_t most_bytes, Buffer *buffer, FshError *error);
/* The same of any length: for files of our own making. What a user names is better read with a bound. */
FshStatus file_read(const char *path, Buffer *buffer, FshError *error);

/* As file_read_most, of a list that a user names: from a pipe, too, as a shell's <(command) is one, and for
 * "-" from standard input. FSH_ERR_UNSUPPORTED: a folder. */
FshStatus file_read_stream(const char *path, uint64_t most_bytes, Buffer *buffer, FshError *error);

/* A read-only mapping of a whole file. bytes is NULL for an empty file. */
typedef struct FileMapping {
    const uint8_t *bytes;
    uint64_t length;
    bool ours; /* owned or writable by this user: only then Linux tells which pages are in memory */
    struct ReadFaults *faults; /* pages that could not be read (read_fault.h) */
} FileMapping;
FshStatus file_map(const char *path, FileMapping *mapping, FshError *error);
void file_unmap(FileMapping *mapping);
/* Checks whether these bytes of the mapping were all there for those who have read them: FSH_ERR_SYSTEM names
 * the first that was not. In a program that has called read_fault_outlive; elsewhere reading them was
 * death. */
FshStatus file_mapping_check(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error);
/* What such a byte is called, after a path; one argument, its place as unsigned long long. */
#define FILE_BYTE_UNREADABLE "byte %llu cannot be read: the disk fails, or the file was cut short meanwhile"

typedef struct AtomicFile {
    char *path, *temporary_path; /* owned */
    int descriptor;              /* -1 when closed */
    uint64_t offset;             /* bytes written so far by atomic_file_write */
    bool force;                  /* an existing target may be replaced */
} AtomicFile;

/* Opens the temporary file. Unless force, a target that exists is FSH_ERR_EXISTS (checked again at the
 * rename). */
FshStatus atomic_file_open(AtomicFile *file, const char *path, bool force, FshError *error);
FshStatus atomic_file_write(AtomicFile *file, const void *bytes, size_t length, FshError *error);
/* Writes over bytes that atomic_file_write has written: what is known only at the end, in a head. */
FshStatus atomic_file_rewrite(AtomicFile *file, uint64_t offset, const void *bytes, size_t length,
                              FshError *error);
/* fsync (when sync), rename, close, fsync of the folder (when sync). On failure nothing is left behind. */
FshStatus atomic_file_commit(AtomicFile *file, bool sync, FshError *error);
/* Removes the temporary file if there is one; safe after commit, after failure and on a zeroed struct. */
void atomic_file_abandon(AtomicFile *file);

/* open, write, commit in one. */
FshStatus file_write_atomic(const char *path, const void *bytes, size_t length, bool force, bool sync,
                            FshError *error);

/* mkdir -p. FSH_ERR_EXISTS when a file has the name. Several threads may make the same folders. */
FshStatus file_make_folders(const char *path, FshError *error);
/* The folders above path, mkdir -p. */
FshStatus file_make_parent_folders(const char *path, FshError *error);

/* Whether there is a folder for path to be written into: before the long work whose result it is to hold.
 * FSH_ERR_NOT_FOUND. */
FshStatus file_check_parent_folder(const char *path, FshError *error);

/* Waits until the disk has the names in the folder of path: a file that was synced can still lose its
 * name. */
FshStatus file_sync_parent_folder(const char *path, FshError *error);

/* a/b into buffer; FSH_ERR_MEMORY when it does not fit (PATH_MAX buffers are usual). */
FshStatus file_join(char *buffer, size_t buffer_bytes, const char *folder, const char *name, FshError *error);

/* Removes ".*.tmp-PID-N" files directly in folder whose writer is gone. Returns how many were removed. A file
 * system without locks (some Lustre mounts) keeps them all. */
uint64_t file_remove_stale_temporaries(const char *folder);

/* A file's time as nanoseconds since 1970, negative before; the years 1677 and 2262 stand for all beyond
 * them, which file systems know too. */
int64_t file_time_ns(struct timespec time);
/* The time that file_time_ns reads as this number. */
struct timespec file_time_of_ns(int64_t time_ns);

/* Links are followed: a dangling link does not exist. */
bool file_exists(const char *path);
bool file_is_folder(const char *path);

#endif
