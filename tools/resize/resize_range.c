#include "tools/resize/resize_range.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "common/pool.h"
#include "tools/resize/resize_pairs.h"

enum { SLOTS_PER_JOB = 32 };

typedef struct Sizing {
    ResizeSource *source;
    const char *root;
    PartScan scan;
} Sizing;

typedef struct SizingSlot {
    ResizeItem item;
    uint64_t bytes;
} SizingSlot;

static FshStatus take_to_size(uint64_t index, void *memory, bool *end_ret, void *context, FshError *error)
{
    Sizing *sizing = context;
    (void)index;
    return resize_source_next(sizing->source, &((SizingSlot *)memory)->item, end_ret, error);
}

/* What cannot be read fails later, by name. */
static uint64_t file_bytes(const char *root, const char *path)
{
    char whole[PATH_MAX];
    struct stat status;
    return !file_join(whole, sizeof whole, root, path, NULL) && stat(whole, &status) == 0
               ? (uint64_t)status.st_size
               : 0;
}

/* A pair is done where its first side stands, so that is where it weighs. */
static uint64_t pair_bytes(const char *root, const ResizeItem *item)
{
    char partner[PATH_MAX];
    if (item->is_second_side)
        return 0;
    const bool is_whole = pair_find_partner(root, item, partner, NULL) == FSH_OK;
    return file_bytes(root, item->path) + (is_whole ? file_bytes(root, partner) : 0);
}

static FshStatus size_item(uint64_t index, int thread, void *memory, void *context, FshError *error)
{
    const Sizing *sizing = context;
    SizingSlot *slot = memory;
    const ResizeItem *item = &slot->item;
    (void)index, (void)thread, (void)error;
    slot->bytes = item->bytes;
    if (!item->in_tar && !item->reason[0])
        slot->bytes =
            item->partner[0] ? pair_bytes(sizing->root, item) : file_bytes(sizing->root, item->path);
    return FSH_OK;
}

static FshStatus add_size(uint64_t index, void *memory, void *context, FshError *error)
{
    (void)index, (void)error;
    part_scan_add(&((Sizing *)context)->scan, ((SizingSlot *)memory)->bytes);
    return FSH_OK;
}

FshStatus resize_range_find(const ResizeOptions *options, ResizeRange *range, FshError *error)
{
    Sizing *sizing = malloc(sizeof *sizing); /* too large for a stack */
    if (!sizing)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the sizes of the parts");
    sizing->source = NULL;
    sizing->root = options->source.path;
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
