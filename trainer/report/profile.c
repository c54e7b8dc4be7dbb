#include "trainer/report/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SUMMARY_KINDS = 5 };

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
                              .bytes = (double)graph_node_bytes(graph, (NodeId)n),
                              .flops = (double)graph_node_flops(graph, (NodeId)n)};
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
