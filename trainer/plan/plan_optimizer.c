/* plan_optimizer.c - the options of the optimizer and of what goes with it, and what they decide. */
#include "trainer/plan/plan_optimizer.h"

#include <string.h>

#include "trainer/plan/train_hints.h"
#include "trainer/plan/train_plan.h"

UpdateOptions update_options_default(void)
{
    return (UpdateOptions){
        .optimizer = OPTION_AUTO,
        .momentum = 0.9,
        .nesterov = true,
        .betas = "0.9:0.999",
        .optimizer_epsilon = 1e-8,
        .trust_coefficient = 0.001,
        .weight_decay = 5e-4,
        .sam_interval = 1,
        .lookahead_alpha = 0.5,
        .model_ema_decay = 0.9998,
        .model_ema_warmup = true,
        .loss_scale = 65536,
        .layer_decay = 1,
    };
}

/* clang-format off */
size_t update_options_rows(UpdateOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "opt", .kind = OPTION_CHOICE, .value = &o->optimizer, .argument = "NAME",
         .group = "Optimizer",
         .alias = "optimizer",
         .choices = optimizer_names, .has_auto = true, .hints = train_optimizer_hints,
         .help = "the optimizer; auto: sgd, or adamw for pairs and masks"},
        {.name = "momentum", .kind = OPTION_REAL, .value = &o->momentum, .argument = "X", .maximum = 0.9999,
         .marks = OPTION_VARIES,
         .help = "of sgd, sgdw and lars, and of muon's matrices; unless given 0.9, with muon 0.95"},
        {.name = "nesterov", .kind = OPTION_FLAG, .value = &o->nesterov,
         .help = "Nesterov's form of momentum, for sgd, sgdw and muon"},
        {.name = "opt-betas", .kind = OPTION_TEXT, .value = &o->betas, .argument = "B1:B2",
         .marks = OPTION_VARIES,
         .help = "of all but sgd, sgdw and lars; unless given 0.9:0.999, with ranger 0.95:0.99"},
        {.name = "opt-eps", .kind = OPTION_REAL, .value = &o->optimizer_epsilon, .argument = "X",
         .maximum = 1, .marks = OPTION_VARIES,
         .help = "of all but sgd, sgdw and lars; unless given 1e-8, with ranger 1e-6"},
        {.name = "trust-coefficient", .kind = OPTION_REAL, .value = &o->trust_coefficient, .argument = "X",
         .maximum = 1,
         .help = "of lars"},
        {.name = "weight-decay", .kind = OPTION_REAL, .value = &o->weight_decay, .argument = "X",
         .maximum = 1,
         .alias = "wd", .marks = OPTION_VARIES,
         .help = "on weights; norms and biases have none; unless given none for pairs, 0.05 with adamw, "
                 "nadamw, radamw and muon, 0.01 with ranger, else 0.0005"},
        {.name = "clip-grad", .kind = OPTION_REAL, .value = &o->clip_grad, .argument = "X", .maximum = 1e9,
         .alias = "clip-grad-norm",
         .help = "longest gradient over all weights together; 0: any"},
        {.name = "sam", .kind = OPTION_REAL, .value = &o->sam, .argument = "RHO", .maximum = 1e6,
         .help = "sharpness-aware minimisation: take the gradient RHO uphill of the weights, in a second "
                 "pass; 0: off"},
        {.name = "sam-interval", .kind = OPTION_INTEGER, .value = &o->sam_interval, .argument = "N",
         .minimum = 1, .maximum = 1e9,
         .help = "for --sam: do so in every N-th update"},
        {.name = "lookahead", .kind = OPTION_INTEGER, .value = &o->lookahead_steps, .argument = "N",
         .maximum = 100000, .marks = OPTION_VARIES,
         .help = "steps between two looks back of Lookahead around the optimizer; 0: none; unless given 0, "
                 "with ranger 6"},
        {.name = "lookahead-alpha", .kind = OPTION_REAL, .value = &o->lookahead_alpha, .argument = "X",
         .maximum = 1,
         .help = "part of the way that Lookahead goes"},
        {.name = "loss-scale", .kind = OPTION_REAL, .value = &o->loss_scale, .argument = "X", .maximum = 1e9,
         .help = "for --amp fp16: the first scale of the loss, which adapts itself; 0: none"},
        {.name = "model-ema", .kind = OPTION_FLAG, .value = &o->model_ema, .group = "Averages of weights",
         .help = "average the weights over the steps too; evaluated and saved as model_ema.safetensors"},
        {.name = "model-ema-decay", .kind = OPTION_REAL, .value = &o->model_ema_decay, .argument = "X",
         .minimum = 1e-6, .maximum = 0.9999999,
         .help = "part of the average that each step keeps"},
        {.name = "model-ema-warmup", .kind = OPTION_FLAG, .value = &o->model_ema_warmup,
         .help = "let the average follow faster in the first steps"},
        {.name = "freeze", .kind = OPTION_TEXT, .value = &o->freeze, .argument = "PATTERN,...",
         .group = "Fine-tuning",
         .help = "parameters that are not trained, by name: layer1, *.bias; their batch norms stand still"},
        {.name = "head-only", .kind = OPTION_FLAG, .value = &o->head_only,
         .help = "train the last linear layer alone"},
        {.name = "lr-of", .kind = OPTION_TEXT, .value = &o->lr_of, .argument = "PATTERN=FACTOR,...",
         .help = "parts of the learning rate for parameters, by name: fc=10,layer1=0.1; the first that "
                 "matches counts"},
        {.name = "layer-decay", .kind = OPTION_REAL, .value = &o->layer_decay, .argument = "X",
         .minimum = 0.001, .maximum = 1,
         .help = "each block of the network learns X times as fast as the next one; 1: alike"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

static OptimizerKind choose_optimizer(const TrainPlan *plan, const TrainOptions *options)
{
    const UpdateOptions *own = &options->update;
    if (own->optimizer != OPTION_AUTO)
        return (OptimizerKind)own->optimizer;
    return plan_has_targets(plan) ? OPTIMIZER_ADAMW : OPTIMIZER_SGD;
}

UpdateOptions plan_update_options(const TrainPlan *plan, const TrainOptions *options, OptimizerKind kind)
{
    const UpdateOptions *given = &options->update;
    const bool ranger = kind == OPTIMIZER_RANGER;
    UpdateOptions own = *given;
    if (kind == OPTIMIZER_MUON && !train_given(options, &given->momentum))
        own.momentum = 0.95; /* Jordan's, torch's and timm's */
    if (ranger && !train_given(options, &given->betas))
        own.betas = "0.95:0.99"; /* fastai's, of the Imagenette board */
    if (ranger && !train_given(options, &given->optimizer_epsilon))
        own.optimizer_epsilon = 1e-6;
    if (ranger && !train_given(options, &given->lookahead_steps))
        own.lookahead_steps = 6;
    /* what is multiplied by the learning rates of adamw's kind, and not by those of sgd's */
    const bool decays_more = kind == OPTIMIZER_MUON || (optimizer_decouples(kind) && kind != OPTIMIZER_SGDW);
    if (!train_given(options, &given->weight_decay))
        own.weight_decay = plan_is_pairs(plan) ? 0 : ranger ? 0.01 : decays_more ? 0.05 : given->weight_decay;
    return own;
}

FshStatus plan_optimizer(TrainPlan *plan, const TrainOptions *options, FshError *error)
{
    const OptimizerKind kind = choose_optimizer(plan, options);
    const UpdateOptions chosen = plan_update_options(plan, options, kind), *own = &chosen;
    double betas[2] = {0, 0};
    size_t count = 0;
    FshStatus status = train_options_numbers("opt-betas", own->betas, 0, 0.9999999, betas, 2, &count, error);
    if (status)
        return status;
    if (count != 2)
        return fsh_error_set(error, FSH_ERR_USAGE, "--opt-betas: '%s' is not B1:B2", own->betas);
    plan->recipe.rules = (ParameterRules){.freeze = own->freeze,
                                          .rates = own->lr_of,
                                          .layer_decay = own->layer_decay,
                                          .head_only = own->head_only};
    const bool fp16 = plan->recipe.compute_type == DATA_F16;
    plan->recipe.optimizer = (Optimizer){
        .kind = kind,
        .momentum = own->momentum,
        .nesterov = (kind == OPTIMIZER_SGD || kind == OPTIMIZER_SGDW) && own->nesterov && own->momentum > 0,
        .beta1 = betas[0],
        .beta2 = betas[1],
        .epsilon = own->optimizer_epsilon,
        .trust_coefficient = own->trust_coefficient,
        .weight_decay = own->weight_decay,
        .clip_norm = own->clip_grad,
        .sam_rho = own->sam,
        .sam_interval = own->sam_interval,
        .lookahead_steps = own->lookahead_steps,
        .lookahead_alpha = own->lookahead_alpha,
        .accumulation_steps = options->training.grad_accum_steps,
        .ema_decay = own->model_ema ? own->model_ema_decay : 0,
        .ema_warmup = own->model_ema_warmup,
        .loss_scaling = fp16 && own->loss_scale > 0,
        .scale_init = own->loss_scale,
        .scale_growth = 2,
        .scale_backoff = 0.5,
        .scale_interval = 2000,
        .learning_rate = TENSOR_NONE,
    };
    plan_muon(plan, options);
    if (own->nesterov && train_given(options, &options->update.nesterov) && own->momentum == 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "--nesterov: wants --momentum above 0");
    return FSH_OK;
}
