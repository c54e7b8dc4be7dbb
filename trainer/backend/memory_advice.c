#include "trainer/backend/memory_advice.h"

#include <stdio.h>

FshStatus memory_advise(const char *advice, FshError *error)
{
    fsh_error_advise(error, "%s", advice);
    return FSH_ERR_MEMORY;
}

FshStatus memory_advise_batch(int64_t batch, const BatchRoom *room, FshError *error)
{
    static const struct {
        const char *smaller, *further;
    } ways[] = {
        [BATCHES_OF_ALL] = {"batch", ""},
        [BATCHES_OF_TRAINING] = {"--batch-size", "; --grad-accum-steps makes an update of several batches"},
        [BATCHES_OF_EVALUATION] = {"--val-batch-size", ""},
    };
    char advice[160];
    if (batch < 2 || room->needed_bytes == 0)
        return FSH_ERR_MEMORY;
    const double share = ((double)room->free_bytes + (double)room->held_bytes) / (double)room->needed_bytes;
    /* It did not fit, whatever the numbers say: memory comes in pieces. */
    const int64_t fits = share < 1 ? (int64_t)((double)batch * share) : batch - 1;
    if (fits < 1)
        return memory_advise("a batch of 1 does not fit either: use smaller images", error);
    (void)snprintf(advice, sizeof advice, "use a smaller %s: of %lld samples, about %lld fit%s",
                   ways[room->use].smaller, (long long)batch, (long long)fits, ways[room->use].further);
    return memory_advise(advice, error);
}

BatchUse memory_batch_use(const Graph *graph)
{
    for (size_t t = 0; t < graph_tensor_count(graph); t++)
        if (graph_tensor(graph, (TensorId)t)->role == TENSOR_GRADIENT)
            return BATCHES_OF_TRAINING;
    return BATCHES_OF_EVALUATION;
}

int64_t memory_batch_of(const Graph *graph)
{
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role == TENSOR_INPUT && tensor->rank > 1)
            return tensor->shape[0];
    }
    return 0;
}
