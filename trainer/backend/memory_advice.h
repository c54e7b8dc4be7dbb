/* memory_advice.h - advice for failures for want of memory, put after the message that says what was asked
 * for and what is free. Names no device.
 *
 * Threads: no state. */
#ifndef FSHARD_TRAINER_BACKEND_MEMORY_ADVICE_H
#define FSHARD_TRAINER_BACKEND_MEMORY_ADVICE_H

#include "trainer/graph/graph.h"

/* Appends "; ADVICE" to the message. error NULL is fine. Returns FSH_ERR_MEMORY, as all here. */
FshStatus memory_advise(const char *advice, FshError *error);

/* Whose batches do not fit: which option makes them smaller. */
typedef enum BatchUse { BATCHES_OF_ALL, BATCHES_OF_TRAINING, BATCHES_OF_EVALUATION } BatchUse;
/* Returns that of the graph: training where it has gradients. */
BatchUse memory_batch_use(const Graph *graph);

/* Memory that grows with the batch, of the device or of the host. */
typedef struct BatchRoom {
    BatchUse use;
    uint64_t needed_bytes; /* of this batch, in all, as far as is known */
    uint64_t held_bytes;   /* of them, taken already: a smaller batch would take less */
    uint64_t free_bytes;
} BatchRoom;
/* Appends "; use a smaller batch: of 512 samples, about 300 fit", with the options of that use. batch < 2:
 * nothing. */
FshStatus memory_advise_batch(int64_t batch, const BatchRoom *room, FshError *error);

/* Returns the number of images of a batch; 0: the graph takes none. */
int64_t memory_batch_of(const Graph *graph);

#endif
