/* graph_optimizer.h - the update of the parameters, which is the last node of a training graph. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_OPTIMIZER_H
#define FSHARD_TRAINER_GRAPH_GRAPH_OPTIMIZER_H

#include "trainer/graph/graph_tensor.h"

typedef enum OptimizerKind {
    OPTIMIZER_SGD,
    OPTIMIZER_ADAM,
    OPTIMIZER_ADAMW,
    OPTIMIZER_LARS,
    OPTIMIZER_LAMB,
    OPTIMIZER_KIND_COUNT
} OptimizerKind;
extern const char *const optimizer_names[]; /* "sgd", "adam", "adamw", "lars", "lamb", NULL */

/* The update, with all that stands around it. g: the gradient; t: updates made, this one included.
 *
 *   sgd    g += decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v)     torch.optim.SGD
 *   adam   g += decay w;  m = beta1 m + (1 - beta1) g;  s = beta2 s + (1 - beta2) g^2
 *          w -= lr m' / (sqrt(s') + epsilon),  m' = m / (1 - beta1^t),  s' likewise       torch.optim.Adam
 *   adamw  the same, with w *= 1 - lr decay in place of g += decay w                     torch.optim.AdamW
 *   lars   sgd's, with (g + decay w) * trust, trust = trust_coefficient ||w|| / (||g|| + decay ||w||), for
 *          each parameter by itself             You, Gitman, Ginsburg 2017; timm.optim.Lars (momentum after
 *          trust)
 *   lamb   u = m' / (sqrt(s') + epsilon) + decay w;  w -= lr ||w|| / ||u|| u  You et al. 2019;
 *          timm.optim.Lamb
 *
 * Parameters whose `decays` is off (norms, biases) get no weight decay, and trust 1 in lars and lamb. lr and
 * decay are those below times the parameter's own factors (graph_set_factors).
 *
 * A run whose loss is no number changes nothing: what led to it can be looked at (gradient_norm is NaN then,
 * updated 0). In each other run, in this order: the gradient is added to those since the last update
 * (accumulation_steps, whose mean it becomes), divided by the loss scale, its norm taken over all parameters,
 * clipped; then the update; then lookahead; then the average. Before the first update, NAME.slow and NAME.ema
 * become what the parameter is then (the buffer's ema: what it is after the first update's run).
 *
 * Lives in the State, so that a program decides by itself whether a run updates, and checkpoints carry it:
 * NAME.momentum_buffer; NAME.exp_avg, NAME.exp_avg_sq; NAME.slow; NAME.accumulated; NAME.ema (of buffers too;
 * role TENSOR_OPTIMIZER, `of` the parameter or buffer), and f32 [1] of TENSOR_BUFFER: "optimizer.step"
 * (updates made; always there), "optimizer.micro" (runs since the last one; with accumulation; below 0 where
 * ranks accumulate and the loss of one of these runs was no number),
 * "scaler.scale" and "scaler.tracker" (updates since it changed; with loss scaling). */
typedef struct Optimizer {
    OptimizerKind kind;
    TensorId learning_rate;       /* an input [1] f32, written before each run */
    double momentum;              /* sgd, lars */
    double beta1, beta2, epsilon; /* adam, adamw, lamb */
    double trust_coefficient;     /* lars */
    double weight_decay;
    double clip_norm; /* of all gradients together, torch.nn.utils.clip_grad_norm_; 0: none */
    /* Every so many updates slow += alpha (w - slow), w = slow (Zhang et al. 2019); 0: none. */
    int64_t lookahead_steps;
    double lookahead_alpha;
    int64_t accumulation_steps; /* 0, 1: none */
    /* ema = d ema + (1 - d) w after each update; 0: none. With ema_warmup d is at most (1 + t) / (10 + t), t
     * the updates before this one. */
    double ema_decay;
    /* torch.cuda.amp.GradScaler's rule, with loss_scaling: where a gradient is not finite the update is left
     * out and the scale multiplied by backoff, after interval updates in a row by growth. Wants
     * graph_loss_scale. */
    double scale_init, scale_growth, scale_backoff;
    int64_t scale_interval;
    bool nesterov; /* sgd, lars */
    bool ema_warmup, loss_scaling;
} Optimizer;

/* What a tensor of TENSOR_OPTIMIZER is to its parameter. */
typedef enum OptimizerSlot {
    SLOT_MOMENTUM_BUFFER,
    SLOT_EXP_AVG,
    SLOT_EXP_AVG_SQ,
    SLOT_SLOW,
    SLOT_ACCUMULATED,
    SLOT_EMA,
    OPTIMIZER_SLOT_COUNT
} OptimizerSlot;
extern const char *const optimizer_slot_names[]; /* "momentum_buffer", "exp_avg", …; the last part of names */

#endif
