#include "trainer/models/parameter_rules.h"

#include <ctype.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/options_value.h"

/* ---- patterns ---- */

/* A pattern cut out of a list. */
typedef struct Pattern {
    char text[GRAPH_NAME_MAX];
    double factor;
} Pattern;

static bool is_parameter(const Graph *graph, size_t id)
{
    return graph_tensor(graph, (TensorId)id)->role == TENSOR_PARAMETER;
}

/* Returns whether the pattern matches a name, or the part of it before one of its dots. */
static bool matches(const char *pattern, const char *name)
{
    char layer[GRAPH_NAME_MAX];
    (void)snprintf(layer, sizeof layer, "%s", name);
    for (char *dot = layer + strlen(layer); dot; dot = strrchr(layer, '.')) {
        *dot = '\0';
        if (fnmatch(pattern, layer, 0) == 0)
            return true;
    }
    return false;
}

/* Returns the length of what is nearest to the pattern, the name or one of the layers that it is in, and sets
 * *distance; 0: none is nearer than *distance. */
static size_t nearest_part(const char *pattern, const char *name, unsigned *distance)
{
    char part[GRAPH_NAME_MAX];
    size_t length = 0;
    (void)snprintf(part, sizeof part, "%s", name);
    for (char *dot = part + strlen(part); dot; dot = strrchr(part, '.')) {
        *dot = '\0';
        const unsigned apart = strlen(part) <= OPTIONS_WORD_MAX ? options_distance(pattern, part) : *distance;
        if (apart >= *distance)
            continue;
        *distance = apart;
        length = strlen(part);
    }
    return length;
}

/* Returns the bytes of the first `depth` parts of a name: those of model.1 in model.1.weight of two. */
static size_t parts_bytes(const char *name, int depth)
{
    size_t bytes = 0;
    while (name[bytes] && (name[bytes] != '.' || --depth > 0))
        bytes++;
    return bytes;
}

/* Writes the names of the layers that are `depth` deep, "conv1, bn1, …", to text: where there are many the
 * first of them, and the last. Returns how many there are. */
static size_t list_layers(const Graph *graph, int depth, char *text, size_t text_bytes)
{
    enum { LISTED_MAX = 8 };
    size_t used = 0, count = 0;
    char last[GRAPH_NAME_MAX] = "";
    text[0] = '\0';
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        char name[GRAPH_NAME_MAX];
        if (!is_parameter(graph, i))
            continue;
        (void)snprintf(name, sizeof name, "%s", graph_tensor(graph, (TensorId)i)->name);
        name[parts_bytes(name, depth)] = '\0';
        if (strcmp(name, last) == 0)
            continue;
        if (count < LISTED_MAX && used < text_bytes)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", name);
        memcpy(last, name, sizeof last);
        count++;
    }
    if (count > LISTED_MAX && used < text_bytes)
        (void)snprintf(text + used, text_bytes - used, " and %zu more up to %s", count - LISTED_MAX, last);
    return count;
}

/* Fails the graph for a pattern that matches nothing. */
static void refuse_pattern(Graph *graph, const char *option, const char *pattern)
{
    enum { WRONG_LETTERS_MAX = 3, DEPTH_MAX = 4 };
    const size_t typed = strlen(pattern), third = typed / 3;
    unsigned distance = (unsigned)(third < WRONG_LETTERS_MAX ? third : WRONG_LETTERS_MAX) + 1;
    char nearest[GRAPH_NAME_MAX] = "", layers[400];
    for (size_t i = 0; i < graph_tensor_count(graph) && typed <= OPTIONS_WORD_MAX; i++) {
        const char *name = graph_tensor(graph, (TensorId)i)->name;
        const size_t length = is_parameter(graph, i) ? nearest_part(pattern, name, &distance) : 0;
        if (length)
            (void)snprintf(nearest, sizeof nearest, "%.*s", (int)length, name);
    }
    int depth = 1; /* one name that all have in front is none to choose by */
    while (list_layers(graph, depth, layers, sizeof layers) < 2 && depth < DEPTH_MAX)
        depth++;
    graph_refuse(graph, "--%s: '%s' matches no parameter; %s%s%sthe network has %s", option, pattern,
                 *nearest ? "did you mean " : "", nearest, *nearest ? "? " : "", layers);
}

/* Cuts the next pattern out of *list, with "=FACTOR" where has_factor. Returns false at the end and after a
 * failure. */
static bool next_pattern(Graph *graph, const char *option, bool has_factor, const char **list,
                         Pattern *pattern)
{
    const size_t length = strcspn(*list, ",");
    if (!**list)
        return false;
    (void)snprintf(pattern->text, sizeof pattern->text, "%.*s",
                   (int)(length < sizeof pattern->text ? length : sizeof pattern->text - 1), *list);
    *list += length + ((*list)[length] == ',');
    char *sign = has_factor ? strrchr(pattern->text, '=') : NULL, *end = NULL;
    pattern->factor = sign ? strtod(sign + 1, &end) : 1;
    const bool is_factor = sign && end != sign + 1 && !*end && pattern->factor >= 0 && pattern->factor <= 1e6;
    if (has_factor && !is_factor) {
        graph_refuse(graph, "--%s: '%s' is not PATTERN=FACTOR, with a factor of 0 to 1e6", option,
                     pattern->text);
        return false;
    }
    if (sign)
        *sign = '\0';
    return true;
}

/* Calls visit for each parameter that the pattern matches. No match fails the graph. */
static void each_match(Graph *graph, const char *option, const Pattern *pattern,
                       void (*visit)(Graph *graph, TensorId parameter, double factor, void *context),
                       void *context)
{
    bool any = false;
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        if (is_parameter(graph, i) && matches(pattern->text, graph_tensor(graph, (TensorId)i)->name)) {
            visit(graph, (TensorId)i, pattern->factor, context);
            any = true;
        }
    if (!any)
        refuse_pattern(graph, option, pattern->text);
}

/* ---- what is frozen ---- */

static void freeze(Graph *graph, TensorId parameter, double factor, void *context)
{
    (void)factor;
    (void)context;
    graph_freeze(graph, parameter);
}

static void freeze_matches(Graph *graph, const char *list)
{
    static const char option[] = "freeze";
    Pattern pattern;
    while (list && next_pattern(graph, option, false, &list, &pattern))
        each_match(graph, option, &pattern, freeze, NULL);
}

/* Freezes all but the last linear layer. */
static void freeze_all_but_head(Graph *graph)
{
    const Node *head = NULL;
    for (size_t i = 0; i < graph_node_count(graph); i++)
        if (graph_node(graph, (NodeId)i)->op == OP_LINEAR)
            head = graph_node(graph, (NodeId)i);
    if (!head) {
        graph_refuse(graph, "--head-only: the network ends in no linear layer; --freeze names what stays");
        return;
    }
    for (size_t i = 0; i < graph_tensor_count(graph); i++)
        if (is_parameter(graph, i) && (TensorId)i != head->inputs[CONV_WEIGHT] &&
            (TensorId)i != head->inputs[CONV_BIAS])
            graph_freeze(graph, (TensorId)i);
}

/* ---- learning rates ---- */

static void multiply_rate(Graph *graph, TensorId parameter, double factor)
{
    const Tensor *tensor = graph_tensor(graph, parameter);
    graph_set_factors(graph, parameter, tensor->rate * factor, tensor->decay);
}

/* Multiplies the rate of a parameter that no earlier pattern has matched. context: bool [tensor count], of
 * those that one has. */
static void multiply_first(Graph *graph, TensorId parameter, double factor, void *context)
{
    bool *matched = context;
    if (!matched[parameter])
        multiply_rate(graph, parameter, factor);
    matched[parameter] = true;
}

static void take_rates(Graph *graph, const char *list)
{
    static const char option[] = "lr-of";
    Pattern pattern;
    bool *matched = list ? calloc(graph_tensor_count(graph), sizeof *matched) : NULL;
    if (list && !matched)
        graph_refuse(graph, "--%s: out of memory", option);
    while (matched && next_pattern(graph, option, true, &list, &pattern))
        each_match(graph, option, &pattern, multiply_first, matched);
    free(matched);
}

/* Returns the number of characters of a name that a block's pattern takes; 0: it does not match. */
static size_t block_length(const char *block, const char *name)
{
    const char *at = name;
    for (; *block; block++) {
        if (*block == '#' && !isdigit((unsigned char)*at))
            return 0;
        if (*block == '#')
            while (isdigit((unsigned char)*at))
                at++;
        else if (*at++ != *block)
            return 0;
    }
    return isalnum((unsigned char)*at) ? 0 : (size_t)(at - name);
}

int parameter_layers(const Graph *graph, const char *const *blocks, int *layers)
{
    char last[GRAPH_NAME_MAX] = "";
    int layer = 0;
    bool behind = false; /* the last parameter was of no block, and a block came before it */
    for (size_t i = 0; i < graph_tensor_count(graph); i++) {
        const char *name = graph_tensor(graph, (TensorId)i)->name;
        size_t length = 0;
        bool joins = false;
        layers[i] = -1;
        if (!is_parameter(graph, i))
            continue;
        for (const char *const *block = blocks; *block && !length; block++) {
            joins = **block == '<';
            length = block_length(*block + joins, name);
        }
        const bool same = length && strlen(last) == length && memcmp(last, name, length) == 0;
        if (length && !same && !joins) {
            layer++;
            (void)snprintf(last, sizeof last, "%.*s", (int)length, name);
        }
        behind = !length && layer > 0;
        layers[i] = layer + behind;
    }
    return layer + behind + 1;
}

static void decay_by_layers(Graph *graph, double decay, const char *const *blocks)
{
    int *layers = blocks ? calloc(graph_tensor_count(graph), sizeof *layers) : NULL;
    if (!blocks)
        graph_refuse(graph, "--layer-decay: the network has no blocks to tell layers by; --lr-of gives "
                            "layers their own learning rates");
    else if (!layers)
        graph_refuse(graph, "--layer-decay: out of memory");
    const int count = layers ? parameter_layers(graph, blocks, layers) : 0;
    for (size_t i = 0; i < graph_tensor_count(graph) && layers; i++)
        if (layers[i] >= 0)
            multiply_rate(graph, (TensorId)i, pow(decay, count - 1 - layers[i]));
    free(layers);
}

void parameter_rules_apply(Graph *graph, const ParameterRules *rules, const char *const *blocks)
{
    if (graph_check(graph, NULL))
        return;
    if (rules->layer_decay > 0 && rules->layer_decay < 1)
        decay_by_layers(graph, rules->layer_decay, blocks);
    take_rates(graph, rules->rates);
    if (rules->head_only)
        freeze_all_but_head(graph);
    freeze_matches(graph, rules->freeze);
    if (graph_parameter_count(graph) > 0 && graph_trained_count(graph) == 0)
        graph_refuse(graph, "--freeze: '%s' leaves no parameter to train", rules->freeze);
}
