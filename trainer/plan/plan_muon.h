/* plan_muon.h - the options of Muon (trainer/graph/muon.h) and of the optimizer that moves what is not
 * Muon's. plan_muon.c has their rows, and the one place that reads them.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_PLAN_PLAN_MUON_H
#define FSHARD_TRAINER_PLAN_PLAN_MUON_H

#include "common/options.h"
#include "trainer/graph/graph.h"

typedef struct MuonOptions {
    int rest;         /* OptimizerKind */
    int adjust;       /* MuonScale */
    int64_t ns_steps; /* of Newton and Schulz */
    bool renorm;
    double rest_lr; /* 0: chosen */
    double rest_momentum, rest_weight_decay;
} MuonOptions;

/* Returns the defaults. */
MuonOptions muon_options_default(void);
/* Writes the rows of the options to rows and returns their number. They point into options. */
size_t muon_options_rows(MuonOptions *options, Option *rows);

#endif
