/* plan_case.h - what the tests of ftrain's plan share: a plan that is made from a few facts of a dataset. */
#ifndef FSHARD_TESTS_TRAINER_PLAN_CASE_H
#define FSHARD_TESTS_TRAINER_PLAN_CASE_H

#include "tests/support/support.h"
#include "trainer/plan/train_plan.h"

/* What a dataset looks like to the plan. */
typedef struct Facts {
    uint32_t short_edge, channels;
    bool uniform;
    uint64_t train_count;
    bool pairs;
} Facts;

/* Made from facts; split stands for both train and val. */
typedef struct Case {
    TrainOptions options;
    FshSplit split;
    TrainingData data;
    TrainPlan plan;
    bool only_trains; /* no split to evaluate on */
    FshError error;
} Case;

/* Returns a case with the default options. */
Case make_case(Facts facts);
/* Makes the case's plan of its options. */
FshStatus plan_case(Case *made);
/* Marks an option as given by the user. */
void give(Case *made, const char *name);

#endif
