/* Which steps may run beside the others: that none of them meets another in memory, and when each is waited
 * for. */
#include "trainer/graph/lanes.h"

#include <string.h>

#include "tests/support/support.h"
#include "trainer/graph/memory_plan.h"
#include "trainer/models/models.h"

/* freeze: as --freeze, with norms of several ranks; NULL: nothing is. */
static Graph *graph_of_type(const char *name, int64_t batch, int64_t size, DataType type, const char *freeze)
{
    const Model *model = model_find(name);
    const ModelSpec spec = {
        .batch = batch, .height = size, .width = size, .channels = 3, .classes = 10, .training = true};
    const ModelRecipe recipe = {.mean = {0.5, 0.5, 0.5},
                                .deviation = {0.25, 0.25, 0.25},
                                .compute_type = type,
                                .sync_norms = freeze != NULL,
                                .rules.freeze = freeze,
                                .loss = model->task == TASK_RESTORATION ? LOSS_PSNR : LOSS_CROSS_ENTROPY,
                                .fusions = FUSE_ALL | FUSE_CONV_STATISTICS | FUSE_PAD_ADD |
                                           FUSE_IMAGES_AGAIN | FUSE_LINEAR_SCALE,
                                .optimizer = {.momentum = 0.9}};
    Graph *graph = NULL;
    FshError error = {0};
    if (model_graph(model, &spec, &recipe, &graph, &error))
        fail_msg("%s", error.message);
    return graph;
}

static Graph *training_graph(const char *name, int64_t batch, int64_t size)
{
    return graph_of_type(name, batch, size, DATA_F16, NULL);
}

typedef struct Span {
    uint64_t begin, end;
} Span;

/* Returns the bytes of the arena where a tensor lies; none of one that lies elsewhere. */
static Span span_of(const Graph *graph, const MemoryPlan *plan, TensorId id)
{
    if (id == TENSOR_NONE || plan->offset_bytes[id] == UINT64_MAX)
        return (Span){0, 0};
    return (Span){plan->offset_bytes[id], plan->offset_bytes[id] + memory_packed_bytes(graph, id, NULL)};
}

/* Returns whether `writer` writes bytes that `other` reads or writes. */
static bool disturbs(const Graph *graph, const MemoryPlan *plan, const Node *writer, const Node *other)
{
    for (int k = 0; k < writer->output_count; k++) {
        const Span written = span_of(graph, plan, writer->outputs[k]);
        for (int i = 0; i < other->input_count + other->output_count; i++) {
            const Span touched =
                span_of(graph, plan,
                        i < other->input_count ? other->inputs[i] : other->outputs[i - other->input_count]);
            if (written.begin < touched.end && touched.begin < written.end)
                return true;
        }
    }
    return false;
}

/* Returns whether `reader` reads what `maker` makes, in the arena or elsewhere. */
static bool reads(const Node *reader, const Node *maker)
{
    for (int i = 0; i < reader->input_count; i++)
        for (int k = 0; k < maker->output_count; k++)
            if (reader->inputs[i] != TENSOR_NONE && reader->inputs[i] == maker->outputs[k])
                return true;
    return false;
}

/* Holds every step beside against those of the main lane that may run before it has ended. Which these are is
 * taken from the waits, not from `ends`. */
static void check_lanes(const char *name, int64_t size, DataType type, size_t window)
{
    Graph *graph = graph_of_type(name, 4, size, type, NULL);
    const size_t node_count = graph_node_count(graph);
    LanePlan lanes;
    MemoryPlan plan;
    FshError error = {0};
    assert_int_equal(lane_plan_make(graph, window, &lanes, &error), FSH_OK);
    assert_int_equal(memory_plan_make(graph, memory_packed_bytes, NULL, lanes.ends, &plan, &error), FSH_OK);
    assert_true(lanes.beside_count > 5);
    size_t scaled = 0;
    for (size_t b = 0; b < node_count; b++) {
        if (graph_node(graph, (NodeId)b)->op == OP_SCALED_LINEAR_BACKWARD_WEIGHT) {
            assert_true(lanes.beside[b]);
            scaled++;
        }
        if (!lanes.beside[b])
            continue;
        size_t passed = 0; /* steps of the main lane that may run while this one does */
        bool waited = false;
        for (size_t m = b + 1; m < node_count && !waited; m++) {
            const Node *beside = graph_node(graph, (NodeId)b), *main = graph_node(graph, (NodeId)m);
            if (lanes.beside[m])
                continue;
            waited = lanes.waits[m] > b;
            if (waited)
                break;
            passed++;
            if (disturbs(graph, &plan, beside, main) || disturbs(graph, &plan, main, beside) ||
                reads(main, beside))
                fail_msg("%s, window %zu: %s (%zu, beside) and %s (%zu) may run at the same time", name,
                         window, beside->name, b, main->name, m);
        }
        assert_true(waited);
        assert_true(passed <= 2 * window);
    }
    assert_true((scaled > 0) == (type == DATA_BF16));
    memory_plan_free(&plan);
    lane_plan_free(&lanes);
    graph_free(&graph);
}

TEST(test_steps_that_may_run_together_do_not_meet_in_memory)
{
    const struct {
        const char *name;
        int64_t size;
        DataType type;
    } cases[] = {{"resnet18", 64, DATA_F16},
                 {"resnet50", 64, DATA_F16},
                 {"convnext_atto", 64, DATA_F16},
                 {"convnext_atto", 64, DATA_BF16}, /* its layer scales are part of the weights */
                 {"vit_tiny_patch16", 64, DATA_F16}};
    const size_t windows[] = {1, 2, 7, 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
            check_lanes(cases[i].name, cases[i].size, cases[i].type, windows[w]);
}

/* In front of frozen layers a norm makes gradients of its own parameters alone, but exchanges sums with other
 * ranks. */
TEST(test_norms_are_never_beside)
{
    Graph *graph = graph_of_type("resnet18", 4, 64, DATA_F16,
                                 "conv1.weight,bn1.*,layer1.*,*.conv?.weight,*.downsample.0.weight");
    LanePlan lanes;
    FshError error = {0};
    bool alone = false; /* there is such a norm */
    assert_int_equal(lane_plan_make(graph, 4, &lanes, &error), FSH_OK);
    for (size_t n = 0; n < graph_node_count(graph); n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        if (node->op != OP_BATCH_NORM_BACKWARD)
            continue;
        alone |= node->outputs[NORM_BACK_DX] == TENSOR_NONE;
        assert_false(lanes.beside[n]);
    }
    assert_true(alone);
    lane_plan_free(&lanes);
    graph_free(&graph);
}

TEST(test_without_a_window_all_steps_are_of_one_lane)
{
    Graph *graph = training_graph("resnet18", 4, 64);
    LanePlan lanes;
    MemoryPlan with, without;
    FshError error = {0};
    assert_int_equal(lane_plan_make(graph, 0, &lanes, &error), FSH_OK);
    assert_int_equal(lanes.beside_count, 0);
    assert_int_equal(memory_plan_make(graph, memory_packed_bytes, NULL, lanes.ends, &with, &error), FSH_OK);
    assert_int_equal(memory_plan_make(graph, memory_packed_bytes, NULL, NULL, &without, &error), FSH_OK);
    assert_int_equal(with.arena_bytes, without.arena_bytes);
    memory_plan_free(&with);
    memory_plan_free(&without);
    lane_plan_free(&lanes);
    graph_free(&graph);
}

TEST(test_lanes_are_not_taken_where_they_cost_much_memory)
{
    const struct {
        const char *name;
        int64_t batch, size;
        bool pays;
    } cases[] = {
        {"resnet50", 512, 160, true}, {"airbench94", 2000, 32, true}, {"airbench94", 20000, 32, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Graph *graph = training_graph(cases[i].name, cases[i].batch, cases[i].size);
        LanePlan lanes;
        MemoryPlan memory, alone;
        FshError error = {0};
        assert_int_equal(lane_plan_choose(graph, true, memory_packed_bytes, NULL, &lanes, &memory, &error),
                         FSH_OK);
        assert_int_equal(memory_plan_make(graph, memory_packed_bytes, NULL, NULL, &alone, &error), FSH_OK);
        if ((lanes.beside_count > 0) != cases[i].pays)
            fail_msg("%s: %zu steps beside, %llu bytes where %llu are enough", cases[i].name,
                     lanes.beside_count, (unsigned long long)memory.arena_bytes,
                     (unsigned long long)alone.arena_bytes);
        if (!cases[i].pays)
            assert_int_equal(memory.arena_bytes, alone.arena_bytes);
        memory_plan_free(&memory);
        memory_plan_free(&alone);
        lane_plan_free(&lanes);
        graph_free(&graph);
    }
}

TEST(test_weight_gradients_lie_beside_and_the_update_waits_for_all)
{
    Graph *graph = training_graph("resnet18", 4, 64);
    const size_t node_count = graph_node_count(graph);
    LanePlan lanes;
    FshError error = {0};
    assert_int_equal(lane_plan_make(graph, 4, &lanes, &error), FSH_OK);
    for (size_t n = 0; n < node_count; n++) {
        const Node *node = graph_node(graph, (NodeId)n);
        const bool of_weight = node->op == OP_CONV2D_BACKWARD_WEIGHT || node->op == OP_LINEAR_BACKWARD_WEIGHT;
        const bool is_last = strcmp(node->name, "conv1") == 0; /* only the update comes after it */
        if (lanes.beside[n] != (of_weight && !is_last))
            fail_msg("%s, %s: %sbeside", node->name, op_name(node->op), lanes.beside[n] ? "" : "not ");
    }
    assert_int_equal(graph_node(graph, (NodeId)(node_count - 1))->op, OP_UPDATE);
    assert_int_equal(lanes.waits[node_count - 1], node_count - 1);
    lane_plan_free(&lanes);
    graph_free(&graph);
}
