#include "trainer/data/set_order.h"

#include <math.h>
#include <stdlib.h>

uint64_t set_first(const FshSplit *split, size_t set)
{
    return set ? fsh_split_member_end(split, set - 1) : 0;
}

uint64_t set_samples(const FshSplit *split, size_t set)
{
    return fsh_split_member_end(split, set) - set_first(split, set);
}

uint64_t set_draws(double weight, uint64_t samples)
{
    const double wanted = floor(weight * (double)samples + 0.5);
    return !samples ? 0 : wanted < 1 ? 1 : (uint64_t)wanted;
}

uint64_t set_order_places(const FshSplit *split, const double *weights)
{
    uint64_t places = 0;
    for (size_t i = 0; weights && i < fsh_member_count(split->dataset); i++)
        places += set_draws(weights[i], set_samples(split, i));
    return weights ? places : split->sample_count;
}

static uint64_t steps_of(uint64_t samples, uint64_t total_batch)
{
    return samples / total_batch + (samples % total_batch != 0);
}

uint64_t set_order_steps(const FshSplit *split, uint64_t total_batch)
{
    uint64_t steps = 0;
    for (size_t i = 0; i < fsh_member_count(split->dataset); i++)
        steps += steps_of(set_samples(split, i), total_batch);
    return steps;
}

/* Makes an order in which the sets have no places yet. */
static FshStatus make(SetOrder *order, const FshSplit *split, FshError *error)
{
    const size_t count = fsh_member_count(split->dataset);
    *order = (SetOrder){.count = count,
                        .firsts = calloc(count + 1, sizeof *order->firsts),
                        .places = calloc(count + 1, sizeof *order->places)};
    if (!order->firsts || !order->places) {
        set_order_free(order);
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the order of %zu sets", count);
    }
    for (size_t i = 0; i < count; i++)
        order->firsts[i + 1] = fsh_split_member_end(split, i);
    return FSH_OK;
}

FshStatus set_order_weighted(SetOrder *order, const FshSplit *split, const double *weights, FshError *error)
{
    FshStatus status = make(order, split, error);
    for (size_t i = 0; i < order->count && !status; i++)
        order->places[i + 1] = order->places[i] + set_draws(weights[i], set_samples(split, i));
    return status;
}

FshStatus set_order_apart(SetOrder *order, const FshSplit *split, uint64_t total_batch, FshError *error)
{
    FshStatus status = make(order, split, error);
    for (size_t i = 0; i < order->count && !status; i++)
        order->places[i + 1] = order->places[i] + total_batch * steps_of(set_samples(split, i), total_batch);
    return status;
}

void set_order_free(SetOrder *order)
{
    free(order->firsts);
    free(order->places);
    *order = (SetOrder){0};
}

size_t set_order_find(const SetOrder *order, uint64_t place)
{
    size_t set = 0;
    while (set + 1 < order->count && place >= order->places[set + 1])
        set++;
    return set;
}
