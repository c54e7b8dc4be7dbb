#include "tools/resize/resize_range.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/pool.h"

enum { SLOTS_PER_JOB = 32 };

typedef struct Sizing {
    ResizeSource *source;
    const char *root;
    bool skip_unread;
    PartScan scan;
} Sizing;

typedef struct SizingSlot {
    ResizeItem item;
    uint64_t bytes;
    FshError unread; /* why its size, or what lies in it, is not known; status FSH_OK: it is */
} SizingSlot;

static FshStatus take_to_size(uint64_t index, void *memory, bool *end_ret, void *context, FshError *error)
{
    Sizing *sizing = context;
    (void)index;
    return resize_source_next(sizing->source, &((SizingSlot *)memory)->item, end_ret, error);
}

/* Returns a file's size; 0, and why in unread, if the system does not tell it. What is not there fails later,
 * by name. */
static uint64_t file_bytes(const char *root, const char *path, FshError *unread)
{
    char whole[PATH_MAX];
    struct stat status;
    if (file_join(whole, sizeof whole, root, path, NULL))
        return 0;
    if (stat(whole, &status) == 0)
        return (uint64_t)status.st_size;
    if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG && errno != ELOOP)
        (void)fsh_error_system(unread, errno, "%s: cannot be read", path);
    return 0;
}

/* Returns the bytes of a pair where its first side stands, which is where the pair is done; 0 for the second
 * side. */
static uint64_t pair_bytes(const char *root, const ResizeItem *item, FshError *unread)
{
    char partner[PATH_MAX];
    if (item->is_second_side)
        return 0;
    const FshStatus status = resize_source_partner(root, item, partner, unread);
    if (status && status != FSH_ERR_SYSTEM && status != FSH_ERR_MEMORY)
        *unread = (FshError){0}; /* it stays so */
    return file_bytes(root, item->path, unread) + (status ? 0 : file_bytes(root, partner, unread));
}

static FshStatus size_item(uint64_t index, int thread, void *memory, void *context, FshError *error)
{
    const Sizing *sizing = context;
    SizingSlot *slot = memory;
    const ResizeItem *item = &slot->item;
    (void)index, (void)thread, (void)error;
    slot->bytes = item->bytes;
    slot->unread = (FshError){0};
    if (item->is_unread)
        (void)fsh_error_set(&slot->unread, FSH_ERR_SYSTEM, "%s: %s", item->path, item->reason);
    if (!item->in_tar && !item->reason[0])
        slot->bytes = item->partner[0] ? pair_bytes(sizing->root, item, &slot->unread)
                                       : file_bytes(sizing->root, item->path, &slot->unread);
    return FSH_OK;
}

static FshStatus add_size(uint64_t index, void *memory, void *context, FshError *error)
{
    Sizing *sizing = context;
    const SizingSlot *slot = memory;
    (void)index;
    if (slot->unread.status && !sizing->skip_unread)
        return fsh_error_set(error, slot->unread.status,
                             "%.400s; parts are cut by the sizes of all files, so nothing was done "
                             "(--on-error skip goes on without)",
                             slot->unread.message);
    part_scan_add(&sizing->scan, slot->bytes);
    return FSH_OK;
}

FshStatus resize_range_find(const ResizeOptions *options, ResizeRange *range, FshError *error)
{
    Sizing *sizing = malloc(sizeof *sizing); /* too large for a stack */
    if (!sizing)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the sizes of the parts");
    sizing->source = NULL;
    sizing->root = options->source.path;
    sizing->skip_unread = options->skip_unread;
    part_scan_init(&sizing->scan);
    const PoolStream stream = {.take = take_to_size,
                               .work = size_item,
                               .deliver = add_size,
                               .window = (size_t)options->jobs * SLOTS_PER_JOB,
                               .slot_bytes = sizeof(SizingSlot),
                               .context = sizing};
    FshStatus status = resize_source_open(&sizing->source, &options->source, error);
    if (!status)
        status = pool_run_stream(options->jobs, &stream, error);
    resize_source_close(&sizing->source);
    if (!status) {
        part_scan_range(&sizing->scan, options->part, &range->begin, &range->end);
        range->source_count = sizing->scan.count;
        range->source_bytes = sizing->scan.bytes;
    }
    free(sizing);
    return status;
}
