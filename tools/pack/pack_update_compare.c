/* pack_update_compare.c - which samples of the folder the dataset holds already. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/pool.h"
#include "common/progress.h"
#include "formats/updated.h"
#include "tools/pack/pack_intake.h"
#include "tools/pack/pack_update_parts.h"

typedef struct Compare {
    Update *update;
    PackPlan *plan;
    uint32_t *table; /* of 1 + index of the record, by split and key; 0: none */
    uint64_t mask;
    uint64_t *matches;    /* for each planned sample 1 + index of the record of its key; 0: none */
    uint64_t *candidates; /* planned samples whose bytes are to be compared */
    uint64_t candidate_count;
    uint8_t *differs; /* for each of them */
    int32_t *labels;  /* of each class of the manifest, among the plan's */
    Intake *intakes;  /* of each thread */
    Progress progress;
} Compare;

/* ---- keys ---- */

static uint64_t hash_key(uint32_t split, const char *key, size_t key_bytes)
{
    return XXH3_64bits_withSeed(key, key_bytes, split);
}

static FshStatus make_table(Compare *compare, FshError *error)
{
    const Update *update = compare->update;
    uint64_t size = 16;
    while (size < 2 * update->record_count)
        size *= 2;
    compare->table = calloc(size, sizeof *compare->table);
    compare->mask = size - 1;
    if (!compare->table || update->record_count >= UINT32_MAX)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", update->options->destination);
    for (uint64_t i = 0; i < update->record_count; i++) {
        const OldRecord *record = &update->records[i];
        uint64_t at = hash_key(update->files[record->file].split, record->key, record->key_bytes);
        while (compare->table[at & compare->mask])
            at++;
        compare->table[at & compare->mask] = (uint32_t)i + 1;
    }
    return FSH_OK;
}

/* Returns the record that has the sample's split and key; NULL: none has. */
static OldRecord *find_record(const Compare *compare, const PackSample *sample)
{
    const Update *update = compare->update;
    uint64_t at = hash_key(sample->split, sample->key, sample->key_bytes);
    for (; compare->table[at & compare->mask]; at++) {
        OldRecord *record = &update->records[compare->table[at & compare->mask] - 1];
        if (record->key_bytes == sample->key_bytes && update->files[record->file].split == sample->split &&
            memcmp(record->key, sample->key, sample->key_bytes) == 0)
            return record;
    }
    return NULL;
}

/* ---- sources ---- */

/* Returns whether a record was made of the same sources as the sample, as far as their names, sizes and, not
 * by_content, times say. */
static FshStatus compare_sources(const Compare *compare, const PackSample *sample, const OldRecord *record,
                                 bool *same_ret, FshError *error)
{
    const Update *update = compare->update;
    SourceRecord sources;
    FshStatus status = update_old_sources(update, record, &sources, error);
    if (status)
        return status;
    bool same = record->label < 0 ? sample->label < 0 : compare->labels[record->label] == sample->label;
    for (unsigned i = 0; i < sources.field_count && same; i++) {
        const PackSource source = sample_source(&compare->plan->found, sample, i);
        const SourceField *then = &sources.fields[i];
        same = then->bytes == source.bytes && then->path_bytes == source.path_bytes &&
               memcmp(then->path, source.path, source.path_bytes) == 0 &&
               (update->wanted.by_content || then->modified_ns == source.modified_ns);
    }
    *same_ret = same;
    return FSH_OK;
}

/* Compares the bytes of a sample's sources. What cannot be read differs: the work says why. */
static FshStatus compare_content(uint64_t item, int thread, void *context, FshError *error)
{
    Compare *compare = context;
    const PackFound *found = &compare->plan->found;
    const uint64_t planned = compare->candidates[item];
    const PackSample *sample = &compare->plan->split.samples[planned];
    const OldRecord *record = &compare->update->records[compare->matches[planned] - 1];
    SourceRecord sources;
    uint64_t bytes = 0;
    FshStatus status = update_old_sources(compare->update, record, &sources, error);
    for (size_t field = 0; field < found->field_count && !status; field++) {
        IntakeBytes taken = {0};
        FshError failure = {0};
        if (intake_original(&compare->intakes[thread], found, sample, field, NULL, &taken, &failure) ==
            FSH_ERR_MEMORY)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s", failure.message);
        bytes += taken.source_bytes;
        if (failure.status || taken.source_hash != sources.fields[field].hash)
            compare->differs[item] = 1;
    }
    progress_add(&compare->progress, 1, bytes, 0);
    return status;
}

static FshStatus compare_contents(Compare *compare, FshError *error)
{
    const PackOptions *options = compare->update->options;
    compare->differs = calloc(compare->candidate_count + 1, 1);
    compare->intakes = calloc((size_t)options->jobs, sizeof *compare->intakes);
    if (!compare->differs || !compare->intakes)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", options->source);
    progress_start(&compare->progress, stderr, "comparing", "samples", compare->candidate_count,
                   options->quiet);
    FshStatus status = pool_run(options->jobs, compare->candidate_count, compare_content, compare, error);
    progress_finish(&compare->progress);
    for (int thread = 0; thread < options->jobs; thread++)
        intake_free(&compare->intakes[thread]);
    return status;
}

/* ---- all samples ---- */

static FshStatus refuse_key(const Compare *compare, const PackSample *sample, uint64_t count, FshError *error)
{
    const Update *update = compare->update;
    return fsh_error_set(error, FSH_ERR_EXISTS,
                         "%s: %" PRIu64 " of its samples have keys that %s holds already of another folder, "
                         "the first is %.*s of %s; give its files or folders other names%s",
                         update->options->source, count, update->options->destination, (int)sample->key_bytes,
                         sample->key, fsh_split_name(sample->split),
                         update->wanted.append ? ", or --update if it is the folder that was packed" : "");
}

/* Finds for each sample the record of its key, and whether that is what the sample would give. */
static FshStatus match(Compare *compare, FshError *error)
{
    Update *update = compare->update;
    const PackSplit *split = &compare->plan->split;
    const PackSample *first = NULL;
    uint64_t refused = 0;
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < split->sample_count && !status; i++) {
        const PackSample *sample = &split->samples[i];
        OldRecord *record = find_record(compare, sample);
        bool same = false;
        if (record && !update->files[record->file].ours) {
            first = first ? first : sample;
            refused++;
            continue;
        }
        if (!record) {
            update->counts.added++;
            continue;
        }
        record->seen = true;
        status = compare_sources(compare, sample, record, &same, error);
        if (same) {
            compare->matches[i] = (uint64_t)(record - update->records) + 1;
            compare->candidates[compare->candidate_count++] = i;
        }
    }
    if (!status && refused)
        status = refuse_key(compare, first, refused, error);
    if (!status && update->wanted.by_content)
        status = compare_contents(compare, error);
    for (uint64_t i = 0; i < compare->candidate_count && !status; i++) {
        const uint64_t planned = compare->candidates[i];
        OldRecord *record = &update->records[compare->matches[planned] - 1];
        if (compare->differs && compare->differs[i])
            continue;
        record->live = true;
    }
    return status;
}

/* ---- what stays ---- */

/* Makes the list of a shard's rows that are no samples. */
static FshStatus list_removed(const Update *update, OldFile *file, FshError *error)
{
    const FshFileInfo *info = file->info;
    uint64_t next = file->first_record;
    const uint64_t end = file->first_record + file->record_count;
    file->removed = calloc((size_t)(file->head.record_count - file->live_count) + 1, sizeof *file->removed);
    if (!file->removed)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", info->name);
    for (uint64_t row = 0; row < file->head.record_count; row++) {
        while (next < end && update->records[next].number < row)
            next++;
        if (next < end && update->records[next].number == row && update->records[next].live)
            continue;
        FshRowRange *last = file->removed_count ? &file->removed[file->removed_count - 1] : NULL;
        if (last && last->first + last->count == row)
            last->count++;
        else
            file->removed[file->removed_count++] = (FshRowRange){.first = (uint32_t)row, .count = 1};
    }
    return FSH_OK;
}

/* Returns whether a shard has lost so much that the rest of it is packed again; or whether the manifest could
 * not tell what. */
static FshStatus has_lost_too_much(const OldFile *file, bool *lost_ret, FshError *error)
{
    Buffer text = {0};
    const uint64_t lost = file->head.record_count - file->live_count;
    FshStatus status = fsh_rows_format(file->removed, file->removed_count, &text, error);
    *lost_ret = lost > file->head.record_count / UPDATE_LOST_SHARE || text.length > ROWS_TEXT_BYTES_MAX;
    buffer_free(&text);
    return status;
}

static FshStatus judge_file(Update *update, OldFile *file, FshError *error)
{
    bool lost = false;
    const uint64_t end = file->first_record + file->record_count;
    for (uint64_t i = file->first_record; i < end; i++)
        file->live_count += update->records[i].live;
    FshStatus status = list_removed(update, file, error);
    if (!status)
        status = has_lost_too_much(file, &lost, error);
    if (status || !file->ours || !lost)
        return status;
    update->counts.moved += file->live_count;
    for (uint64_t i = file->first_record; i < end; i++)
        update->records[i].live = false;
    file->live_count = 0;
    return FSH_OK;
}

/* Counts, and judges each shard. */
static FshStatus judge(Compare *compare, FshError *error)
{
    Update *update = compare->update;
    UpdateCounts *counts = &update->counts;
    uint64_t known = 0;
    for (uint64_t i = 0; i < update->record_count; i++) {
        OldRecord *record = &update->records[i];
        if (!update->files[record->file].ours) {
            record->live = true;
            counts->unchanged++;
        } else {
            known += record->seen;
            counts->unchanged += record->live;
            counts->changed += record->seen && !record->live;
            counts->vanished += !record->seen;
        }
    }
    if (known == 0 && counts->vanished && !update->wanted.append)
        return fsh_error_set(error, FSH_ERR_MISMATCH,
                             "%s: has none of the samples that %s holds: is it the folder that was packed? "
                             "--append adds another one, --force packs anew",
                             update->options->source, update->options->destination);
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < update->file_count && !status; i++) {
        OldFile *file = &update->files[i];
        status = judge_file(update, file, error);
        counts->gone_files += file->live_count == 0 && file->head.record_count > 0;
        if (!status && file->live_count) {
            counts->dead_records += file->head.record_count - file->live_count;
            counts->dead_files += file->live_count < file->head.record_count;
        }
    }
    return status;
}

/* Leaves in the plan what is to be packed. */
static void take_out(Compare *compare)
{
    const Update *update = compare->update;
    PackSplit *split = &compare->plan->split;
    uint64_t kept = 0, next = 0;
    for (uint32_t at = 0; at < PACK_SPLITS; at++) {
        SplitRange *range = &split->ranges[at];
        const uint64_t end = range->first_sample + range->sample_count, first = kept;
        for (; next < end; next++) {
            const uint64_t match = compare->matches[next];
            const OldRecord *record = match ? &update->records[match - 1] : NULL;
            if (!record || !record->live)
                split->samples[kept++] = split->samples[next];
        }
        *range = (SplitRange){.present = kept > first, .first_sample = first, .sample_count = kept - first};
    }
    split->sample_count = kept;
}

FshStatus update_compare(Update *update, PackPlan *plan, FshError *error)
{
    const uint64_t count = plan->split.sample_count;
    Compare compare = {.update = update,
                       .plan = plan,
                       .matches = calloc(count + 1, sizeof *compare.matches),
                       .candidates = calloc(count + 1, sizeof *compare.candidates),
                       .labels = update_map_classes(update->manifest, &plan->keyed)};
    FshStatus status = FSH_OK;
    update->planned_count = count;
    if (!compare.matches || !compare.candidates || !compare.labels)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", update->options->source);
    if (!status)
        status = make_table(&compare, error);
    if (!status)
        status = match(&compare, error);
    if (!status)
        status = judge(&compare, error);
    if (!status)
        take_out(&compare);
    free(compare.table);
    free(compare.matches);
    free(compare.candidates);
    free(compare.differs);
    free(compare.labels);
    free(compare.intakes);
    return status;
}
