#include "trainer/data/class_order.h"

#include <stdlib.h>

/* Sets starts[c] to where class c begins, drops classes without samples, and notes in places[c] which class c
 * has become. starts: [classes + 1], holding the number of samples of class c at c. */
static void find_starts(ClassOrder *order, uint64_t classes, uint64_t *places)
{
    uint64_t begin = 0;
    for (uint64_t c = 0; c < classes; c++) {
        const uint64_t count = order->starts[c];
        places[c] = order->class_count;
        order->starts[order->class_count] = begin;
        order->class_count += count > 0;
        begin += count;
    }
    order->starts[order->class_count] = begin;
}

FshStatus class_order_of_labels(ClassOrder *order, const int64_t *labels, uint64_t count, FshError *error)
{
    uint64_t classes = 0;
    *order = (ClassOrder){0};
    for (uint64_t i = 0; i < count; i++)
        classes = (uint64_t)labels[i] >= classes ? (uint64_t)labels[i] + 1 : classes;
    order->starts = calloc(classes + 1, sizeof *order->starts);
    order->samples = calloc(count + 1, sizeof *order->samples);
    uint64_t *places = calloc(classes + 1, sizeof *places), *next = calloc(classes + 1, sizeof *next);
    const bool made = order->starts && order->samples && places && next;
    for (uint64_t i = 0; made && i < count; i++)
        order->starts[labels[i]]++;
    if (made)
        find_starts(order, classes, places);
    for (uint64_t i = 0; made && i < count; i++) {
        const uint64_t place = places[labels[i]];
        order->samples[order->starts[place] + next[place]++] = i;
    }
    free(places);
    free(next);
    if (made)
        return FSH_OK;
    class_order_free(order);
    return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the classes of %llu samples",
                         (unsigned long long)count);
}

FshStatus class_order_make(ClassOrder *order, const FshSplit *split, const SampleLabels *own, FshError *error)
{
    const uint64_t count = split->sample_count;
    if (own)
        return class_order_of_labels(order, own->classes, count, error);
    *order = (ClassOrder){0};
    int64_t *labels = calloc(count + 1, sizeof *labels);
    if (!labels)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the labels of %llu samples",
                             (unsigned long long)count);
    for (uint64_t i = 0; i < count; i++)
        labels[i] = fsh_sample_label(split, i);
    FshStatus status = class_order_of_labels(order, labels, count, error);
    free(labels);
    return status;
}

void class_order_free(ClassOrder *order)
{
    free(order->starts);
    free(order->samples);
    *order = (ClassOrder){0};
}
