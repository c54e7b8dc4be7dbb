/* The batch that a GPU takes by default, held against steps that were measured on an H200
 * (docs/measurements/2026-11-23-no-knobs.md). */
#include "trainer/plan/batch_choice.h"

#include <math.h>

#include "tests/support/support.h"
#include "tests/trainer/model_value.h"

static Graph *training_graph(const char *name, int64_t size, int64_t classes, int64_t batch, int64_t depth)
{
    const Model *model = model_find(name);
    ModelSpec spec = {.batch = batch,
                      .height = size,
                      .width = size,
                      .channels = size == 28 ? 1 : 3,
                      .classes = classes,
                      .training = true};
    const ModelRecipe recipe = {.deviation = {1, 1, 1, 1},
                                .loss = LOSS_CROSS_ENTROPY,
                                .compute_type = model->batch_norm ? DATA_F16 : DATA_BF16,
                                .optimizer = {.kind = OPTIMIZER_SGD,
                                              .momentum = 0.9,
                                              .nesterov = true,
                                              .weight_decay = 1e-4,
                                              .loss_scaling = model->batch_norm,
                                              .scale_init = 65536,
                                              .scale_growth = 2,
                                              .scale_backoff = 0.5,
                                              .scale_interval = 2000}};
    Graph *graph = NULL;
    FshError error = {0};
    if (depth)
        model_value(&spec.options, "depth")->integer = depth;
    assert_ok(model_graph(model, &spec, &recipe, &graph, &error), &error);
    return graph;
}

static BatchCost cost_of(const char *name, int64_t size, int64_t classes, int64_t depth)
{
    Graph *few = training_graph(name, size, classes, 64, depth),
          *many = training_graph(name, size, classes, 256, depth);
    const BatchCost cost = batch_cost(few, 64, many, 256);
    graph_free(&few);
    graph_free(&many);
    return cost;
}

/* Images a second of two batches, and what 90 % of the best rate takes by the line through both. */
static const struct {
    const char *model;
    int64_t size, classes, depth;
    double few, few_rate, many, many_rate;
    uint64_t chosen;
} measured[] = {
    {"resnet50", 160, 1000, 0, 64, 13101, 512, 17394, 256},
    {"resnet18", 160, 1000, 0, 64, 33890, 1024, 54551, 512},
    {"pyramidnet", 32, 10, 110, 64, 6136, 768, 9442, 512},
};

TEST(test_the_batch_reaches_nine_tenths_of_the_measured_rate)
{
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const double few = measured[i].few / measured[i].few_rate,
                     many = measured[i].many / measured[i].many_rate,
                     image = (many - few) / (measured[i].many - measured[i].few);
        const BatchCost line = {.fixed = few - measured[i].few * image, .image = image},
                        cost = cost_of(measured[i].model, measured[i].size, measured[i].classes,
                                       measured[i].depth);
        assert_int_equal(batch_choose(&cost), measured[i].chosen);
        if (batch_rate_share(&line, measured[i].chosen) < 0.9 ||
            batch_rate_share(&line, measured[i].chosen / 2) > 0.9)
            fail_msg("%s: %.1f %% with %d images", measured[i].model,
                     100 * batch_rate_share(&line, measured[i].chosen), (int)measured[i].chosen);
        assert_true(fabs(cost.fixed / line.fixed - 1) < 0.35);
    }
}

TEST(test_smaller_images_take_larger_batches)
{
    const BatchCost large = cost_of("resnet18", 224, 1000, 0), small = cost_of("resnet18", 64, 200, 0),
                    tiny = cost_of("conv8", 28, 10, 0);
    assert_true(batch_choose(&large) < batch_choose(&small));
    assert_int_equal(batch_choose(&tiny), BATCH_CHOSEN_MOST);
}

TEST(test_the_smallest_power_of_two_that_is_enough_is_taken)
{
    const BatchCost cost = {.fixed = 1, .image = 1}, none = {.fixed = 0, .image = 1};
    assert_int_equal(batch_choose(&cost), 16);
    assert_true(batch_rate_share(&cost, 9) == 0.9);
    assert_int_equal(batch_choose(&none), 1);
}
