#include "stores/store_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/cache_folder.h"
#include "common/file.h"
#include "common/interrupt.h"
#include "common/progress.h"
#include "common/text.h"

static const char lock_suffix[] = ".lock", room_name[] = ".room.lock";

FshStatus store_cache_find(StoreCache *cache, const char *folder, FshError *error)
{
    char own[PATH_MAX];
    *cache = (StoreCache){0};
    if (!folder && !cache_folder_find(own, sizeof own))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "there is neither XDG_CACHE_HOME nor HOME to keep datasets in; give --cache-dir");
    FshStatus status = folder ? file_join(cache->folder, sizeof cache->folder, folder, "", error)
                              : file_join(cache->folder, sizeof cache->folder, own, "datasets", error);
    for (size_t length = strlen(cache->folder); length > 1 && cache->folder[length - 1] == '/';)
        cache->folder[--length] = '\0';
    return status ? fsh_error_prepend(error, "--cache-dir") : FSH_OK;
}

FshStatus store_cache_open(StoreCache *cache, const char *folder, uint64_t most_bytes, FshError *error)
{
    FshStatus status = store_cache_find(cache, folder, error);
    cache->most_bytes = most_bytes;
    if (!status && file_make_folders(cache->folder, error))
        status = fsh_error_prepend(error, "--cache-dir");
    return status;
}

/* ---- locks ---- */

static bool is_named(int descriptor, const char *path)
{
    struct stat locked, named;
    return fstat(descriptor, &locked) == 0 && stat(path, &named) == 0 && locked.st_dev == named.st_dev &&
           locked.st_ino == named.st_ino;
}

/* Takes a lock on an open file, in the end; with LOCK_NB in kind waits a moment at most. *held_ret: false:
 * somebody else has it still. */
static FshStatus wait_for_lock(int descriptor, int kind, const char *path, bool *held_ret,
                               void (**waits)(void *context), void *context, FshError *error)
{
    *held_ret = false;
    while (flock(descriptor, kind | LOCK_NB) != 0) {
        const struct timespec nap = {.tv_nsec = 50000000};
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted");
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return fsh_error_system(
                error, errno, "%s: cannot be locked; give a --cache-dir on a file system with locks", path);
        if (*waits)
            (*waits)(context);
        *waits = NULL;
        (void)nanosleep(&nap, NULL);
        if (kind & LOCK_NB)
            return FSH_OK;
    }
    *held_ret = true;
    return FSH_OK;
}

static FshStatus lock_path(const char *path, int kind, void (*waits)(void *context), void *context,
                           int *lock_ret, FshError *error)
{
    for (;;) {
        const int descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        *lock_ret = -1;
        if (descriptor < 0)
            return fsh_error_system(error, errno, "%s: cannot be opened", path);
        bool held = false;
        const FshStatus status = wait_for_lock(descriptor, kind, path, &held, &waits, context, error);
        if (held && is_named(descriptor, path)) {
            *lock_ret = descriptor;
            return FSH_OK;
        }
        (void)close(descriptor); /* whoever made room has removed the file meanwhile */
        if (!held)
            return status;
    }
}

static FshStatus join_lock(char path[PATH_MAX], const StoreCache *cache, const char *name, FshError *error)
{
    char file[NAME_MAX + 1];
    (void)snprintf(file, sizeof file, "%.200s%s", name, lock_suffix);
    return file_join(path, PATH_MAX, cache->folder, file, error);
}

FshStatus store_cache_lock(const StoreCache *cache, const char *name, bool alone,
                           void (*waits)(void *context), void *context, int *lock_ret, FshError *error)
{
    char path[PATH_MAX];
    *lock_ret = -1;
    FshStatus status = join_lock(path, cache, name, error);
    if (!status)
        status = lock_path(path, alone ? LOCK_EX | LOCK_NB : LOCK_SH, waits, context, lock_ret, error);
    if (*lock_ret >= 0)
        (void)futimens(*lock_ret, NULL);
    return status;
}

/* ---- room ---- */

/* An entry of the cache. */
typedef struct Entry {
    char name[NAME_MAX + 1];
    uint64_t bytes;         /* that it has or, while it is fetched, is about to have */
    uint64_t missing_bytes; /* of them, that are not on the disk yet */
    int64_t used_ns;
    int lock; /* held alone, to be removed; else -1 */
} Entry;

typedef struct Entries {
    Entry *items;
    size_t count;
} Entries;

static int compare_used(const void *a, const void *b)
{
    const Entry *left = a, *right = b;
    return (left->used_ns > right->used_ns) - (left->used_ns < right->used_ns);
}

/* Reads the bytes that a lock file tells. */
static uint64_t read_bytes(int descriptor)
{
    char text[32] = "";
    const ssize_t length = pread(descriptor, text, sizeof text - 1, 0);
    return length > 0 ? strtoull(text, NULL, 10) : 0;
}

/* Returns the bytes that the files of an entry take on the disk. */
static uint64_t disk_bytes(const char *path, int depth)
{
    enum { BLOCK_BYTES = 512 };
    uint64_t bytes = 0;
    DIR *folder = opendir(path);
    for (const struct dirent *file; folder && (file = readdir(folder));) {
        char inside[PATH_MAX];
        struct stat state;
        if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0 ||
            fstatat(dirfd(folder), file->d_name, &state, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (!S_ISDIR(state.st_mode))
            bytes += (uint64_t)state.st_blocks * BLOCK_BYTES;
        else if (depth > 0 && !file_join(inside, sizeof inside, path, file->d_name, NULL))
            bytes += disk_bytes(inside, depth - 1);
    }
    if (folder)
        (void)closedir(folder);
    return bytes;
}

/* Fills in what an entry takes. One that nobody fetches takes what is on the disk: a process that was stopped
 * has left less than it wanted. */
static void weigh_entry(Entry *entry, const StoreCache *cache, int descriptor)
{
    char path[PATH_MAX];
    const bool fetched = flock(descriptor, LOCK_SH | LOCK_NB) != 0;
    const uint64_t noted = read_bytes(descriptor);
    uint64_t here = 0;
    if (!file_join(path, sizeof path, cache->folder, entry->name, NULL))
        here = disk_bytes(path, 1);
    entry->bytes = fetched || here > noted ? noted : here;
    entry->missing_bytes = fetched && noted > here ? noted - here : 0;
}

static FshStatus add_entry(Entries *entries, const StoreCache *cache, const char *name, FshError *error)
{
    char path[PATH_MAX];
    struct stat state;
    if (join_lock(path, cache, name, NULL))
        return FSH_OK;
    const int descriptor = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) /* is gone, or another user's: nothing that could be removed */
        return FSH_OK;
    Entry *grown = realloc(entries->items, (entries->count + 1) * sizeof *grown);
    if (!grown || fstat(descriptor, &state) != 0) {
        entries->items = grown ? grown : entries->items;
        (void)close(descriptor);
        return grown ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", cache->folder);
    }
    entries->items = grown;
    Entry *entry = &grown[entries->count++];
    *entry = (Entry){.used_ns = file_time_ns(state.st_mtim), .lock = -1};
    (void)snprintf(entry->name, sizeof entry->name, "%s", name);
    weigh_entry(entry, cache, descriptor);
    (void)close(descriptor);
    return FSH_OK;
}

/* Returns whether a name is of an entry, "…-" and 16 hexadecimal digits: a folder that --cache-dir names may
 * hold other people's X.lock, and X. */
static bool is_entry_name(const char *name)
{
    enum { DIGITS = 16 };
    const size_t length = strlen(name);
    return length > DIGITS + 1 && name[length - DIGITS - 1] == '-' &&
           strspn(name + length - DIGITS, "0123456789abcdef") == DIGITS;
}

/* Lists all entries but `own`, the longest unused first. */
static FshStatus list_entries(Entries *entries, const StoreCache *cache, const char *own, FshError *error)
{
    FshStatus status = FSH_OK;
    DIR *folder = opendir(cache->folder);
    if (!folder)
        return fsh_error_system(error, errno, "%s: cannot be read", cache->folder);
    for (const struct dirent *entry; !status && (entry = readdir(folder));) {
        char name[NAME_MAX + 1];
        (void)snprintf(name, sizeof name, "%s", entry->d_name);
        if (name[0] == '.' || !text_has_suffix(name, lock_suffix))
            continue;
        name[strlen(name) - strlen(lock_suffix)] = '\0';
        if (is_entry_name(name) && strcmp(name, own) != 0)
            status = add_entry(entries, cache, name, error);
    }
    (void)closedir(folder);
    if (entries->count)
        qsort(entries->items, entries->count, sizeof *entries->items, compare_used);
    return status;
}

/* Removes a folder with files and, depth levels deep, folders, as LMDBs are. */
static void remove_tree(const char *path, int depth)
{
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char inside[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            file_join(inside, sizeof inside, path, entry->d_name, NULL))
            continue;
        if (unlink(inside) != 0 && errno == EISDIR && depth > 0)
            remove_tree(inside, depth - 1);
    }
    if (folder)
        (void)closedir(folder);
    (void)rmdir(path);
}

void store_cache_remove(const char *path)
{
    remove_tree(path, 2);
}

static void remove_entry(const StoreCache *cache, Entry *entry)
{
    char path[PATH_MAX];
    if (!file_join(path, sizeof path, cache->folder, entry->name, NULL))
        store_cache_remove(path);
    if (!join_lock(path, cache, entry->name, NULL))
        (void)unlink(path); /* before the lock is released: whoever waits for it makes a new one */
}

/* Locks an entry that nobody holds. Returns false if somebody does. */
static bool hold_entry(const StoreCache *cache, Entry *entry)
{
    char path[PATH_MAX];
    if (join_lock(path, cache, entry->name, NULL))
        return false;
    entry->lock = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (entry->lock >= 0 && flock(entry->lock, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (entry->lock >= 0)
        (void)close(entry->lock);
    entry->lock = -1;
    return false;
}

/* Returns how many bytes the cache may have in all. on_disk: of all other entries, have: of this one. What
 * others that are fetched are about to have counts as used, and is not on the disk. */
static uint64_t find_bound(const StoreCache *cache, uint64_t on_disk, uint64_t have)
{
    static const uint64_t kept_most = (uint64_t)10 << 30; /* of the disk, for others */
    struct statvfs disk;
    if (cache->most_bytes)
        return cache->most_bytes;
    if (statvfs(cache->folder, &disk) != 0)
        return UINT64_MAX;
    const uint64_t total = (uint64_t)disk.f_blocks * disk.f_frsize,
                   free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    const uint64_t kept = total / 20 < kept_most ? total / 20 : kept_most;
    return on_disk + have + (free_bytes > kept ? free_bytes - kept : 0);
}

static FshStatus fail_for_room(const StoreCache *cache, uint64_t bytes, uint64_t bound, uint64_t held,
                               FshError *error)
{
    char want[32], most[32], open[32];
    progress_format_bytes(want, sizeof want, bytes);
    progress_format_bytes(most, sizeof most, bound);
    progress_format_bytes(open, sizeof open, held);
    return fsh_error_set(error, FSH_ERR_NO_SPACE,
                         "the dataset has %s, and %s holds %s at most, of which %s are in use; give a larger "
                         "%s",
                         want, cache->folder, most, open,
                         cache->most_bytes ? "--cache-size" : "disk as --cache-dir");
}

FshStatus store_cache_make_room(const StoreCache *cache, const char *name, int lock, uint64_t bytes,
                                uint64_t have_bytes, unsigned *removed_ret, FshError *error)
{
    char path[PATH_MAX], text[32];
    Entries entries = {0};
    int room = -1;
    uint64_t used = 0, goes = 0, missing = 0;
    *removed_ret = 0;
    FshStatus status = file_join(path, sizeof path, cache->folder, room_name, error);
    if (!status)
        status = lock_path(path, LOCK_EX, NULL, NULL, &room, error);
    if (!status)
        status = list_entries(&entries, cache, name, error);
    for (size_t i = 0; i < entries.count; i++) {
        used += entries.items[i].bytes;
        missing += entries.items[i].missing_bytes;
    }
    const uint64_t bound = status ? 0 : find_bound(cache, used - missing, have_bytes);
    for (size_t i = 0; !status && i < entries.count && (bytes > bound || used - goes > bound - bytes); i++)
        if (hold_entry(cache, &entries.items[i]))
            goes += entries.items[i].bytes;
    if (!status && (bytes > bound || used - goes > bound - bytes))
        status = fail_for_room(cache, bytes, bound, used - goes, error);
    for (size_t i = 0; i < entries.count; i++) {
        if (entries.items[i].lock < 0)
            continue;
        if (!status) {
            remove_entry(cache, &entries.items[i]);
            ++*removed_ret;
        }
        (void)close(entries.items[i].lock);
    }
    const int length = snprintf(text, sizeof text, "%" PRIu64 "\n", bytes);
    if (!status && (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)length, 0) != length))
        status =
            fsh_error_system(error, errno, "%s/%s%s: cannot be written", cache->folder, name, lock_suffix);
    if (room >= 0)
        (void)close(room);
    free(entries.items);
    return status;
}
