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
#include "formats/container.h"
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

/* ---- the parts of a split ---- */

/* A part of a mapping that the split's samples lie in. */
typedef struct Part {
    const FileMapping *mapping;
    size_t file; /* of the split */
    uint64_t offset, bytes;
} Part;

typedef struct Parts {
    Buffer list; /* Part each */
    size_t count;
} Parts;

/* One call for each: long enough to keep the disk busy, short enough to share out. */
enum { PART_BYTES_MAX = 32 << 20 };

static Part *part_at(const Parts *parts, size_t index)
{
    return (Part *)(void *)parts->list.bytes + index;
}

static FshStatus add_part(Parts *parts, const Part *part, FshError *error)
{
    FshStatus status = buffer_append(&parts->list, part, sizeof *part, error);
    parts->count += !status;
    return status;
}

/* Adds all of a mapping. */
static FshStatus add_mapping(Parts *parts, const FileMapping *mapping, size_t file, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t at = 0; at < mapping->length && !status; at += PART_BYTES_MAX) {
        const uint64_t left = mapping->length - at;
        const Part part = {mapping, file, at, left < PART_BYTES_MAX ? left : PART_BYTES_MAX};
        status = add_part(parts, &part, error);
    }
    return status;
}

/* Adds what is read of a record, to the part before where both are neighbours. */
static FshStatus add_record(Parts *parts, const SplitFile *file, size_t number, uint64_t record,
                            FshError *error)
{
    Stretch stretches[STRETCHES_MAX];
    const size_t count = file->container->stretches(file, record, stretches);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < count && !status; i++) {
        Part *last = parts->count ? part_at(parts, parts->count - 1) : NULL;
        const Part part = {stretches[i].mapping, number, stretches[i].offset, stretches[i].bytes};
        if (last && last->mapping == part.mapping && last->offset + last->bytes == part.offset &&
            last->bytes < PART_BYTES_MAX)
            last->bytes += part.bytes;
        else
            status = add_part(parts, &part, error);
    }
    return status;
}

/* Lists the parts: all of the files, or the records of the chosen samples. The caller frees the list. */
static FshStatus list_parts(const FshSplit *split, Parts *parts, FshError *error)
{
    const struct FshSplitFiles *files = split->files;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; files->chosen && i < split->sample_count && !status; i++) {
        uint64_t record = 0;
        const SplitFile *file = fsh_split_find(split, i, &record);
        status = add_record(parts, file, (size_t)(file - files->files), record, error);
    }
    for (size_t i = 0; !files->chosen && i < files->count && !status; i++)
        for (size_t j = 0; j < fsh_split_file_mapping_count(&files->files[i]) && !status; j++)
            status = add_mapping(parts, fsh_split_file_mapping(&files->files[i], j), i, error);
    return status;
}

/* ---- a split ---- */

/* What the threads that populate share. */
typedef struct Populating {
    const FshSplit *split;
    const Parts *parts;
} Populating;

static FshStatus populate_part(uint64_t item, int thread, void *context, FshError *error)
{
    (void)thread;
    const Populating *populating = context;
    const Part *part = part_at(populating->parts, (size_t)item);
    FshStatus status = fsh_populate(part->mapping, part->offset, part->bytes, error);
    if (status)
        (void)fsh_error_prepend(error, "%s", populating->split->info->files[part->file].name);
    return status;
}

static FshStatus lock_part(const FshSplit *split, const Part *part, FshError *error)
{
    const char *name = split->info->files[part->file].name;
    if (part->bytes == 0 || mlock(part->mapping->bytes + part->offset, (size_t)part->bytes) == 0)
        return FSH_OK;
    int code = errno;
    struct rlimit limit;
    if ((code == ENOMEM || code == EPERM) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY)
        return fsh_error_set(error, FSH_ERR_SYSTEM,
                             "%s: its %" PRIu64
                             " bytes cannot be locked in memory: this user may lock %" PRIu64
                             " bytes (ulimit -l); raise that, or let them be in memory without a lock (ram)",
                             name, part->mapping->length, (uint64_t)limit.rlim_cur);
    return fsh_error_system(error, code, "%s: cannot be locked in memory", name);
}

/* Joins neighbours with at most so many bytes between them. */
static void join_parts(Parts *parts, uint64_t gap)
{
    size_t count = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const Part part = *part_at(parts, i);
        Part *last = count ? part_at(parts, count - 1) : NULL;
        const uint64_t end = last ? last->offset + last->bytes : 0;
        if (last && last->mapping == part.mapping && part.offset >= end && part.offset - end <= gap)
            last->bytes = part.offset + part.bytes - last->offset;
        else
            *part_at(parts, count++) = part;
    }
    parts->count = count;
}

/* Locks the parts. The kernel keeps a note of each locked range, of which a process has 65,530: many small
 * parts are locked together with what lies between them. */
static FshStatus lock_parts(const FshSplit *split, Parts *parts, FshError *error)
{
    enum { RANGES_MAX = 16384 };
    FshStatus status = FSH_OK;
    join_parts(parts, 0);
    for (uint64_t gap = page_bytes(); parts->count > RANGES_MAX && gap < UINT64_MAX / 2; gap *= 2)
        join_parts(parts, gap);
    for (size_t i = 0; i < parts->count && !status; i++)
        status = lock_part(split, part_at(parts, i), error);
    return status;
}

#ifdef MADV_HUGEPAGE
/* Wishes for huge pages: tmpfs mounted with huge=advise fulfils it, and file systems with large folios need
 * none. */
static void wish_huge_pages(const SplitFile *file)
{
    for (size_t i = 0; i < fsh_split_file_mapping_count(file); i++) {
        const FileMapping *mapping = fsh_split_file_mapping(file, i);
        if (mapping->length)
            (void)madvise((void *)mapping->bytes, (size_t)mapping->length, MADV_HUGEPAGE);
    }
}
#endif

FshStatus fsh_split_cache(const FshSplit *split, FshCache cache, int jobs, FshError *error)
{
    const struct FshSplitFiles *files = split->files;
    Parts parts = {0};
    if (cache == FSH_CACHE_NONE)
        return FSH_OK;
    if (fsh_container_has(files->manifest->container, FSH_HAS_FILES))
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                             "files that nobody has packed are not held in memory; pack them first");
#ifdef MADV_HUGEPAGE
    for (size_t i = 0; i < files->count && !files->chosen; i++)
        wish_huge_pages(&files->files[i]);
#endif
    FshStatus status = list_parts(split, &parts, error);
    Populating populating = {split, &parts};
    if (!status)
        status = pool_run(jobs, parts.count, populate_part, &populating, error);
    if (!status && cache == FSH_CACHE_LOCK)
        status = lock_parts(split, &parts, error);
    buffer_free(&parts.list);
    return status;
}

/* ---- the opposite ---- */

/* Takes the pages of the file out of this process's memory: the kernel drops no page that somebody has
 * mapped. */
static void release_file(const SplitFile *file)
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
        release_file(&split->files->files[i]);
        if (length < 0 || (size_t)length >= sizeof path || stat(path, &status))
            continue;
        if (S_ISDIR(status.st_mode)) /* an LMDB */
            (void)snprintf(path + length, sizeof path - (size_t)length, "/" LMDB_DATA_NAME);
        drop_file(path);
    }
}

/* ---- how much is there ---- */

enum { PAGES_AT_A_TIME = 1 << 16 };

/* Adds what is in memory of a part. states has room for PAGES_AT_A_TIME. */
static FshStatus count_resident(const Part *part, unsigned char *states, uint64_t *bytes, FshError *error)
{
    const size_t page = page_bytes();
    const uint64_t end = part->offset + part->bytes;
    for (uint64_t at = part->offset - part->offset % page; at < end;) {
        const uint64_t most = (uint64_t)page * PAGES_AT_A_TIME, length = end - at < most ? end - at : most;
        if (mincore((void *)(part->mapping->bytes + at), (size_t)length, states))
            return fsh_error_system(error, errno, "cannot ask how much is in memory");
        for (uint64_t done = 0; done < length; done += page) {
            const uint64_t begins = at + done < part->offset ? part->offset : at + done;
            const uint64_t ends = done + page < length ? at + done + page : at + length;
            if (states[done / page] & 1)
                *bytes += ends - begins;
        }
        at += length;
    }
    return FSH_OK;
}

FshStatus fsh_split_residency(const FshSplit *split, FshResidency *residency, FshError *error)
{
    Parts parts = {0};
    *residency = (FshResidency){.known = true};
    unsigned char *states = malloc(PAGES_AT_A_TIME);
    FshStatus status =
        states ? list_parts(split, &parts, error) : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < parts.count && !status; i++) {
        const Part *part = part_at(&parts, i);
        residency->bytes += part->bytes;
        residency->known &= part->mapping->ours || part->bytes == 0;
        status = count_resident(part, states, &residency->resident_bytes, error);
    }
    buffer_free(&parts.list);
    free(states);
    return status;
}
