/* class_order.h - the samples of a split by their classes: who they are, and how many.
 *
 *   ClassOrder order;
 *   class_order_make(&order, split, &error);
 *   // sample k of class c: order.samples[order.starts[c] + k]
 *   class_order_free(&order);
 *
 * Eight bytes a sample. Threads: constant once made. */
#ifndef FSHARD_TRAINER_DATA_CLASS_ORDER_H
#define FSHARD_TRAINER_DATA_CLASS_ORDER_H

#include "formats/fshard.h"
#include "trainer/data/sample_labels.h"

typedef struct ClassOrder {
    uint64_t class_count; /* of those that have samples here, ascending */
    uint64_t *starts;     /* [class_count + 1], of a class in samples; the last is their number; owned */
    uint64_t *samples;    /* [starts[class_count]] as stored within a class; owned */
} ClassOrder;

/* Makes the order of a split whose samples all have labels: those of `own` or, where it is NULL, of the
 * records. FSH_ERR_MEMORY; then nothing is held. */
FshStatus class_order_make(ClassOrder *order, const FshSplit *split, const SampleLabels *own,
                           FshError *error);
/* Makes it of count > 0 labels >= 0, that of sample i at labels[i]. Fails likewise. */
FshStatus class_order_of_labels(ClassOrder *order, const int64_t *labels, uint64_t count, FshError *error);
/* Frees the order; zeroed is fine. */
void class_order_free(ClassOrder *order);

#endif
