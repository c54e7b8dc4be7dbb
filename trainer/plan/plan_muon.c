/* plan_muon.c - the options of Muon and of the rest, and what they decide. */
#include "trainer/plan/plan_muon.h"

#include <string.h>

#include "trainer/plan/train_plan.h"

static const double lr_original = 0.02; /* Jordan's, for scales that do not match AdamW's steps */
enum { NS_STEPS_MAX = 99 };             /* torch's */

/* What may move the rest, in the order of OptimizerKind. */
static const char *const rest_choices[] = {"sgd", "adam", "adamw", NULL};

MuonOptions muon_options_default(void)
{
    return (MuonOptions){.rest = OPTIMIZER_ADAMW,
                         .adjust = MUON_MATCH_RMS_ADAMW,
                         .ns_steps = 5,
                         .rest_momentum = 0.9,
                         .rest_weight_decay = 5e-4};
}

/* clang-format off */
size_t muon_options_rows(MuonOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "muon-rest", .kind = OPTION_CHOICE, .value = &o->rest, .argument = "NAME", .group = "Muon",
         .choices = rest_choices,
         .help = "for muon: what moves the first and the last layer, norms and biases"},
        {.name = "muon-adjust-lr", .kind = OPTION_CHOICE, .value = &o->adjust, .argument = "NAME",
         .alias = "adjust-lr-fn", .choices = muon_scale_names,
         .help = "for muon: how a step grows with its matrix; match_rms_adamw learns at adamw's "
                 "rates"},
        {.name = "ns-steps", .kind = OPTION_INTEGER, .value = &o->ns_steps, .argument = "N",
         .minimum = 1, .maximum = NS_STEPS_MAX,
         .help = "for muon: steps of Newton and Schulz that make an update orthogonal"},
        {.name = "muon-renorm", .kind = OPTION_FLAG, .value = &o->renorm,
         .help = "for muon: before each update, scale each matrix to the norm sqrt(rows), as airbench does"},
        {.name = "rest-lr", .kind = OPTION_REAL, .value = &o->rest_lr, .argument = "X", .maximum = 1e6,
         .help = "for muon: highest learning rate of the rest, as --lr's; 0: --lr where it fits "
                 "both, else that of the rest's optimizer"},
        {.name = "rest-momentum", .kind = OPTION_REAL, .value = &o->rest_momentum, .argument = "X",
         .maximum = 0.9999,
         .help = "for muon: momentum of the rest, with sgd"},
        {.name = "rest-weight-decay", .kind = OPTION_REAL, .value = &o->rest_weight_decay, .argument = "X",
         .maximum = 1, .marks = OPTION_VARIES,
         .help = "for muon: weight decay of the rest; unless given that of --weight-decay, with sgd 0.0005"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */

void plan_muon(TrainPlan *plan, const TrainOptions *options)
{
    const MuonOptions *own = &options->muon;
    const UpdateOptions *update = &options->update;
    Optimizer *o = &plan->recipe.optimizer;
    const OptimizerKind rest = (OptimizerKind)own->rest;
    if (o->kind != OPTIMIZER_MUON)
        return;
    o->muon = (MuonRule){.rest = rest,
                         .rest_rate = 1,
                         .momentum = o->momentum,
                         .weight_decay = o->weight_decay,
                         .steps = own->ns_steps,
                         .scale = (MuonScale)own->adjust,
                         .nesterov = update->nesterov && o->momentum > 0,
                         .renorm = own->renorm};
    if (train_given(options, &own->rest_weight_decay) || (rest == OPTIMIZER_SGD && !plan_is_pairs(plan)))
        o->weight_decay = own->rest_weight_decay;
    o->momentum = own->rest_momentum;
    o->nesterov = rest == OPTIMIZER_SGD && update->nesterov && own->rest_momentum > 0;
}

/* ---- learning rates ---- */

static bool matches_adamw(const MuonRule *rule)
{
    return rule->scale == MUON_MATCH_RMS_ADAMW;
}

double plan_muon_rate(const TrainPlan *plan, double rate_of_moments)
{
    return matches_adamw(&plan->recipe.optimizer.muon) ? rate_of_moments : lr_original;
}

void plan_muon_rest_rate(TrainPlan *plan, const TrainOptions *options, double rate_of_moments,
                         double rate_of_momentum)
{
    MuonRule *rule = &plan->recipe.optimizer.muon;
    double rest = options->muon.rest_lr;
    if (plan->recipe.optimizer.kind != OPTIMIZER_MUON || !(plan->schedule.base > 0))
        return;
    if (rest == 0)
        rest = rule->rest == OPTIMIZER_SGD ? rate_of_momentum
               : matches_adamw(rule)       ? plan->schedule.base
                                           : rate_of_moments;
    rule->rest_rate = rest / plan->schedule.base;
}
