/* graph_optimizer.h - the update of the parameters, which is the last node of a training graph. */
#ifndef FSHARD_TRAINER_GRAPH_GRAPH_OPTIMIZER_H
#define FSHARD_TRAINER_GRAPH_GRAPH_OPTIMIZER_H

#include <math.h>

#include "trainer/graph/graph_tensor.h"

typedef enum OptimizerKind {
    OPTIMIZER_SGD,
    OPTIMIZER_ADAM,
    OPTIMIZER_ADAMW,
    OPTIMIZER_LARS,
    OPTIMIZER_LAMB,
    OPTIMIZER_NADAMW,
    OPTIMIZER_RADAM,
    OPTIMIZER_RADAMW,
    OPTIMIZER_RANGER,
    OPTIMIZER_MUON,
    OPTIMIZER_SGDW,
    OPTIMIZER_NADAM,
    OPTIMIZER_KIND_COUNT
} OptimizerKind;
extern const char *const optimizer_names[]; /* "sgd", "adam", "adamw", "lars", "lamb", …, NULL */

/* By what Muon's steps are multiplied, for a matrix of `rows` outputs and `columns` inputs: the adjust_lr_fn
 * of torch.optim.Muon and of timm. */
typedef enum MuonScale {
    MUON_MATCH_RMS_ADAMW,    /* 0.2 sqrt(max(rows, columns)): Liu et al. 2025 */
    MUON_ORIGINAL,           /* sqrt(max(1, rows / columns)): Jordan 2024 */
    MUON_SPECTRAL_UNCLAMPED, /* sqrt(rows / columns): Bernstein 2025 */
} MuonScale;
extern const char *const muon_scale_names[]; /* "match_rms_adamw", "original", "spectral_unclamped", NULL */

/* What OPTIMIZER_MUON does to the matrices of hidden layers (muon.h says which these are). Everything else,
 * the rest, is moved as if Optimizer.kind were `rest`, by the numbers of Optimizer. */
typedef struct MuonRule {
    OptimizerKind rest; /* not muon, lars, lamb */
    double rest_rate;   /* the rest's learning rate is the input's times this */
    double momentum, weight_decay;
    int64_t steps; /* of Newton and Schulz */
    MuonScale scale;
    bool nesterov;
    bool renorm; /* before each update a matrix gets the norm sqrt(rows), as in airbench94_muon */
} MuonRule;

/* The update, with all that stands around it. g: the gradient; t: updates made, this one included.
 *
 *   sgd    g += decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v)     torch.optim.SGD
 *   sgdw   the same, with w *= 1 - lr decay in place of g += decay w      timm.optim.SGDW; Composer's
 *          DecoupledSGDW, whose decay is this one times the highest lr
 *   adam   g += decay w;  m = beta1 m + (1 - beta1) g;  s = beta2 s + (1 - beta2) g^2
 *          w -= lr m' / (sqrt(s') + epsilon),  m' = m / (1 - beta1^t),  s' likewise       torch.optim.Adam
 *   adamw  the same, with w *= 1 - lr decay in place of g += decay w                     torch.optim.AdamW
 *   lars   sgd's, with (g + decay w) * trust, trust = trust_coefficient ||w|| / (||g|| + decay ||w||), for
 *          each parameter by itself             You, Gitman, Ginsburg 2017; timm.optim.Lars (momentum after
 *          trust)
 *   lamb   u = m' / (sqrt(s') + epsilon) + decay w;  w -= lr ||w|| / ||u|| u  You et al. 2019;
 *          timm.optim.Lamb
 *   nadam  adam's, with mu_t = beta1 (1 - 0.96^(0.004 t) / 2) and M_t = mu_1 mu_2 .. mu_t:
 *          w -= lr (mu_(t+1) m / (1 - M_(t+1)) + (1 - mu_t) g / (1 - M_t)) / (sqrt(s') + epsilon)  Dozat
 *          2016; torch.optim.NAdam
 *   nadamw adamw's, with beta1 m + (1 - beta1) g in place of m in m'                 timm.optim.NAdamW
 *   radam  adam's, with r = 2 / (1 - beta2) - 1 and r_t = r - 2 t beta2^t / (1 - beta2^t):
 *          w -= lr m' sqrt((r_t - 4) (r_t - 2) r / ((r - 4) (r - 2) r_t)) sqrt(1 - beta2^t) / (sqrt(s) +
 *          epsilon) where r_t > 5, else w -= lr m'           Liu et al. 2020; torch.optim.RAdam
 *   radamw, ranger  radam's, with adamw's decay; ranger is that with lookahead
 *   muon   v = momentum v + g;  w *= 1 - lr decay;
 *          w -= lr scale orthogonal(nesterov ? g + momentum v : v)  Jordan 2024; torch.optim.Muon: muon.h
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
 * Sharpness-aware minimisation (Foret et al. 2020), with sam_rho: program_perturb, a run like any other up to
 * this node, moves the parameters uphill by this run's own gradient g,
 *
 *   w += sam_rho g / (||g|| + 1e-12)          ||g|| over all parameters; divided by the loss scale
 *
 * and the next program_run puts them back before anything else is done here: what it accumulates or updates
 * with is the gradient at the perturbed parameters. Buffers are put back too: running statistics move with
 * the first of the two runs alone (as in google-research/sam). Where the first run's loss or gradient is no
 * number, the parameters stay. Ranks exchange nothing for it: each perturbs by its own images, which is what
 * the paper found to generalise better than one perturbation for all; and so does each of the runs that
 * accumulate.
 *
 * Lives in the State, so that a program decides by itself whether a run updates, and checkpoints carry it:
 * NAME.momentum_buffer; NAME.exp_avg, NAME.exp_avg_sq; NAME.slow; NAME.accumulated; NAME.ema and
 * NAME.unperturbed (of buffers too; role TENSOR_OPTIMIZER, `of` the parameter or buffer), and f32 [1] of
 * TENSOR_BUFFER: "optimizer.step" (updates made; always there), "optimizer.micro" (runs since the last one;
 * with accumulation; below 0 where ranks accumulate and the loss of one of these runs was no number),
 * "optimizer.perturbed" (1 between the two runs of sam, else 0; checkpoints have neither it nor
 * NAME.unperturbed), "scaler.scale" and "scaler.tracker" (updates since it changed; with loss scaling). */
typedef struct Optimizer {
    OptimizerKind kind;
    TensorId learning_rate;   /* an input [1] f32, written before each run */
    TensorId momentum_of_run; /* likewise, with cycles_momentum: in place of momentum, or beta1 */
    bool nesterov;            /* sgd, sgdw, lars */
    bool ema_warmup, loss_scaling, cycles_momentum;
    double momentum;              /* sgd, sgdw, lars */
    double beta1, beta2, epsilon; /* of the others */
    double trust_coefficient;     /* lars */
    double weight_decay;
    double clip_norm; /* of all gradients together, torch.nn.utils.clip_grad_norm_; 0: none */
    /* Every so many updates slow += alpha (w - slow), w = slow (Zhang et al. 2019); 0: none. */
    int64_t lookahead_steps;
    double lookahead_alpha;
    int64_t accumulation_steps; /* 0, 1: none */
    double sam_rho;             /* 0: no sam */
    int64_t sam_interval;       /* of the loop: every so many updates have two runs */
    /* ema = d ema + (1 - d) w after each update; 0: none. With ema_warmup d is at most (1 + t) / (10 + t), t
     * the updates before this one. */
    double ema_decay;
    /* torch.cuda.amp.GradScaler's rule, with loss_scaling: where a gradient is not finite the update is left
     * out and the scale multiplied by backoff, after interval updates in a row by growth. Wants
     * graph_loss_scale. */
    double scale_init, scale_growth, scale_backoff;
    int64_t scale_interval;
    MuonRule muon; /* muon */
} Optimizer;

/* What a tensor of TENSOR_OPTIMIZER is to its parameter. */
typedef enum OptimizerSlot {
    SLOT_MOMENTUM_BUFFER,
    SLOT_EXP_AVG,
    SLOT_EXP_AVG_SQ,
    SLOT_SLOW,
    SLOT_ACCUMULATED,
    SLOT_EMA,
    SLOT_UNPERTURBED,
    OPTIMIZER_SLOT_COUNT
} OptimizerSlot;
extern const char *const optimizer_slot_names[]; /* "momentum_buffer", "exp_avg", …; the last part of names */

/* ---- the numbers of an update, for the loops of both backends ---- */

/* On a GPU they are found on the device, which counts the updates. */
#ifdef __CUDACC__
#define OPTIMIZER_MATH static __host__ __device__ inline
#else
#define OPTIMIZER_MATH static inline
#endif

/* Returns what the gradient of a perturbing run, times the loss scale, is multiplied by. norm: of the
 * gradient without the scale. */
OPTIMIZER_MATH double sam_factor(const Optimizer *o, double norm, double scale)
{
    return o->sam_rho / ((norm + 1e-12) * scale);
}

/* What the kinds with two moments differ in:
 *
 *   d = g + decay w (0 where decay is decoupled);  m = beta1 m + (1 - beta1) d;
 *   s = beta2 s + (1 - beta2) d^2
 *   w = (1 - decoupled) w - rate * (of_m m + of_g d) / (inverse_root sqrt(s) + epsilon)
 *
 * and lamb, which has correction, inverse_root and epsilon alone. */
typedef struct AdamNumbers {
    double rate, of_m, of_g;
    double inverse_root, epsilon; /* 1 / sqrt(1 - beta2^t) for Adam */
    double correction;            /* 1 / (1 - beta1^t) */
    double decoupled;             /* learning rate * weight decay */
} AdamNumbers;

/* Returns whether the kind keeps a momentum, with one rate for all numbers of a parameter; else it keeps two
 * moments. */
OPTIMIZER_MATH bool optimizer_has_momentum(OptimizerKind kind)
{
    return kind == OPTIMIZER_SGD || kind == OPTIMIZER_SGDW || kind == OPTIMIZER_LARS;
}

/* Returns whether weights decay by themselves, and not through their gradients. */
OPTIMIZER_MATH bool optimizer_decouples(OptimizerKind kind)
{
    return kind == OPTIMIZER_ADAMW || kind == OPTIMIZER_NADAMW || kind == OPTIMIZER_RADAMW ||
           kind == OPTIMIZER_RANGER || kind == OPTIMIZER_SGDW;
}

/* Returns what decoupled decay takes of a weight, of all but muon's matrices, before the parameter's own
 * factors. */
OPTIMIZER_MATH double decoupled_decay(const Optimizer *o, double learning_rate)
{
    return optimizer_decouples(o->kind) ? learning_rate * o->weight_decay : 0;
}

/* Looks one step ahead along the gradient (Dozat 2016): timm's NAdamW, mlcommons' algorithm. */
OPTIMIZER_MATH void nadamw_numbers(const Optimizer *o, AdamNumbers *numbers)
{
    numbers->of_m = o->beta1;
    numbers->of_g = 1 - o->beta1;
}

/* Returns the momentum of update t, which grows to beta1 with the updates (Dozat 2016). */
OPTIMIZER_MATH double nadam_momentum(const Optimizer *o, double t)
{
    return o->beta1 * (1 - 0.5 * pow(0.96, 0.004 * t));
}

/* Looks one step ahead along a momentum that grows: torch.optim.NAdam. What it keeps as mu_product is found
 * anew, as if beta1 had always been what it is; after a hundred factors or so it does not count. */
OPTIMIZER_MATH void nadam_numbers(const Optimizer *o, double learning_rate, double t, AdamNumbers *numbers)
{
    const double now = nadam_momentum(o, t), next = nadam_momentum(o, t + 1);
    double product = 1;
    for (uint64_t i = 1; (double)i <= t && product > 1e-20; i++)
        product *= nadam_momentum(o, (double)i);
    numbers->rate = learning_rate;
    numbers->of_m = next / (1 - product * next);
    numbers->of_g = (1 - now) / (1 - product);
}

/* Rectifies the variance of the rate, with `t` updates made (Liu et al. 2020): torch.optim.RAdam. */
OPTIMIZER_MATH void radam_numbers(const Optimizer *o, double t, AdamNumbers *numbers)
{
    const double power = pow(o->beta2, t), longest = 2 / (1 - o->beta2) - 1,
                 length = longest - 2 * t * power / (1 - power);
    if (length > 5) {
        numbers->rate *= sqrt((1 - power) * (length - 4) * (length - 2) * longest /
                              ((longest - 4) * (longest - 2) * length));
        numbers->inverse_root = 1;
    } else { /* the momentum alone */
        numbers->inverse_root = 0;
        numbers->epsilon = 1;
    }
}

/* Returns the numbers of update `t`, the first being 1, with this learning rate. */
OPTIMIZER_MATH AdamNumbers adam_numbers(const Optimizer *o, double learning_rate, double t)
{
    const double of_first = 1 - pow(o->beta1, t), of_second = 1 - pow(o->beta2, t);
    AdamNumbers numbers;
    numbers.rate = learning_rate / of_first;
    numbers.of_m = 1;
    numbers.of_g = 0;
    numbers.inverse_root = 1 / sqrt(of_second);
    numbers.epsilon = o->epsilon;
    numbers.correction = 1 / of_first;
    numbers.decoupled = decoupled_decay(o, learning_rate);
    if (o->kind == OPTIMIZER_NADAMW)
        nadamw_numbers(o, &numbers);
    else if (o->kind == OPTIMIZER_NADAM)
        nadam_numbers(o, learning_rate, t, &numbers);
    else if (o->kind == OPTIMIZER_RADAM || o->kind == OPTIMIZER_RADAMW || o->kind == OPTIMIZER_RANGER)
        radam_numbers(o, t, &numbers);
    return numbers;
}

#endif
