#include "trainer/plan/batch_choice.h"

#include <math.h>

/* Of an H200, as its kernels reach them (docs/measurements/2026-11-23-no-knobs.md). */
static const double start_seconds = 5e-6; /* of a node */
static const double bytes_per_second = 4.0e12, flops_per_second = 600e12, reached = 0.8;
static const double wanted_share = 0.9;

/* Returns the seconds of a step. */
static double step_seconds(const Graph *graph)
{
    double seconds = 0;
    for (size_t i = 0; i < graph_node_count(graph); i++) {
        const double bytes = (double)graph_node_bytes(graph, (NodeId)i),
                     flops = (double)graph_node_flops(graph, (NodeId)i);
        seconds += start_seconds + fmax(bytes / bytes_per_second, flops / flops_per_second) / reached;
    }
    return seconds;
}

BatchCost batch_cost(const Graph *of_few, uint64_t few, const Graph *of_many, uint64_t many)
{
    const double with_few = step_seconds(of_few), with_many = step_seconds(of_many);
    const double image = (with_many - with_few) / (double)(many - few);
    return (BatchCost){.fixed = fmax(0, with_few - image * (double)few), .image = image};
}

double batch_rate_share(const BatchCost *cost, uint64_t batch)
{
    const double grows = cost->image * (double)batch;
    return grows / (cost->fixed + grows);
}

uint64_t batch_choose(const BatchCost *cost)
{
    uint64_t batch = 1;
    while (batch < BATCH_CHOSEN_MOST && batch_rate_share(cost, batch) < wanted_share)
        batch *= 2;
    return batch;
}
