#include "tools/resize/resize_queue.h"

#include <stdlib.h>

FshStatus resize_queue_init(ResizeQueue *queue, ResizeSource *source, size_t places, FshError *error)
{
    *queue = (ResizeQueue){.source = source, .places = places};
    if (places)
        queue->ring = calloc(places + 1, sizeof *queue->ring);
    return places && !queue->ring
               ? fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the next %zu files", places)
               : FSH_OK;
}

void resize_queue_free(ResizeQueue *queue)
{
    free(queue->ring);
    *queue = (ResizeQueue){0};
}

/* Finds the next items until the ring is full, or the source has no more. */
static void fill(ResizeQueue *queue)
{
    while (!queue->ended && queue->count <= queue->places) {
        ResizePlace *place = &queue->ring[(queue->first + queue->count) % (queue->places + 1)];
        queue->status = resize_source_next(queue->source, &place->item, &queue->ended, &queue->failure);
        resize_source_position(queue->source, &place->position, &place->extent);
        queue->ended = queue->ended || queue->status;
        queue->count += !queue->ended;
    }
}

FshStatus resize_queue_next(ResizeQueue *queue, ResizeItem *item, bool *end_ret, FshError *error)
{
    if (!queue->places)
        return resize_source_next(queue->source, item, end_ret, error);
    fill(queue);
    *end_ret = !queue->count && !queue->status;
    if (!queue->count) {
        if (queue->status && error)
            *error = queue->failure;
        return queue->status;
    }
    const ResizePlace *place = &queue->ring[queue->first];
    const Buffer content = item->content;
    *item = place->item;
    item->content = content;
    queue->position = place->position;
    queue->extent = place->extent;
    queue->first = (queue->first + 1) % (queue->places + 1);
    queue->count--;
    return FSH_OK;
}

const ResizeItem *resize_queue_ahead(const ResizeQueue *queue)
{
    return queue->places && queue->count == queue->places
               ? &queue->ring[(queue->first + queue->count - 1) % (queue->places + 1)].item
               : NULL;
}

void resize_queue_position(const ResizeQueue *queue, uint64_t *position_ret, uint64_t *extent_ret)
{
    *position_ret = queue->position;
    *extent_ret = queue->extent;
    if (!queue->places)
        resize_source_position(queue->source, position_ret, extent_ret);
}
