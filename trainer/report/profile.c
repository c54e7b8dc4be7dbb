#include "trainer/report/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUMMARY_KINDS = 5 };

/* ---- the least that a node must move and compute ---- */

static bool is_narrow(const Tensor *tensor)
{
    return tensor->type == DATA_BF16 || tensor->type == DATA_F16;
}

static bool multiplies_weights(OpKind op)
{
    return op == OP_CONV2D || op == OP_CONV2D_BACKWARD_DATA || op == OP_CONV2D_BACKWARD_WEIGHT ||
           op == OP_LINEAR || op == OP_LINEAR_BACKWARD_DATA || op == OP_LINEAR_BACKWARD_WEIGHT;
}

/* Returns the bytes of a tensor. In a product of narrow activations the weight and its gradient count as
 * narrow too, whatever type the graph gives them. */
static double tensor_bytes(const Graph *graph, const Node *node, TensorId id)
{
    const Tensor *tensor = graph_tensor(graph, id), *first = graph_tensor(graph, node->inputs[0]);
    const bool of_weight = tensor->role == TENSOR_PARAMETER || tensor->role == TENSOR_GRADIENT;
    const DataType type =
        of_weight && multiplies_weights(node->op) && is_narrow(first) ? first->type : tensor->type;
    return (double)tensor_count(tensor) * (double)data_type_bytes(type);
}

/* Returns the bytes of an update: each parameter with a gradient, and its state, read and written; the
 * gradient read. */
static double update_bytes(const Graph *graph)
{
    double bytes = 0;
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const double own = (double)tensor_count(tensor) * (double)data_type_bytes(tensor->type);
        if (tensor->role == TENSOR_OPTIMIZER)
            bytes += 2 * own;
        if (tensor->role == TENSOR_PARAMETER && graph_gradient(graph, (TensorId)t) != TENSOR_NONE)
            bytes += 3 * own;
    }
    return bytes;
}

double profile_node_bytes(const Graph *graph, NodeId id)
{
    const Node *node = graph_node(graph, id);
    double bytes = node->op == OP_UPDATE ? update_bytes(graph) : 0;
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] != TENSOR_NONE)
            bytes += tensor_bytes(graph, node, node->inputs[i]);
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] != TENSOR_NONE)
            bytes += node->input_count
                         ? tensor_bytes(graph, node, node->outputs[i])
                         : (double)tensor_count(graph_tensor(graph, node->outputs[i])) *
                               (double)data_type_bytes(graph_tensor(graph, node->outputs[i])->type);
    return bytes;
}

/* Returns the FLOP of a backward product: each element of dy [.., K] meets the weights of its channel in
 * weight [K, ...] once. */
static double backward_flops(const Graph *graph, TensorId dy, TensorId weight)
{
    const Tensor *w = graph_tensor(graph, weight);
    return 2 * (double)tensor_count(graph_tensor(graph, dy)) * (double)tensor_count(w) / (double)w->shape[0];
}

double profile_node_flops(const Graph *graph, NodeId id)
{
    const Node *node = graph_node(graph, id);
    switch (node->op) {
    case OP_CONV2D_BACKWARD_DATA:
    case OP_LINEAR_BACKWARD_DATA:
        return backward_flops(graph, node->inputs[0], node->inputs[1]);
    case OP_CONV2D_BACKWARD_WEIGHT:
    case OP_LINEAR_BACKWARD_WEIGHT:
        return node->outputs[0] == TENSOR_NONE ? 0 : backward_flops(graph, node->inputs[0], node->outputs[0]);
    default:
        return (double)graph_node_flops(graph, id);
    }
}

/* ---- making ---- */

static int longer_first(const void *a, const void *b)
{
    const ProfileNode *first = a, *second = b;
    if (first->seconds != second->seconds)
        return first->seconds < second->seconds ? 1 : -1;
    return first->node < second->node ? -1 : 1;
}

FshStatus profile_make(Profile *profile, const Graph *graph, const double *seconds, uint64_t steps,
                       const BackendRates *rates, FshError *error)
{
    *profile = (Profile){.graph = graph, .rates = *rates, .node_count = graph_node_count(graph)};
    profile->nodes = calloc(profile->node_count + 1, sizeof *profile->nodes);
    if (!profile->nodes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the profile of %zu layers",
                             profile->node_count);
    for (size_t n = 0; n < profile->node_count; n++) {
        ProfileNode *node = &profile->nodes[n];
        *node = (ProfileNode){.node = (NodeId)n,
                              .seconds = seconds[n] / (double)steps,
                              .bytes = profile_node_bytes(graph, (NodeId)n),
                              .flops = profile_node_flops(graph, (NodeId)n)};
        if (rates->bytes_per_second > 0)
            node->floor_seconds = node->bytes / rates->bytes_per_second;
        if (rates->product_flops_per_second > 0)
            node->floor_seconds = fmax(node->floor_seconds, node->flops / rates->product_flops_per_second);
        profile->seconds += node->seconds;
        profile->floor_seconds += node->floor_seconds;
    }
    qsort(profile->nodes, profile->node_count, sizeof *profile->nodes, longer_first);
    return FSH_OK;
}

void profile_free(Profile *profile)
{
    free(profile->nodes);
    *profile = (Profile){0};
}

/* ---- telling ---- */

/* The sum over all nodes of one kind; sum.node is the number of them. */
typedef struct KindSum {
    OpKind op;
    ProfileNode sum;
} KindSum;

/* Sums by kind, longest first. Returns how many kinds there are. */
static size_t sum_kinds(const Profile *profile, KindSum kinds[OP_KIND_COUNT])
{
    size_t count = 0;
    for (size_t n = 0; n < profile->node_count; n++) {
        const ProfileNode *node = &profile->nodes[n];
        const OpKind op = graph_node(profile->graph, node->node)->op;
        size_t k = 0;
        while (k < count && kinds[k].op != op)
            k++;
        if (k == count)
            kinds[count++] = (KindSum){.op = op};
        kinds[k].sum.node++;
        kinds[k].sum.seconds += node->seconds;
        kinds[k].sum.bytes += node->bytes;
        kinds[k].sum.flops += node->flops;
        kinds[k].sum.floor_seconds += node->floor_seconds;
    }
    for (size_t i = 1; i < count; i++) /* a handful */
        for (size_t k = i; k > 0 && kinds[k].sum.seconds > kinds[k - 1].sum.seconds; k--) {
            const KindSum swapped = kinds[k];
            kinds[k] = kinds[k - 1];
            kinds[k - 1] = swapped;
        }
    return count;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static const char columns[] = "      ms  share  floor ms  of floor        MB     GB/s     GFLOP  TFLOP/s";

static void print_row(const Profile *profile, const ProfileNode *row, FILE *stream)
{
    (void)fprintf(stream, "%8.3f %5.1f%%  %8.3f  %7.0f%%  %8.1f %8.0f  ", 1e3 * row->seconds,
                  100 * ratio(row->seconds, profile->seconds), 1e3 * row->floor_seconds,
                  100 * ratio(row->floor_seconds, row->seconds), row->bytes / 1e6,
                  ratio(row->bytes, row->seconds) / 1e9);
    if (row->flops > 0)
        (void)fprintf(stream, "%8.2f %8.2f", row->flops / 1e9, ratio(row->flops, row->seconds) / 1e12);
    else
        (void)fprintf(stream, "%8s %8s", "-", "-");
}

void profile_print(const Profile *profile, FILE *stream)
{
    KindSum kinds[OP_KIND_COUNT];
    const size_t kind_count = sum_kinds(profile, kinds);
    ProfileNode all = {.seconds = profile->seconds, .floor_seconds = profile->floor_seconds};
    char shape[96];
    (void)fprintf(stream, "%s  layers  operation\n", columns);
    for (size_t k = 0; k < kind_count; k++) {
        print_row(profile, &kinds[k].sum, stream);
        (void)fprintf(stream, "  %6d  %s\n", (int)kinds[k].sum.node, op_name(kinds[k].op));
        all.bytes += kinds[k].sum.bytes;
        all.flops += kinds[k].sum.flops;
    }
    print_row(profile, &all, stream);
    (void)fprintf(stream, "  %6zu  all\n\n%s  %-22s  layer, first output\n", profile->node_count, columns,
                  "operation");
    for (size_t n = 0; n < profile->node_count; n++) {
        const Node *node = graph_node(profile->graph, profile->nodes[n].node);
        const TensorId output = node->output_count ? node->outputs[0] : TENSOR_NONE;
        print_row(profile, &profile->nodes[n], stream);
        (void)fprintf(stream, "  %-22s  %s [%s]\n", op_name(node->op), node->name,
                      output == TENSOR_NONE
                          ? ""
                          : tensor_shape_text(graph_tensor(profile->graph, output), shape, sizeof shape));
    }
}

const char *profile_summary(const Profile *profile, char *buffer, size_t buffer_bytes)
{
    KindSum kinds[OP_KIND_COUNT];
    const size_t kind_count = sum_kinds(profile, kinds);
    int wrote = snprintf(buffer, buffer_bytes, "%.2f ms, floor %.2f ms (%.0f %%)", 1e3 * profile->seconds,
                         1e3 * profile->floor_seconds, 100 * ratio(profile->floor_seconds, profile->seconds));
    size_t length = wrote > 0 ? (size_t)wrote : 0;
    for (size_t k = 0; k < kind_count && k < SUMMARY_KINDS && length < buffer_bytes; k++) {
        wrote = snprintf(buffer + length, buffer_bytes - length, "%s %s %.2f ms", k ? "," : ";",
                         op_name(kinds[k].op), 1e3 * kinds[k].sum.seconds);
        length += wrote > 0 ? (size_t)wrote : 0;
    }
    return buffer;
}
