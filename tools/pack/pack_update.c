#include "tools/pack/pack_update.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/job/contents.h"
#include "tools/pack/pack_update_parts.h"

/* Refuses an update after which mean and deviation would be of another split's images: nobody has summed the
 * pixels of the others. Sets the split of the plan whose pixels are summed. */
static FshStatus check_main_split(const Update *update, PackPlan *plan, FshError *error)
{
    uint32_t before = PACK_SPLITS, after = plan->split.main;
    for (size_t i = 0; i < update->file_count; i++) {
        const OldFile *file = &update->files[i];
        before = file->split < before ? file->split : before;
        if (!file->ours && file->record_count && file->split < after)
            after = file->split;
    }
    if (before != after)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: its mean and deviation are those of %s, and would be those of %s: pack it "
                             "anew, with --force",
                             update->options->destination, fsh_split_name(before), fsh_split_name(after));
    plan->split.main = before;
    return FSH_OK;
}

/* Fills what the new shards take over from the dataset. */
static FshStatus take_base(Update *update, FshError *error)
{
    PackBase *base = &update->base;
    const PackStore store = update->options->store;
    const bool has_pixels = store == PACK_STORE_RAW || store == PACK_STORE_ZSTD || store == PACK_STORE_AUTO;
    base->id = update->manifest->id;
    base->dictionary = fsh_dictionary(update->dataset, &base->dictionary_bytes);
    base->dictionary = base->dictionary_bytes ? base->dictionary : NULL;
    base->raw_channels = has_pixels ? update->manifest->statistics.channels : 0;
    return file_join(base->folder, sizeof base->folder, update->options->destination, CONTENTS_UPDATE_NAME,
                     error);
}

static bool has_same_classes(const Update *update, const PackPlan *plan)
{
    const FshManifest *manifest = update->manifest;
    bool same = manifest->class_count == plan->keyed.class_count &&
                manifest->mask_name_count == plan->keyed.mask_name_count;
    for (size_t i = 0; i < manifest->mask_name_count && same; i++)
        same = strcmp(manifest->mask_names[i], plan->keyed.mask_names[i]) == 0;
    for (size_t i = 0; i < manifest->class_count && same; i++) {
        const char *now = plan->keyed.display_names ? plan->keyed.display_names[i] : "";
        const char *then = manifest->class_display_names ? manifest->class_display_names[i] : "";
        same = strcmp(manifest->class_names[i], plan->keyed.class_names[i]) == 0 && strcmp(now, then) == 0;
    }
    return same;
}

bool update_is_same(const Update *update, const PackPlan *plan)
{
    const UpdateCounts *counts = &update->counts;
    return counts->changed == 0 && counts->vanished == 0 && counts->moved == 0 &&
           has_same_classes(update, plan);
}

/* Finds out what differs between the folder, whose samples are found, and the dataset. */
static FshStatus compare_all(Update *update, PackPlan *plan, FshError *error)
{
    FshStatus status = update_open_old(update, error);
    if (!status)
        status = update_find_ours(update, error);
    if (!status)
        status = update_check_options(update, plan, error);
    if (!status)
        status = check_main_split(update, plan, error);
    if (!status)
        status = update_compare(update, plan, error);
    if (!status)
        status = update_classes(update, plan, error);
    if (!status)
        status = take_base(update, error);
    update->counts.is_same = !status && plan->split.sample_count == 0 && update_is_same(update, plan);
    return status;
}

FshStatus update_plan(Update *update, PackPlan *plan, const PackOptions *options, const UpdateOptions *wanted,
                      FshError *error)
{
    char manifest[PATH_MAX];
    *plan = (PackPlan){0};
    *update = (Update){.wanted = *wanted, .options = options, .lock = -1};
    FshStatus status = file_join(manifest, sizeof manifest, options->destination, FSH_MANIFEST_NAME, error);
    if (!status && !file_exists(manifest))
        status = fsh_error_set(error, FSH_ERR_NOT_FOUND,
                               "%s: holds no dataset that could be updated (no " FSH_MANIFEST_NAME
                               "); leave out --%s to pack one there",
                               options->destination, wanted->append ? "append" : "update");
    if (!status)
        status = wanted->dry_run ? destination_check_finished(options->destination, error)
                                 : destination_hold_dataset(options->destination, &update->lock, error);
    if (!status)
        status = pack_plan_find(plan, options, error);
    if (!status)
        status = compare_all(update, plan, error);
    return status ? status : pack_plan_place(plan, &update->base, error);
}

void update_free(Update *update)
{
    for (size_t i = 0; update->files && i < update->file_count; i++) {
        buffer_free(&update->files[i].sources);
        free(update->files[i].removed);
    }
    free(update->files);
    free(update->records);
    fsh_close(&update->dataset);
    destination_release(update->options ? update->options->destination : "", update->lock);
    *update = (Update){.lock = -1};
}
