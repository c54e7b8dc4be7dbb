/* Files in memory before they are needed, and how much of them is there. Readers know nothing of it: pages
 * that are there are faster, and that is all. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "formats/dataset.h"
#include "formats/lmdb_reader.h"
#include "formats/split_file.h"

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

#ifdef MADV_POPULATE_READ
/* Returns the first byte of the range that cannot be read. Looks page by page. */
static uint64_t find_unreadable(const FileMapping *mapping, uint64_t offset, uint64_t length)
{
    const size_t page = page_bytes();
    for (uint64_t at = offset - offset % page; at < offset + length; at += page) {
        if (madvise((void *)(mapping->bytes + at), page, MADV_POPULATE_READ) && errno == EFAULT)
            return at > offset ? at : offset;
    }
    return offset;
}
#endif

FshStatus fsh_populate(const FileMapping *mapping, uint64_t offset, uint64_t length, FshError *error)
{
    const uint8_t *bytes = mapping->bytes + offset;
    size_t page = page_bytes();
    size_t before = (uintptr_t)bytes & (page - 1); /* madvise wants whole pages; the mapping begins at one */
    const uint8_t *begin = bytes - before, *end = bytes + length;
    size_t span = (size_t)length + before;
    if (length == 0)
        return FSH_OK;
#ifdef MADV_POPULATE_READ
    for (;;) {
        if (madvise((void *)begin, span, MADV_POPULATE_READ) == 0)
            return file_mapping_check(mapping, offset, length,
                                      error); /* zeros in place of a page are there */
        if (errno == EINTR)
            continue;
        if (errno == EINVAL) /* before Linux 5.14 */
            break;
        if (errno == EFAULT)
            return fsh_error_set(error, FSH_ERR_SYSTEM, FILE_BYTE_UNREADABLE,
                                 (unsigned long long)find_unreadable(mapping, offset, length));
        return fsh_error_system(error, errno, "cannot be read");
    }
#endif
    (void)madvise((void *)begin, span, MADV_WILLNEED);
    volatile uint8_t sink = 0;
    for (const uint8_t *at = begin; at < end; at += page) {
        sink = *(const volatile uint8_t *)at;
    }
    (void)sink;
    return file_mapping_check(mapping, offset, length, error);
}

/* ---- a split ---- */

/* One call for each: long enough to keep the disk busy, short enough to share out. */
enum { POPULATE_BYTES = 32 << 20 };

static uint64_t chunk_count(const FileMapping *mapping)
{
    return (mapping->length + POPULATE_BYTES - 1) / POPULATE_BYTES;
}

static FshStatus populate_chunk(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    const FshSplit *split = context;
    const SplitFile *file = split->files->files;
    size_t part = 0;
    const FileMapping *mapping = fsh_split_file_mapping(file, part);
    while (item >= chunk_count(mapping)) {
        item -= chunk_count(mapping);
        if (++part == fsh_split_file_mapping_count(file)) {
            file++;
            part = 0;
        }
        mapping = fsh_split_file_mapping(file, part);
    }
    uint64_t offset = item * POPULATE_BYTES;
    uint64_t length = mapping->length - offset < POPULATE_BYTES ? mapping->length - offset : POPULATE_BYTES;
    FshStatus status = fsh_populate(mapping, offset, length, error);
    if (status)
        (void)fsh_error_prepend(error, "%s", split->info->files[file - split->files->files].name);
    return status;
}

static FshStatus lock_mapping(const FshSplit *split, size_t number, const FileMapping *mapping,
                              FshError *error)
{
    if (mapping->length == 0 || mlock(mapping->bytes, (size_t)mapping->length) == 0)
        return FSH_OK;
    int code = errno;
    struct rlimit limit;
    if ((code == ENOMEM || code == EPERM) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY)
        return fsh_error_set(error, FSH_ERR_SYSTEM,
                             "%s: its %" PRIu64
                             " bytes cannot be locked in memory: this user may lock %" PRIu64
                             " bytes (ulimit -l); raise that, or let them be in memory without a lock (ram)",
                             split->info->files[number].name, mapping->length, (uint64_t)limit.rlim_cur);
    return fsh_error_system(error, code, "%s: cannot be locked in memory", split->info->files[number].name);
}

FshStatus fsh_split_cache(const FshSplit *split, FshCache cache, int jobs, FshError *error)
{
    const struct FshSplitFiles *files = split->files;
    uint64_t items = 0;
    if (cache == FSH_CACHE_NONE)
        return FSH_OK;
    if (fsh_container_has(files->manifest->container, FSH_HAS_FILES))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "files that nobody has packed are not held in memory; pack them first");
    for (size_t i = 0; i < files->count; i++) {
        for (size_t j = 0; j < fsh_split_file_mapping_count(&files->files[i]); j++) {
            const FileMapping *mapping = fsh_split_file_mapping(&files->files[i], j);
            items += chunk_count(mapping);
#ifdef MADV_HUGEPAGE
            /* A wish: tmpfs mounted with huge=advise fulfils it, and file systems with large folios need
             * none. */
            if (mapping->length)
                (void)madvise((void *)mapping->bytes, (size_t)mapping->length, MADV_HUGEPAGE);
#endif
        }
    }
    FshStatus status = pool_run(jobs, items, populate_chunk, (void *)split, error);
    for (size_t i = 0; i < files->count && !status && cache == FSH_CACHE_LOCK; i++) {
        for (size_t j = 0; j < fsh_split_file_mapping_count(&files->files[i]) && !status; j++) {
            status = lock_mapping(split, i, fsh_split_file_mapping(&files->files[i], j), error);
        }
    }
    return status;
}

/* ---- the opposite ---- */

void fsh_split_file_release(const SplitFile *file)
{
    for (size_t i = 0; i < fsh_split_file_mapping_count(file); i++) {
        const FileMapping *mapping = fsh_split_file_mapping(file, i);
        if (mapping->length)
            (void)madvise((void *)mapping->bytes, (size_t)mapping->length, MADV_DONTNEED);
    }
}

static void drop_file(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    (void)fdatasync(file); /* what is not on the disk yet cannot be dropped */
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    (void)close(file);
}

void fsh_split_drop(const FshSplit *split)
{
    const char *folder = split->files->folder;
    for (size_t i = 0; i < split->files->count; i++) {
        char path[PATH_MAX];
        struct stat status;
        int length =
            snprintf(path, sizeof path, "%s%s%s", folder, folder[0] ? "/" : "", split->info->files[i].name);
        fsh_split_file_release(&split->files->files[i]);
        if (length < 0 || (size_t)length >= sizeof path || stat(path, &status))
            continue;
        if (S_ISDIR(status.st_mode)) /* an LMDB */
            (void)snprintf(path + length, sizeof path - (size_t)length, "/" LMDB_DATA_NAME);
        drop_file(path);
    }
}

/* ---- how much is there ---- */

enum { PAGES_AT_A_TIME = 1 << 16 };

/* Adds what is in memory of one file. states has room for PAGES_AT_A_TIME. */
static FshStatus count_resident(const FileMapping *mapping, unsigned char *states, uint64_t *bytes,
                                FshError *error)
{
    size_t page = page_bytes();
    for (uint64_t offset = 0; offset < mapping->length;) {
        uint64_t left = mapping->length - offset;
        size_t length = left < (uint64_t)page * PAGES_AT_A_TIME ? (size_t)left : page * PAGES_AT_A_TIME;
        if (mincore((void *)(mapping->bytes + offset), length, states))
            return fsh_error_system(error, errno, "cannot ask how much is in memory");
        for (size_t at = 0; at < length; at += page) {
            if (states[at / page] & 1)
                *bytes += length - at < page ? length - at : page;
        }
        offset += length;
    }
    return FSH_OK;
}

FshStatus fsh_split_residency(const FshSplit *split, FshResidency *residency, FshError *error)
{
    *residency = (FshResidency){.known = true};
    unsigned char *states = malloc(PAGES_AT_A_TIME);
    if (!states)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < split->files->count && !status; i++) {
        const SplitFile *file = &split->files->files[i];
        for (size_t j = 0; j < fsh_split_file_mapping_count(file) && !status; j++) {
            const FileMapping *mapping = fsh_split_file_mapping(file, j);
            residency->bytes += mapping->length;
            residency->known &= mapping->ours || mapping->length == 0;
            status = count_resident(mapping, states, &residency->resident_bytes, error);
        }
    }
    free(states);
    return status;
}
