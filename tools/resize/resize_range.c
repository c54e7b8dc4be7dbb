#include "tools/resize/resize_range.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "common/pool.h"

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

static FshStatus size_item(uint64_t index, int thread, void *memory, void *context, FshError *error)
{
    const Sizing *sizing = context;
    SizingSlot *slot = memory;
    char path[PATH_MAX];
    struct stat status;
    (void)index, (void)thread, (void)error;
    slot->bytes = slot->item.bytes;
    /* what cannot be read fails later, by name */
    if (!slot->item.in_tar && !slot->item.reason[0] &&
        !file_join(path, sizeof path, sizing->root, slot->item.path, NULL) && stat(path, &status) == 0)
        slot->bytes = (uint64_t)status.st_size;
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
