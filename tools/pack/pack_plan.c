#include "tools/pack/pack_plan.h"

#include <inttypes.h>
#include <stdlib.h>

FshStatus pack_plan_check_read(const PackPlan *plan, FshError *error)
{
    const PackOptions *options = plan->found.options;
    uint64_t count = 0;
    for (size_t i = 0; i < plan->notes.left_out.count; i++)
        count += plan->notes.left_out.items[i].status == FSH_ERR_SYSTEM;
    if (options->skip_unread || count == 0)
        return FSH_OK;
    return fsh_error_set(
        error, FSH_ERR_SYSTEM,
        "%s: %" PRIu64 " of its files and folders, listed above, cannot be read, and more may lie in "
        "them; nothing was packed: run the same command when they can be, or pack without them: "
        "--on-error skip",
        options->source, count);
}

FshStatus pack_plan_find(PackPlan *plan, const PackOptions *options, FshError *error)
{
    *plan = (PackPlan){0};
    FshStatus status = pack_find(&plan->found, options, &plan->notes, error);
    if (!status)
        status = pack_key(&plan->found, &plan->keyed, error);
    if (!status)
        status = pack_split(&plan->keyed, &plan->split, error);
    return status ? status : pack_check_container(&plan->split, error);
}

/* Warns of a dataset of one class: here, where an update has added the classes that are there. */
static FshStatus warn_only_class(PackPlan *plan, FshError *error)
{
    return plan->keyed.class_count == 1
               ? notes_add(&plan->notes.warnings, FSH_OK, plan->keyed.class_names[0],
                           "the only class: there is nothing for a classifier to tell apart", error)
               : FSH_OK;
}

FshStatus pack_plan_place(PackPlan *plan, const PackBase *base, FshError *error)
{
    plan->base = base;
    FshStatus status = warn_only_class(plan, error);
    if (!status)
        status = pack_store(&plan->split, base, &plan->stored, error);
    return status ? status : pack_cut(plan, error);
}

FshStatus pack_plan_make(PackPlan *plan, const PackOptions *options, FshError *error)
{
    FshStatus status = pack_plan_find(plan, options, error);
    return status ? status : pack_plan_place(plan, NULL, error);
}

void pack_plan_free(PackPlan *plan)
{
    free(plan->outputs);
    pack_stored_free(&plan->stored);
    pack_split_free(&plan->split);
    pack_keyed_free(&plan->keyed);
    pack_found_free(&plan->found);
    notes_free(&plan->notes.left_out);
    notes_free(&plan->notes.warnings);
    *plan = (PackPlan){0};
}
