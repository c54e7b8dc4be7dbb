#include "common/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/read_fault.h"

enum { BUFFER_ALIGNMENT = 64 };

/* ---- buffers ---- */

FshStatus buffer_reserve(Buffer *buffer, size_t capacity, FshError *error)
{
    if (capacity <= buffer->capacity)
        return FSH_OK;
    if (capacity > SIZE_MAX / 2)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: %zu bytes asked for", capacity);
    size_t grown = buffer->capacity + buffer->capacity / 2; /* grows by half, so that appending costs O(1) for
                                                             * each byte */
    if (capacity < grown)
        capacity = grown;
    capacity = (capacity + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    uint8_t *bytes = aligned_alloc(BUFFER_ALIGNMENT, capacity);
    if (!bytes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: %zu bytes asked for", capacity);
    if (buffer->length)
        memcpy(bytes, buffer->bytes, buffer->length);
    free(buffer->bytes);
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return FSH_OK;
}

FshStatus buffer_append(Buffer *buffer, const void *bytes, size_t length, FshError *error)
{
    if (length > SIZE_MAX - buffer->length)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory: %zu bytes asked for", length);
    FshStatus status = buffer_reserve(buffer, buffer->length + length, error);
    if (status)
        return status;
    if (length)
        memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    return FSH_OK;
}

FshStatus buffer_append_text(Buffer *buffer, const char *text, FshError *error)
{
    return buffer_append(buffer, text, strlen(text), error);
}

void buffer_free(Buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (Buffer){0};
}

/* ---- reading ---- */

/* Opens a regular file and sets *descriptor_ret, -1 on failure. */
static FshStatus open_regular(const char *path, int *descriptor_ret, uint64_t *length_ret, FshError *error)
{
    *descriptor_ret = -1;
    /* O_NONBLOCK: opening a FIFO would wait for a writer; it does not matter for regular files. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot open", path);
    struct stat status;
    if (fstat(descriptor, &status)) {
        int saved = errno;
        (void)close(descriptor);
        return fsh_error_system(error, saved, "%s: cannot read its size", path);
    }
    if (!S_ISREG(status.st_mode)) {
        (void)close(descriptor);
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: %s", path,
                             S_ISDIR(status.st_mode) ? "is a folder" : "is not a regular file");
    }
    *descriptor_ret = descriptor;
    *length_ret = (uint64_t)status.st_size;
    return FSH_OK;
}

static FshStatus too_long(const char *path, uint64_t length, uint64_t most_bytes, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_MISMATCH, "%s: %llu bytes or more, and at most %llu are read", path,
                         (unsigned long long)length, (unsigned long long)most_bytes);
}

FshStatus file_read(const char *path, Buffer *buffer, FshError *error)
{
    return file_read_most(path, UINT64_MAX, buffer, error);
}

FshStatus file_read_most(const char *path, uint64_t most_bytes, Buffer *buffer, FshError *error)
{
    int descriptor = -1;
    uint64_t length = 0;
    buffer->length = 0;
    FshStatus status = open_regular(path, &descriptor, &length, error);
    if (status)
        return status;
    if (length > most_bytes) {
        status = too_long(path, length, most_bytes, error);
        goto done;
    }
    if (length >= SIZE_MAX / 2) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: too large for memory", path);
        goto done;
    }
    /* The size is a hint: files grow, and those in /proc have size 0. With one byte more the last read comes
     * back short. */
    status = buffer_reserve(buffer, (size_t)length + 1, error);
    while (!status) {
        if (buffer->length == buffer->capacity)
            status = buffer_reserve(buffer, buffer->length + 1, error);
        if (status)
            break;
        ssize_t got = read(descriptor, buffer->bytes + buffer->length, buffer->capacity - buffer->length);
        if (got == 0)
            break;
        if (got > 0)
            buffer->length += (size_t)got;
        else if (errno != EINTR)
            status = fsh_error_system(error, errno, "%s: cannot read", path);
        if (!status && buffer->length > most_bytes)
            status = too_long(path, buffer->length, most_bytes, error);
    }
done:
    (void)close(descriptor);
    return status;
}

FshStatus file_read_stream(const char *path, uint64_t most_bytes, Buffer *buffer, FshError *error)
{
    enum { STEP_BYTES = 1 << 16 };
    const bool standard = strcmp(path, "-") == 0;
    const char *name = standard ? "standard input" : path;
    struct stat facts;
    FshStatus status = FSH_OK;
    buffer->length = 0;
    const int descriptor = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot open", path);
    if (fstat(descriptor, &facts) == 0 && S_ISDIR(facts.st_mode))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%s: is a folder", name);
    for (ssize_t got = 1; got != 0 && !status;) {
        status = buffer_reserve(buffer, buffer->length + STEP_BYTES, error);
        if (status)
            break;
        got = read(descriptor, buffer->bytes + buffer->length, STEP_BYTES);
        if (got < 0 && errno != EINTR)
            status = fsh_error_system(error, errno, "%s: cannot read", name);
        buffer->length += got > 0 ? (size_t)got : 0;
        if (!status && buffer->length > most_bytes)
            status = too_long(name, buffer->length, most_bytes, error);
    }
    if (!standard)
        (void)close(descriptor);
    return status;
}

FshStatus file_map(const char *path, FileMapping *mapping, FshError *error)
{
    *mapping = (FileMapping){0};
    int descriptor = -1;
    uint64_t length = 0;
    FshStatus status = open_regular(path, &descriptor, &length, error);
    if (status || length == 0) /* mmap refuses a length of 0 */
        goto done;
    if (length > SIZE_MAX) {
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: too large to map", path);
        goto done;
    }
    void *bytes = mmap(NULL, (size_t)length, PROT_READ, MAP_SHARED, descriptor, 0);
    if (bytes == MAP_FAILED) {
        status = fsh_error_system(error, errno, "%s: cannot map", path);
        goto done;
    }
    *mapping =
        (FileMapping){.bytes = bytes, .length = length, .faults = read_faults_add(bytes, (size_t)length)};
    if (!mapping->faults) {
        file_unmap(mapping);
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
        goto done;
    }
    struct stat owner;
    mapping->ours = (fstat(descriptor, &owner) == 0 && owner.st_uid == geteuid()) || access(path, W_OK) == 0;
done:
    if (descriptor >= 0)
        (void)close(descriptor); /* the mapping keeps the file */
    return status;
}

void file_unmap(FileMapping *mapping)
{
    read_faults_remove(mapping->faults);
    if (mapping->bytes)
        (void)munmap((void *)mapping->bytes, (size_t)mapping->length);
    *mapping = (FileMapping){0};
}

FshStatus file_mapping_check(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error)
{
    size_t at = 0;
    if (!read_faults_find(mapping->faults, (size_t)offset, (size_t)length, &at))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_SYSTEM, FILE_BYTE_UNREADABLE, (unsigned long long)at);
}

/* ---- names ---- */

bool file_exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

bool file_exists_in(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return file_join(path, sizeof path, folder, name, NULL) == FSH_OK && file_exists(path);
}

bool file_is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

FshStatus file_join(char *buffer, size_t buffer_bytes, const char *folder, const char *name, FshError *error)
{
    size_t folder_length = strlen(folder);
    const char *separator = folder_length == 0 || folder[folder_length - 1] == '/' ? "" : "/";
    int length = snprintf(buffer, buffer_bytes, "%s%s%s", folder, separator, name);
    if (length < 0 || (size_t)length >= buffer_bytes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s%s%s: path is longer than %zu bytes", folder,
                             separator, name, buffer_bytes - 1);
    return FSH_OK;
}

enum { NS_PER_SECOND = 1000000000 };

int64_t file_time_ns(struct timespec time)
{
    int64_t time_ns = 0;
    if (__builtin_mul_overflow((int64_t)time.tv_sec, NS_PER_SECOND, &time_ns) ||
        __builtin_add_overflow(time_ns, (int64_t)time.tv_nsec, &time_ns))
        return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return time_ns;
}

struct timespec file_time_of_ns(int64_t time_ns)
{
    int64_t seconds = time_ns / NS_PER_SECOND, rest_ns = time_ns % NS_PER_SECOND;
    if (rest_ns < 0) { /* before 1970: the kernel wants nanoseconds counted up from a second */
        seconds--;
        rest_ns += NS_PER_SECOND;
    }
    return (struct timespec){.tv_sec = seconds, .tv_nsec = rest_ns};
}

/* Returns the length of the folder part of path: "a/b" 1, "/b" 1, "b" 0; slashes at the end belong to the
 * name. */
static size_t folder_length_of(const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    while (end > 0 && path[end - 1] != '/')
        end--;
    while (end > 1 && path[end - 1] == '/')
        end--;
    return end;
}

/* Makes the folders of a path, which it cuts and restores in place. */
static FshStatus make_folders(char *path, FshError *error)
{
    if (mkdir(path, 0777) == 0)
        return FSH_OK;
    int failure = errno;
    if (failure == ENOENT) {
        size_t length = folder_length_of(path);
        if (length) {
            char cut = path[length];
            path[length] = '\0';
            FshStatus status = make_folders(path, error);
            path[length] = cut;
            if (status)
                return status;
            failure = mkdir(path, 0777) == 0 ? 0 : errno;
        }
    }
    if (failure == 0 || file_is_folder(path)) /* another thread may have made it; EROFS may hide EEXIST */
        return FSH_OK;
    if (failure == EEXIST)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists and is no folder", path);
    return fsh_error_system(error, failure, "%s: cannot make the folder", path);
}

static FshStatus make_folders_of(const char *path, size_t length, FshError *error)
{
    char *copy = strndup(path, length);
    if (!copy)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    FshStatus status = make_folders(copy, error);
    free(copy);
    return status;
}

FshStatus file_make_folders(const char *path, FshError *error)
{
    return make_folders_of(path, strlen(path), error);
}

FshStatus file_make_parent_folders(const char *path, FshError *error)
{
    size_t length = folder_length_of(path);
    return length ? make_folders_of(path, length, error) : FSH_OK;
}

FshStatus file_check_parent_folder(const char *path, FshError *error)
{
    char folder[PATH_MAX] = ".";
    const size_t length = folder_length_of(path);
    if (length >= sizeof folder)
        return fsh_error_system(error, ENAMETOOLONG, "%s", path);
    if (length) {
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    return file_is_folder(folder)
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_NOT_FOUND, "%s: cannot be written: there is no folder %s", path,
                               folder);
}

/* ---- files that are absent or complete ----
 *
 * A temporary file is locked (flock) as long as its writer lives. The kernel releases the lock with the
 * process, also after kill -9, and the lock works between containers and, on NFS, between machines, where a
 * process id means nothing. */

/* Returns "photos/.a.jpg.tmp-4711-0"; owned by the caller. A long name is cut, so that the suffix fits in
 * NAME_MAX. */
static char *temporary_name(const char *path, unsigned attempt)
{
    enum { KEPT_BYTES = 200 };
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t kept = strlen(name);
    if (kept > KEPT_BYTES) {
        kept = KEPT_BYTES;
        while (kept > 0 && ((unsigned char)name[kept] & 0xC0) == 0x80) /* do not cut within a character */
            kept--;
    }
    char *temporary = NULL;
    int length = asprintf(&temporary, "%.*s.%.*s.tmp-%ld-%u", (int)(name - path), path, (int)kept, name,
                          (long)getpid(), attempt);
    return length < 0 ? NULL : temporary;
}

bool file_is_temporary_name(const char *name)
{
    static const char digits[] = "0123456789";
    const char *mark = NULL;
    for (const char *found = strstr(name, ".tmp-"); found; found = strstr(found + 1, ".tmp-"))
        mark = found;
    if (name[0] != '.' || !mark || mark == name)
        return false;
    const char *process = mark + strlen(".tmp-");
    size_t process_digits = strspn(process, digits);
    if (!process_digits || process[process_digits] != '-')
        return false;
    const char *attempt = process + process_digits + 1;
    size_t attempt_digits = strspn(attempt, digits);
    return attempt_digits && attempt[attempt_digits] == '\0';
}

static bool name_taken(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0; /* a dangling link takes the name too */
}

static FshStatus refuse_existing(const char *path, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists already; --force replaces it", path);
}

/* Locks a file just created. Returns false if another process, which removes stale files, has taken it: then
 * try the next name. */
static bool lock_temporary(int descriptor)
{
    if (flock(descriptor, LOCK_EX | LOCK_NB))
        return errno != EWOULDBLOCK; /* on a file system without locks no process removes stale files, see
                                      * below */
    struct stat status;
    return fstat(descriptor, &status) || status.st_nlink > 0;
}

FshStatus atomic_file_open(AtomicFile *file, const char *path, bool force, FshError *error)
{
    *file = (AtomicFile){.descriptor = -1, .force = force};
    if (!force && name_taken(path))
        return refuse_existing(path, error);
    file->path = strdup(path);
    for (unsigned attempt = 0; file->path; attempt++) {
        file->temporary_path = temporary_name(path, attempt);
        if (!file->temporary_path)
            break;
        file->descriptor = open(file->temporary_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->descriptor < 0 && errno != EEXIST) {
            FshStatus status = fsh_error_system(error, errno, "%s: cannot create", path);
            free(file->temporary_path);
            file->temporary_path = NULL; /* no file was made, so none is to be removed */
            atomic_file_abandon(file);
            return status;
        }
        if (file->descriptor >= 0 && lock_temporary(file->descriptor))
            return FSH_OK;
        if (file->descriptor >= 0)
            (void)close(file->descriptor);
        file->descriptor = -1;
        free(file->temporary_path);
        file->temporary_path = NULL;
    }
    atomic_file_abandon(file);
    return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
}

FshStatus atomic_file_write(AtomicFile *file, const void *bytes, size_t length, FshError *error)
{
    const uint8_t *next = bytes;
    while (length) {
        ssize_t written = write(file->descriptor, next, length);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return fsh_error_system(error, errno, "%s: cannot write", file->path);
        }
        next += written;
        length -= (size_t)written;
        file->offset += (uint64_t)written;
    }
    return FSH_OK;
}

void atomic_file_send(AtomicFile *file)
{
    enum { STEP_BYTES = 8 << 20 };
    const uint64_t waiting = file->offset - file->sent;
    if (waiting < STEP_BYTES)
        return;
    /* a disk that cannot, can at the fsync, which tells */
    (void)sync_file_range(file->descriptor, (off64_t)file->sent, (off64_t)waiting, SYNC_FILE_RANGE_WRITE);
    file->sent = file->offset;
}

FshStatus atomic_file_rewrite(AtomicFile *file, uint64_t offset, const void *bytes, size_t length,
                              FshError *error)
{
    const uint8_t *next = bytes;
    while (length) {
        ssize_t written = pwrite(file->descriptor, next, length, (off_t)offset);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return fsh_error_system(error, errno, "%s: cannot write", file->path);
        }
        next += written;
        offset += (uint64_t)written;
        length -= (size_t)written;
    }
    return FSH_OK;
}

/* Renames the temporary file without replacing anything. Returns 0 or errno. */
static int rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* NFS and others do not know NOREPLACE; link refuses an existing name too. */
    if (link(from, to) == 0)
        return unlink(from) == 0 ? 0 : errno;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        return errno;
    /* There are no hard links either (FAT, some FUSE): look, then rename. */
    if (name_taken(to))
        return EEXIST;
    return rename(from, to) == 0 ? 0 : errno;
}

FshStatus file_sync_parent_folder(const char *path, FshError *error)
{
    size_t length = folder_length_of(path);
    char *folder = length ? strndup(path, length) : strdup(".");
    if (!folder)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    FshStatus status = FSH_OK;
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: the file system cannot sync folders, and need not. */
    if (descriptor < 0 || (fsync(descriptor) && errno != EINVAL))
        status = fsh_error_system(error, errno, "%s: cannot sync the folder", folder);
    if (descriptor >= 0)
        (void)close(descriptor);
    free(folder);
    return status;
}

FshStatus atomic_file_commit(AtomicFile *file, bool sync, FshError *error)
{
    FshStatus status = FSH_OK;
    if (sync && fsync(file->descriptor)) {
        status = fsh_error_system(error, errno, "%s: cannot write to disk", file->path);
        goto done;
    }
    /* Closing reports writes that failed late (NFS, quota). Closing a copy reports the same and keeps the
     * lock, so that the file is still ours when it gets its name. */
    int copy = fcntl(file->descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || close(copy)) {
        status = fsh_error_system(error, errno, "%s: cannot write", file->path);
        goto done;
    }
    int failure = 0;
    if (!file->force)
        failure = rename_new(file->temporary_path, file->path);
    else if (rename(file->temporary_path, file->path))
        failure = errno;
    if (failure == EEXIST && !file->force) {
        status = refuse_existing(file->path, error);
        goto done;
    }
    if (failure) {
        status = fsh_error_system(error, failure, "%s: cannot put the file in place", file->path);
        goto done;
    }
    free(file->temporary_path);
    file->temporary_path = NULL;
    if (sync)
        status = file_sync_parent_folder(file->path, error);
done:
    atomic_file_abandon(file);
    return status;
}

void atomic_file_abandon(AtomicFile *file)
{
    /* In a zeroed struct descriptor 0 is not ours: the path says whether there is a file. */
    if (file->temporary_path)
        (void)unlink(file->temporary_path);
    if (file->path && file->descriptor >= 0)
        (void)close(file->descriptor);
    free(file->temporary_path);
    free(file->path);
    *file = (AtomicFile){.descriptor = -1};
}

FshStatus file_write_atomic(const char *path, const void *bytes, size_t length, bool force, bool sync,
                            FshError *error)
{
    AtomicFile file;
    FshStatus status = atomic_file_open(&file, path, force, error);
    if (status)
        return status;
    status = atomic_file_write(&file, bytes, length, error);
    if (status)
        atomic_file_abandon(&file);
    else
        status = atomic_file_commit(&file, sync, error);
    return status;
}

uint64_t file_remove_stale_temporaries(const char *folder)
{
    DIR *entries = opendir(folder);
    if (!entries)
        return 0;
    uint64_t removed = 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        if (!file_is_temporary_name(entry->d_name))
            continue;
        int descriptor = openat(dirfd(entries), entry->d_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (descriptor < 0)
            continue;
        /* Without working locks nothing is known about the writer, and the file stays. */
        if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 && unlinkat(dirfd(entries), entry->d_name, 0) == 0)
            removed++;
        (void)close(descriptor);
    }
    (void)closedir(entries);
    return removed;
}
