/* pack_tally.c - what --dedupe has taken from whom. Each image left out is listed, but not what a list of
 * thousands amounts to: that nothing is left to validate on, or of a class. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/pack/pack_plan.h"

FshStatus plan_tally(PlanTally *tally, const Plan *plan, FshError *error)
{
    *tally = (PlanTally){0};
    tally->classes = calloc(PLAN_SPLITS * plan->class_count + 1, sizeof *tally->classes);
    if (!tally->classes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
    for (uint64_t i = 0; i < plan->sample_count; i++) {
        const PlanSample *sample = &plan->samples[i];
        tally->splits[sample->split]++;
        if (sample->label >= 0) /* pairs, and some samples of tars, have none */
            tally->classes[sample->split * plan->class_count + (size_t)sample->label]++;
    }
    return FSH_OK;
}

static FshStatus refuse_empty_split(const Plan *plan, uint32_t split, uint64_t before, FshError *error)
{
    const char *name = fsh_split_name(split);
    return fsh_error_set(
        error, FSH_ERR_MISMATCH,
        "%s: --dedupe leaves nothing of %s: all of its %" PRIu64
        " samples have the content of others, as listed; leave out %s or --dedupe, or give it "
        "images of its own",
        plan->root, name, before, name);
}

static FshStatus warn_of_empty_classes(Plan *plan, const PlanTally *before, const PlanTally *now,
                                       uint32_t split, FshError *error)
{
    size_t emptied = 0, first = 0;
    for (size_t i = plan->class_count; i-- > 0;) {
        const size_t at = split * plan->class_count + i;
        if (before->classes[at] && !now->classes[at]) {
            emptied++;
            first = i;
        }
    }
    if (!emptied)
        return FSH_OK;
    return notes_addf(
        &plan->warnings, FSH_OK, error, "--dedupe",
        "leaves no sample of %zu class%s in %s, '%s' is the first; kept as classes with no sample "
        "there",
        emptied, emptied == 1 ? "" : "es", fsh_split_name(split), plan->class_names[first]);
}

FshStatus plan_tell_duplicates(Plan *plan, const PlanTally *before, FshError *error)
{
    PlanTally now = {0};
    FshStatus status = plan_tally(&now, plan, error);
    for (uint32_t split = 0; split < PLAN_SPLITS && !status; split++) {
        plan->duplicates[split] = before->splits[split] - now.splits[split];
        if (before->splits[split] && !now.splits[split])
            status = refuse_empty_split(plan, split, before->splits[split], error);
        else
            status = warn_of_empty_classes(plan, before, &now, split, error);
    }
    free(now.classes);
    return status;
}
