#include "trainer/graph/graph_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "trainer/graph/muon.h"

const char *const optimizer_names[] = {"sgd",    "adam",   "adamw", "lars", "lamb",  "nadamw", "radam",
                                       "radamw", "ranger", "muon",  "sgdw", "nadam", NULL};
const char *const optimizer_slot_names[] = {"momentum_buffer", "exp_avg", "exp_avg_sq", "slow",
                                            "accumulated",     "ema",     "unperturbed"};
const char loss_scale_name[] = "scaler.scale";

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool tensor_is_weight(const Tensor *tensor)
{
    return tensor->role == TENSOR_PARAMETER ||
           (tensor->role == TENSOR_BUFFER && !starts_with(tensor->name, "optimizer.") &&
            !starts_with(tensor->name, "scaler."));
}

TensorId graph_counter(Graph *graph, const char *name, double initial)
{
    Tensor tensor = {.role = TENSOR_BUFFER,
                     .type = DATA_F32,
                     .rank = 1,
                     .shape = {1},
                     .producer = NODE_NONE,
                     .of = TENSOR_NONE,
                     .initializer = {INIT_CONSTANT, initial}};
    graph_set_name(graph, tensor.name, name);
    return graph_add_tensor(graph, &tensor);
}

OptimizerSlot graph_optimizer_slot(const Graph *graph, TensorId tensor)
{
    const Tensor *state = graph_tensor(graph, tensor);
    const char *last = state->name + strlen(graph_tensor(graph, state->of)->name) + 1;
    int slot = 0;
    while (slot < OPTIMIZER_SLOT_COUNT && strcmp(last, optimizer_slot_names[slot]) != 0)
        slot++;
    return (OptimizerSlot)slot;
}

/* ---- the optimizer's numbers ---- */

static bool is_share(double value)
{
    return value >= 0 && value < 1;
}

static bool momentum_is_sound(const Optimizer *o)
{
    return is_share(o->momentum) && !(o->nesterov && o->momentum == 0);
}

static bool betas_are_sound(const Optimizer *o)
{
    return is_share(o->beta1) && is_share(o->beta2) && o->epsilon > 0;
}

/* Fails with the first of Muon's own numbers that makes no sense. */
static void refuse_muon(Graph *graph, const MuonRule *m)
{
    if (m->rest == OPTIMIZER_MUON || m->rest == OPTIMIZER_LARS || m->rest == OPTIMIZER_LAMB)
        graph_fail(graph, FSH_ERR_USAGE, "muon: %s for the rest; it may be sgd, adam or one of its kind",
                   optimizer_names[m->rest]);
    else if (!is_share(m->momentum) || (m->nesterov && m->momentum == 0))
        graph_fail(graph, FSH_ERR_USAGE,
                   "muon: momentum %g; it must be at least 0 and below 1 (above 0 for nesterov)",
                   m->momentum);
    else if (!(m->weight_decay >= 0) || !(m->rest_rate >= 0) || m->steps < 1)
        graph_fail(graph, FSH_ERR_USAGE,
                   "muon: weight decay %g, %g times the learning rate for the rest, %lld steps; none may be "
                   "below 0, and one step is the least",
                   m->weight_decay, m->rest_rate, (long long)m->steps);
}

/* Fails with the first number that makes no sense. Returns true if there was one. */
static bool refuse_numbers(Graph *graph, const Optimizer *o)
{
    if (o->kind == OPTIMIZER_MUON)
        refuse_muon(graph, &o->muon);
    if (graph->failure.status)
        return true;
    const bool keeps_momentum = optimizer_has_momentum(muon_rest_kind(o));
    const char *name = optimizer_names[o->kind];
    if (keeps_momentum && !momentum_is_sound(o))
        graph_fail(graph, FSH_ERR_USAGE,
                   "%s: momentum %g; it must be at least 0 and below 1 (above 0 for nesterov)", name,
                   o->momentum);
    else if (!keeps_momentum && !betas_are_sound(o))
        graph_fail(graph, FSH_ERR_USAGE,
                   "%s: betas %g and %g, epsilon %g; betas must be at least 0 and below 1, epsilon above 0",
                   name, o->beta1, o->beta2, o->epsilon);
    else if (o->kind == OPTIMIZER_LARS && !(o->trust_coefficient > 0))
        graph_fail(graph, FSH_ERR_USAGE, "%s: trust coefficient %g; it must be above 0", name,
                   o->trust_coefficient);
    else if (!(o->weight_decay >= 0) || !(o->clip_norm >= 0) || o->accumulation_steps < 0)
        graph_fail(graph, FSH_ERR_USAGE,
                   "%s: weight decay %g, clipping at %g, accumulation over %lld runs; none may be below 0",
                   name, o->weight_decay, o->clip_norm, (long long)o->accumulation_steps);
    else if (o->lookahead_steps < 0 ||
             (o->lookahead_steps && !(o->lookahead_alpha > 0 && o->lookahead_alpha <= 1)))
        graph_fail(graph, FSH_ERR_USAGE,
                   "lookahead: every %lld steps by %g; the share must be above 0 and at most 1",
                   (long long)o->lookahead_steps, o->lookahead_alpha);
    else if (!(o->sam_rho >= 0 && isfinite(o->sam_rho)))
        graph_fail(graph, FSH_ERR_USAGE, "sam: rho %g; it must be at least 0", o->sam_rho);
    else if (!is_share(o->ema_decay))
        graph_fail(graph, FSH_ERR_USAGE, "ema: decay %g; it must be at least 0 and below 1", o->ema_decay);
    else if (o->loss_scaling && !(o->scale_init > 0 && o->scale_growth >= 1 && o->scale_backoff > 0 &&
                                  o->scale_backoff < 1 && o->scale_interval >= 1))
        graph_fail(graph, FSH_ERR_USAGE,
                   "loss scaling: from %g, times %g after %lld updates, times %g where one overflows; the "
                   "first must "
                   "be above 0, growth and interval at least 1, backoff between 0 and 1",
                   o->scale_init, o->scale_growth, (long long)o->scale_interval, o->scale_backoff);
    return graph->failure.status != FSH_OK;
}

static bool refuse_input(Graph *graph, TensorId id, const char *what)
{
    const Tensor *number = graph_operand(graph, id);
    char shape[96];
    if (number && (number->role != TENSOR_INPUT || number->type != DATA_F32 || tensor_count(number) != 1))
        graph_fail(graph, FSH_ERR_MISMATCH, "%s: the %s must be an f32 input [1], not %s [%s]", number->name,
                   what, data_type_name(number->type), tensor_shape_text(number, shape, sizeof shape));
    return !number || graph->failure.status;
}

/* ---- its tensors ---- */

/* Adds NAME.SLOT of a parameter or buffer, shaped like it. */
static void add_slot(Graph *graph, TensorId of, OptimizerSlot slot)
{
    char name[2 * GRAPH_NAME_MAX];
    Tensor state = graph->tensors[of].tensor;
    (void)snprintf(name, sizeof name, "%s.%s", state.name, optimizer_slot_names[slot]);
    graph_set_name(graph, state.name, name);
    state.role = TENSOR_OPTIMIZER;
    state.of = of;
    state.keep = state.decays = state.frozen = false;
    state.initializer = (Initializer){INIT_ZEROS, 0};
    graph_add_tensor(graph, &state);
}

/* Adds what parameters and buffers have alike. */
static void add_followers(Graph *graph, TensorId of, const Optimizer *o)
{
    if (o->ema_decay > 0)
        add_slot(graph, of, SLOT_EMA);
    if (o->sam_rho > 0)
        add_slot(graph, of, SLOT_UNPERTURBED);
}

static void add_parameter_slots(Graph *graph, TensorId parameter, const Optimizer *o)
{
    if (graph->tensors[parameter].tensor.muon || optimizer_has_momentum(muon_rest_kind(o))) {
        add_slot(graph, parameter, SLOT_MOMENTUM_BUFFER);
    } else {
        add_slot(graph, parameter, SLOT_EXP_AVG);
        add_slot(graph, parameter, SLOT_EXP_AVG_SQ);
    }
    if (o->lookahead_steps)
        add_slot(graph, parameter, SLOT_SLOW);
    if (o->accumulation_steps > 1)
        add_slot(graph, parameter, SLOT_ACCUMULATED);
    add_followers(graph, parameter, o);
}

static void add_state(Graph *graph, const Optimizer *o)
{
    bool any = false;
    for (size_t i = 0, count = graph->tensor_count; i < count && !graph->failure.status; i++) {
        const Tensor *tensor = &graph->tensors[i].tensor;
        const TensorId gradient = graph->tensors[i].gradient;
        if (tensor->role == TENSOR_PARAMETER && gradient != TENSOR_NONE) {
            if (graph->tensors[gradient].tensor.role != TENSOR_GRADIENT)
                graph_fail(graph, FSH_ERR_UNSUPPORTED, "%s: two layers share it, which no update knows",
                           tensor->name);
            add_parameter_slots(graph, (TensorId)i, o);
            any = true;
        } else if (tensor->role == TENSOR_BUFFER && tensor_is_weight(tensor)) {
            add_followers(graph, (TensorId)i, o);
        }
    }
    if (!any)
        graph_fail(graph, FSH_ERR_USAGE, "%s: no parameter has a gradient; call graph_differentiate first",
                   optimizer_names[o->kind]);
}

/* Sets the first value of the loss scale. Returns its tensor, TENSOR_NONE without one. */
static TensorId find_loss_scale(Graph *graph, const Optimizer *o)
{
    const TensorId scale = graph_find(graph, loss_scale_name);
    if ((scale != TENSOR_NONE) != o->loss_scaling)
        return graph_fail(graph, FSH_ERR_USAGE, "%s: %s", optimizer_names[o->kind],
                          o->loss_scaling ? "loss scaling needs graph_loss_scale before graph_differentiate"
                                          : "gradients are scaled, and the optimizer does not know it");
    if (scale != TENSOR_NONE)
        graph->tensors[scale].tensor.initializer = (Initializer){INIT_CONSTANT, o->scale_init};
    return scale;
}

void graph_update(Graph *graph, const Optimizer *optimizer)
{
    if (!graph || graph->failure.status || refuse_input(graph, optimizer->learning_rate, "learning rate") ||
        refuse_numbers(graph, optimizer))
        return;
    const TensorId momentum = optimizer->cycles_momentum ? optimizer->momentum_of_run : TENSOR_NONE;
    if (optimizer->cycles_momentum && refuse_input(graph, momentum, "momentum"))
        return;
    if (optimizer->kind == OPTIMIZER_MUON)
        muon_mark(graph, &optimizer->muon);
    add_state(graph, optimizer);
    const TensorId scale = find_loss_scale(graph, optimizer);
    Node node = {.op = OP_UPDATE,
                 .inputs = {[UPDATE_LEARNING_RATE] = optimizer->learning_rate,
                            [UPDATE_STEP] = TENSOR_NONE,
                            [UPDATE_MICRO] = TENSOR_NONE,
                            [UPDATE_SCALE] = scale,
                            [UPDATE_TRACKER] = TENSOR_NONE,
                            [UPDATE_LOSS] = graph->loss,
                            [UPDATE_MOMENTUM] = momentum,
                            [UPDATE_PERTURBED] = TENSOR_NONE},
                 .input_count = optimizer->sam_rho > 0    ? UPDATE_PERTURBED + 1
                                : momentum == TENSOR_NONE ? UPDATE_MOMENTUM
                                                          : UPDATE_MOMENTUM + 1,
                 .as.update = *optimizer};
    graph_set_name(graph, node.name, optimizer_names[optimizer->kind]);
    node.inputs[UPDATE_STEP] = graph_counter(graph, "optimizer.step", 0);
    if (optimizer->accumulation_steps > 1)
        node.inputs[UPDATE_MICRO] = graph_counter(graph, "optimizer.micro", 0);
    if (optimizer->loss_scaling)
        node.inputs[UPDATE_TRACKER] = graph_counter(graph, "scaler.tracker", 0);
    if (optimizer->sam_rho > 0)
        node.inputs[UPDATE_PERTURBED] = graph_counter(graph, "optimizer.perturbed", 0);
    graph_append(graph, &node);
    graph_keep(graph, node.outputs[UPDATE_GRADIENT_NORM], "gradient_norm");
    graph_keep(graph, node.outputs[UPDATE_UPDATED], "updated");
}

static void update_infer(Graph *graph, Node *node)
{
    graph_output(graph, node, UPDATE_GRADIENT_NORM, DATA_F32, 1, (int64_t[]){1});
    graph_output(graph, node, UPDATE_UPDATED, DATA_F32, 1, (int64_t[]){1});
}

/* Returns the bytes of an update: its operands; each parameter with a gradient, and its state, read and
 * written; the gradient read. What sam keeps is not touched by an update without it. */
static int64_t update_bytes(const Graph *graph, const Node *node)
{
    int64_t bytes = node_operand_bytes(graph, node);
    for (size_t t = 0; t < graph_tensor_count(graph); t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        const int64_t own = tensor_count(tensor) * (int64_t)data_type_bytes(tensor->type);
        if (tensor->role == TENSOR_OPTIMIZER && graph_optimizer_slot(graph, (TensorId)t) != SLOT_UNPERTURBED)
            bytes += 2 * own;
        if (tensor->role == TENSOR_PARAMETER && graph_gradient(graph, (TensorId)t) != TENSOR_NONE)
            bytes += 3 * own;
    }
    return bytes;
}

/* Returns the operations of Muon's products; nothing else is counted. */
static int64_t update_flops(const Graph *graph, const Node *node)
{
    int64_t flops = 0;
    for (size_t t = 0; t < graph_tensor_count(graph); t++)
        flops += muon_step_flops(graph_tensor(graph, (TensorId)t));
    return flops * node->as.update.muon.steps;
}

const OpRow op_rows_optimizer[] = {
    {.op = OP_UPDATE, .name = "update", .infer = update_infer, .flops = update_flops, .bytes = update_bytes},
    {.name = NULL},
};
