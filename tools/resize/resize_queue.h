/* resize_queue.h - the source's items in their order, some of them found before their turn, so that their
 * files can be asked for (tools/job/read_ahead.h).
 *
 *   ResizeQueue queue;
 *   FshStatus status = resize_queue_init(&queue, source, places, &error);
 *   while (!status && !(status = resize_queue_next(&queue, &item, &end, &error)) && !end)
 *       … item; resize_queue_ahead(&queue), which comes `places` later …
 *   resize_queue_free(&queue);                                        // after a failure, too
 *
 * What the source says of an item it says in the item's turn, failures and its end included.
 *
 * Threads: one queue, and its source, belong to one thread at a time. */
#ifndef FSHARD_RESIZE_QUEUE_H
#define FSHARD_RESIZE_QUEUE_H

#include "tools/resize/resize_source.h"

/* An item, and how far the source was when it had found it. */
typedef struct ResizePlace {
    ResizeItem item;
    uint64_t position, extent; /* resize_source_position */
} ResizePlace;

/* With 0 places an item is found in its turn, and is what resize_source_load loads. */
typedef struct ResizeQueue {
    ResizeSource *source; /* not owned */
    size_t places;
    ResizePlace *ring;         /* [places + 1]; owned; NULL without places */
    uint64_t position, extent; /* of the item that was given last */
    size_t first, count;       /* found, and not given yet */
    bool ended;                /* the source has no more, or failed: status, failure */
    FshStatus status;
    FshError failure;
} ResizeQueue;

/* Begins with a source of which nothing was taken. FSH_ERR_MEMORY. */
FshStatus resize_queue_init(ResizeQueue *queue, ResizeSource *source, size_t places, FshError *error);
/* Does what resize_source_next does, *end_ret included. */
FshStatus resize_queue_next(ResizeQueue *queue, ResizeItem *item, bool *end_ret, FshError *error);
/* Returns the item that comes `places` after the one that was given last, until the next call; NULL: there is
 * none, or there are no places. */
const ResizeItem *resize_queue_ahead(const ResizeQueue *queue);
/* Tells how far the source had come with the item that was given last, as resize_source_position does:
 * *position_ret out of *extent_ret. */
void resize_queue_position(const ResizeQueue *queue, uint64_t *position_ret, uint64_t *extent_ret);
/* Frees what it holds; a zeroed queue is fine. */
void resize_queue_free(ResizeQueue *queue);

#endif
