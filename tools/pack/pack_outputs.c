/* pack_outputs.c - which shard each record goes to, and the dataset's id. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tools/pack/pack_plan.h"

/* ---- shards ---- */

static uint64_t scale(uint64_t bytes, uint64_t numerator, uint64_t denominator)
{
    __extension__ typedef unsigned __int128 Wide;
    return (uint64_t)((Wide)bytes * numerator / denominator);
}

/* Returns the bytes of a sample in its file as planned: of its record; in a tar, of its members .jpg, .cls
 * and .json, each with a header and filled up to blocks. */
static uint64_t planned_bytes(const PackPlan *plan, const PackSample *sample)
{
    enum { BLOCK_BYTES = 512, JSON_BLOCKS = 2, CLASS_BLOCKS = 2 };
    if (!fsh_container_has(plan->found.options->container, FSH_HAS_MEMBERS))
        return stored_record_bytes(&plan->stored, sample);
    FshSample description;
    stored_describe(&plan->stored, sample, &description);
    uint64_t blocks = JSON_BLOCKS + (plan->found.kind == FSH_KIND_CLASSES ? CLASS_BLOCKS : 0);
    for (unsigned i = 0; i < description.field_count; i++)
        blocks += 1 + (description.fields[i].bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    return blocks * BLOCK_BYTES;
}

bool pack_is_cut(const PackOptions *options)
{
    return fsh_container_has(options->container, FSH_HAS_SHARDS);
}

/* Cuts a split into as many shards as its records, as they will be stored, have times shard_bytes; all about
 * equal (a last shard of a few records would make ranks wait for each other). Shard k starts with the first
 * record at or past k / n of the planned bytes: what is decided here is which samples a shard holds, and what
 * they come to does not change it. */
static FshStatus cut_split(PackPlan *plan, uint32_t split, const StoredShare *stored, FshError *error)
{
    const PackOptions *options = plan->found.options;
    const uint64_t shard_bytes = pack_is_cut(options) ? options->shard_bytes : 0;
    const SplitRange *range = &plan->split.ranges[split];
    const uint64_t end = range->first_sample + range->sample_count;
    uint64_t total = 0;
    for (uint64_t i = range->first_sample; i < end; i++)
        total += planned_bytes(plan, &plan->split.samples[i]);
    const uint64_t bytes_stored = scale(total, stored->numerator, stored->denominator);
    uint64_t shard_count = shard_bytes ? bytes_stored / shard_bytes + (bytes_stored % shard_bytes != 0) : 1;
    if (shard_count > range->sample_count)
        shard_count = range->sample_count;
    if (shard_count == 0)
        shard_count = 1;
    if (shard_count > PACK_SHARDS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--shard-size: %s would need %" PRIu64 " shards; choose a larger size",
                             fsh_split_name(split), shard_count);
    PackOutput *outputs = reallocarray(plan->outputs, plan->output_count + shard_count, sizeof *outputs);
    if (!outputs)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->found.root);
    plan->outputs = outputs;

    const size_t first_output = plan->output_count;
    const double share = (double)total / (double)shard_count;
    uint64_t before = 0; /* bytes of the split's earlier samples */
    for (uint64_t i = range->first_sample; i < end; i++) {
        const size_t made = plan->output_count - first_output;
        if (made == 0 || (made < shard_count && (double)before >= share * (double)made))
            plan->outputs[plan->output_count++] =
                (PackOutput){.split = split, .shard_index = (uint32_t)made, .first_sample = i};
        PackOutput *output = &plan->outputs[plan->output_count - 1];
        uint64_t bytes = planned_bytes(plan, &plan->split.samples[i]);
        output->sample_count++;
        output->record_bytes += bytes;
        before += bytes;
    }
    /* One huge record may span the shares of several shards: there are fewer then. */
    for (size_t i = first_output; i < plan->output_count; i++) {
        PackOutput *output = &plan->outputs[i];
        output->shard_count = (uint32_t)(plan->output_count - first_output);
        output->record_bytes = scale(output->record_bytes, stored->numerator, stored->denominator);
    }
    return FSH_OK;
}

/* ---- the id ---- */

static void hash_u64(XXH3_state_t *state, uint64_t value)
{
    uint8_t bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    (void)XXH3_128bits_update(state, bytes, sizeof bytes);
}

/* Hashes a text, its length first, so that "ab", "c" and "a", "bc" differ. */
static void hash_text(XXH3_state_t *state, const char *text, size_t length)
{
    hash_u64(state, length);
    (void)XXH3_128bits_update(state, text, length);
}

/* Hashes the recipe of this run, not that of the source, and what decides how samples are stored. */
static void hash_recipe(XXH3_state_t *state, const PackPlan *plan)
{
    const PackOptions *options = plan->found.options;
    const ShrinkRecipe *recipe = &options->resize;
    if (options->store == PACK_STORE_JPEG)
        hash_u64(state, (uint64_t)recipe->quality);
    if (options->store == PACK_STORE_ZSTD || plan->stored.dictionary)
        hash_u64(state, (uint64_t)options->level);
    if (options->store == PACK_STORE_AUTO)
        hash_text(state, (const char *)plan->stored.is_raw, plan->split.sample_count);
    hash_text(state, plan->stored.dictionary, plan->stored.dictionary_bytes);
    const uint64_t numbers[] = {recipe->max_size, recipe->long_edge, (uint64_t)recipe->filter,
                                (uint64_t)recipe->quality, recipe->exact};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && recipe->max_size; i++)
        hash_u64(state, numbers[i]);
}

/* Makes the id, a hash over everything that decides the bytes: version, options, classes, and each sample's
 * place, key, label and sources (path and size). Modification times are left out: a copy of the source gives
 * the same dataset. */
static FshStatus make_id(PackPlan *plan, FshError *error)
{
    const PackOptions *options = plan->found.options;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->found.root);
    (void)XXH3_128bits_reset(state);
    hash_text(state, FSHARD_VERSION, strlen(FSHARD_VERSION));
    const uint64_t numbers[] = {FSH_FORMAT_VERSION,         (uint64_t)options->container,
                                (uint64_t)plan->found.kind, (uint64_t)options->store,
                                plan->stored.raw_channels,  options->check,
                                options->max_pixels,        plan->found.field_count,
                                plan->keyed.class_count,    plan->split.sample_count};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        hash_u64(state, numbers[i]);
    hash_recipe(state, plan);
    if (plan->base)
        hash_text(state, plan->base->id, strlen(plan->base->id));
    if (plan->found.from.dataset) /* of foreign containers, a hash of their own */
        hash_text(state, fsh_manifest(plan->found.from.dataset)->id,
                  strlen(fsh_manifest(plan->found.from.dataset)->id));
    for (size_t i = 0; i < plan->found.field_count; i++)
        hash_text(state, plan->found.field_names[i], strlen(plan->found.field_names[i]));
    for (size_t i = 0; i < plan->keyed.class_count; i++)
        hash_text(state, plan->keyed.class_names[i], strlen(plan->keyed.class_names[i]));
    for (size_t i = 0; i < plan->output_count; i++) {
        hash_u64(state, plan->outputs[i].split);
        hash_u64(state, plan->outputs[i].sample_count);
    }
    for (uint64_t i = 0; i < plan->split.sample_count; i++) {
        const PackSample *sample = &plan->split.samples[i];
        hash_text(state, sample->key, sample->key_bytes);
        hash_u64(state, (uint64_t)(int64_t)sample->label);
        for (size_t field = 0; field < plan->found.field_count; field++) {
            const PackSource source = sample_source(&plan->found, sample, field);
            hash_text(state, source.path, source.path_bytes);
            hash_u64(state, source.bytes);
        }
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    (void)snprintf(plan->id, sizeof plan->id, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
                   (uint64_t)hash.low64);
    (void)XXH3_freeState(state);
    return FSH_OK;
}

/* Refuses raw pixels and planes in BasicSR's layout, which is of image files. The writer would refuse them
 * too, but only when it comes to them. */
static FshStatus refuse_pixels(const PackSplit *split, FshError *error)
{
    const PackOptions *options = split->found->options;
    if (!split->found->from.dataset || options->store != PACK_STORE_COPY || options->resize.max_size)
        return FSH_OK;
    for (uint64_t i = 0; i < split->sample_count; i++) {
        FshSample sample;
        size_t field = 0;
        char name[PATH_MAX];
        if (found_dataset_sample(split->found, split->samples[i].items[0], &sample, &field, NULL, NULL))
            continue;
        const FshCodec codec = sample.fields[field].codec;
        if (codec != FSH_CODEC_RAW && codec != FSH_CODEC_Y4M)
            continue;
        return fsh_error_set(
            error, FSH_ERR_MISMATCH,
            "--layout basicsr: %s holds %s (%s), and BasicSR reads image files; give "
            "--store jpeg, or use --format lmdb, with --store zstd for small files without loss",
            split->found->root, codec == FSH_CODEC_Y4M ? "planes" : "raw pixels",
            sample_source_name(split->found, &split->samples[i], 0, name));
    }
    return FSH_OK;
}

FshStatus pack_check_container(const PackSplit *split, FshError *error)
{
    const PackOptions *options = split->found->options;
    if (!fsh_container_has(options->container, FSH_HAS_CLASSES) && split->keyed->class_count)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--layout basicsr: has no place for classes; use --format lmdb, or give --pairs");
    return fsh_container_has(options->container, FSH_HAS_RAW) ? FSH_OK : refuse_pixels(split, error);
}

FshStatus pack_cut(PackPlan *plan, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint32_t split = 0; split < PACK_SPLITS && !status; split++) {
        if (plan->split.ranges[split].present)
            status = cut_split(plan, split, &plan->stored.share, error);
    }
    return status ? status : make_id(plan, error);
}
