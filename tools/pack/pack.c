#include "tools/pack/pack.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/progress.h"
#include "common/text.h"
#include "formats/source_list.h"
#include "tools/pack/pack_blueprint.h"
#include "tools/pack/pack_budget.h"
#include "tools/job/destination.h"
#include "tools/pack/pack_work.h"

/* What a thread takes at a time: a few neighbouring samples of one output, since a sample of a kilobyte costs
 * less than handing it from thread to thread. */
enum { CHUNK_SAMPLES = 32, CHUNK_BYTES = 64 * 1024 };

/* Records in hand, for each job; and between two chunks as much: a buffer larger than BUFFER_KEPT_BYTES, of
 * which each job has four, is not kept for the next. */
enum { JOB_BYTES = 32 << 20, BUFFER_KEPT_BYTES = JOB_BYTES / 4 };

typedef struct Chunk {
    uint64_t first_sample; /* of plan->split.samples */
    uint32_t count;
    uint64_t bytes; /* of its records, about: payloads, or the source's files */
} Chunk;

/* What came of a chunk's samples. */
typedef struct ChunkResult {
    WorkResult results[CHUNK_SAMPLES];
    Buffer records; /* one after the other */
} ChunkResult;

/* One run. The work only reads plan, options and chunks; the rest is the deliverer's. */
typedef struct Run {
    const PackPlan *plan;
    Destination destination;
    uint32_t statistics_split; /* whose pixels are summed: train, or the first there is */

    size_t *pending; /* outputs to make, in order */
    size_t pending_count;
    Chunk *chunks; /* of the pending outputs, in order */
    uint64_t chunk_count, chunk_capacity;
    Worker *workers;
    Budget budget;

    size_t current;      /* of pending */
    FshWriter *writer;   /* of the current output; NULL between two */
    OutputResult output; /* likewise */
    /* of its samples, which the system could not read; of all outputs, without skip_unread */
    uint64_t unread_count, all_unread_count;

    Blueprint blueprint;
    PackResult *result;
    PackLeftOut left_out;
    void *left_out_context;
    Progress progress;
} Run;

/* ---- work ---- */

/* Asks for the files of the chunk whose turn comes when all jobs have done some more. */
static void ask_ahead(Run *run, uint64_t item, int thread)
{
    const PackFound *found = &run->plan->found;
    const uint64_t next = item + (uint64_t)found->options->jobs * READ_AHEAD_PLACES;
    if (next < run->chunk_count)
        intake_ask(&run->workers[thread].intake, found,
                   &run->plan->split.samples[run->chunks[next].first_sample], run->chunks[next].count);
}

static FshStatus work(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    Run *run = context;
    ChunkResult *result = slot;
    const Chunk *chunk = &run->chunks[item];
    FshStatus status = FSH_OK;
    ask_ahead(run, item, thread);
    budget_take(&run->budget, item, chunk->bytes);
    result->records.length = 0;
    for (uint32_t i = 0; i < chunk->count && !status; i++) {
        const PackSample *sample = &run->plan->split.samples[chunk->first_sample + i];
        status =
            work_sample(&run->workers[thread], &run->plan->stored, sample,
                        sample->split == run->statistics_split, &result->records, &result->results[i], error);
    }
    if (status)
        budget_open(&run->budget);
    return status;
}

static void chunk_result_free(void *slot)
{
    buffer_free(&((ChunkResult *)slot)->records);
}

/* ---- deliver ---- */

static FshStatus start_output(Run *run, FshError *error)
{
    const PackPlan *plan = run->plan;
    const PackOutput *output = &plan->outputs[run->pending[run->current]];
    const char *split = fsh_split_name(output->split);
    char name[NAME_MAX + 1], path[PATH_MAX];
    (void)fsh_file_name(name, sizeof name, run->plan->found.options->container, split, output->shard_index,
                        output->shard_count);
    FshStatus status = file_join(path, sizeof path, run->destination.folder, name, error);
    if (status)
        return status;
    run->output.class_counts = calloc(plan->keyed.class_count + 1, sizeof *run->output.class_counts);
    if (!run->output.class_counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    const FshWriterOptions options = {
        .container = run->plan->found.options->container,
        .dataset_id = plan->id,
        .split = split,
        .kind = plan->found.kind,
        .field_names = plan->found.field_names,
        .field_count = plan->found.field_count,
        .class_names = (const char *const *)plan->keyed.class_names,
        .class_count = plan->keyed.class_count,
        .shard_index = output->shard_index,
        .shard_count = output->shard_count,
        .dictionary = plan->stored.dictionary,
        .dictionary_bytes = plan->stored.dictionary_bytes,
        .record_form = work_record_form(&plan->stored),
        .force = true, /* an output of this name in our locked folder is one that must be made again */
    };
    return fsh_writer_open(&run->writer, path, &options, error);
}

/* Takes a finished output into the totals; its parts move over. */
static FshStatus count_output(Run *run, size_t index, OutputResult *output, FshError *error)
{
    FshStatus status = pack_result_add(run->result, output, error);
    blueprint_add(&run->blueprint, index, output);
    output_result_free(output);
    return status;
}

/* Drops an output whose files could not all be read, and leaves it to the next run; what was left out is
 * told. */
static FshStatus drop_output(Run *run, FshError *error)
{
    FshStatus status = FSH_OK;
    fsh_writer_close(&run->writer);
    for (size_t i = 0; i < run->output.left_out.count && !status; i++) {
        const Note *note = &run->output.left_out.items[i];
        status = notes_add(&run->result->left_out, note->status, note->path, note->reason, error);
    }
    output_result_free(&run->output);
    run->all_unread_count += run->unread_count;
    run->unread_count = 0;
    run->current++;
    return status;
}

/* Notes what a sample was made of, for fpack --update. */
static FshStatus add_source(Run *run, const PackSample *sample, const WorkResult *work_result,
                            FshError *error)
{
    const PackFound *found = &run->plan->found;
    SourceRecord record = {
        .key = sample->key, .key_bytes = sample->key_bytes, .field_count = (unsigned)found->field_count};
    for (size_t field = 0; field < found->field_count; field++) {
        const PackSource source = sample_source(found, sample, field);
        record.fields[field] = (SourceField){.bytes = source.bytes,
                                             .modified_ns = source.modified_ns,
                                             .hash = work_result->taken[field].hash,
                                             .width = work_result->taken[field].width,
                                             .height = work_result->taken[field].height,
                                             .channels = work_result->taken[field].channels,
                                             .path = source.path,
                                             .path_bytes = source.path_bytes};
    }
    return fsh_sources_add(&run->output.sources, &record, error);
}

/* Writes what the samples of the output that was just finished were made of. */
static FshStatus save_sources(const Run *run, FshError *error)
{
    char root[PATH_MAX];
    const OutputResult *output = &run->output;
    json_t *object = stats_to_json(&output->statistics);
    char *statistics = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(object);
    if (!statistics)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", output->info.name);
    const PackBase *base = run->plan->base;
    pack_root(run->plan->found.options, root);
    if (base)
        memcpy(root, base->root, sizeof root);
    const SourcesHead head = {.field_count = (unsigned)run->plan->found.field_count,
                              .record_count = output->info.sample_count,
                              .shard_hash = output->info.hash,
                              .root = root,
                              .root_bytes = strlen(root),
                              .statistics = statistics,
                              .statistics_bytes = strlen(statistics)};
    FshStatus status =
        fsh_sources_save(run->destination.folder, output->info.name, &head, &output->sources, error);
    free(statistics);
    return status;
}

/* Gives a finished file to whoever takes them; of a part also what the merge needs of it, last what says that
 * it is finished. */
static FshStatus hand_over(const Run *run, const char *name, FshError *error)
{
    const PackOptions *options = run->plan->found.options;
    const PackTaker *taker = options->taker;
    char sources[NAME_MAX + sizeof "." FSH_SOURCES_SUFFIX], progress[NAME_MAX + sizeof "..json"];
    FshStatus status = taker ? taker->file(taker->context, name, error) : FSH_OK;
    if (status || !taker || !options->part.count)
        return status;
    (void)fsh_sources_name(sources, sizeof sources, name);
    (void)resume_name(progress, sizeof progress, name);
    if (file_exists_in(run->destination.folder, sources))
        status = taker->file(taker->context, sources, error);
    if (!status && !file_exists_in(run->destination.folder, progress))
        status = fsh_error_set(error, FSH_ERR_UNSUPPORTED,
                               "%s: a path that was left out is no UTF-8, so that no merge could tell it; "
                               "rename it, or pack without --part",
                               name);
    return status ? status : taker->file(taker->context, progress, error);
}

static FshStatus finish_output(Run *run, FshError *error)
{
    const size_t index = run->pending[run->current];
    if (run->unread_count)
        return drop_output(run, error);
    FshStatus status = fsh_writer_finish(run->writer, &run->output.info, error);
    fsh_writer_close(&run->writer);
    if (!status && fsh_container_has(run->plan->found.options->container, FSH_HAS_SOURCES))
        status = save_sources(run, error);
    if (!status)
        status =
            resume_save(run->plan, &run->plan->outputs[index], run->destination.folder, &run->output, error);
    if (!status)
        status = hand_over(run, run->output.info.name, error);
    if (!status)
        status = count_output(run, index, &run->output, error);
    run->current++;
    return status;
}

static FshStatus note_left_out(Run *run, const PackSample *sample, const WorkResult *work_result,
                               FshError *error)
{
    NoteList *list = &run->output.left_out;
    char name[PATH_MAX];
    FshStatus status =
        notes_add(list, work_result->failure,
                  sample_source_name(&run->plan->found, sample, work_result->failed_field, name),
                  work_result->reason, error);
    if (!status && run->left_out) {
        progress_clear(&run->progress);
        run->left_out(&list->items[list->count - 1], run->left_out_context);
    }
    return status;
}

static bool is_unread(const Run *run, FshStatus failure)
{
    return failure == FSH_ERR_SYSTEM && !run->plan->found.options->skip_unread;
}

static FshStatus deliver_sample(Run *run, const PackSample *sample, const WorkResult *work_result,
                                const Buffer *records, FshError *error)
{
    FshStatus status = FSH_OK;
    if (work_result->failure) {
        status = note_left_out(run, sample, work_result, error);
        run->unread_count += is_unread(run, work_result->failure);
    } else {
        status = fsh_writer_put_record(run->writer, records->bytes + work_result->record_offset,
                                       work_result->record_bytes, error);
        if (sample->label >= 0)
            run->output.class_counts[sample->label]++;
        run->output.source_bytes += work_result->source_bytes;
        stats_merge(&run->output.statistics, &work_result->statistics);
        for (size_t i = 0; i < 4; i++)
            run->result->mask_values[i] |= work_result->statistics.mask_values[i];
        stored_add_planes(&run->output.planes, &work_result->planes);
        if (!status && fsh_container_has(run->plan->found.options->container, FSH_HAS_SOURCES))
            status = add_source(run, sample, work_result, error);
    }
    run->result->worked_count++;
    run->result->worked_bytes += work_result->source_bytes;
    return status;
}

static FshStatus deliver_chunk(Run *run, const Chunk *chunk, const ChunkResult *result, FshError *error)
{
    const PackOutput *output = &run->plan->outputs[run->pending[run->current]];
    const uint64_t end = chunk->first_sample + chunk->count;
    uint64_t bytes = 0, failed = 0;
    FshStatus status = run->writer ? FSH_OK : start_output(run, error);
    for (uint32_t i = 0; i < chunk->count && !status; i++) {
        status = deliver_sample(run, &run->plan->split.samples[chunk->first_sample + i], &result->results[i],
                                &result->records, error);
        bytes += result->results[i].source_bytes;
        failed += result->results[i].failure != FSH_OK;
    }
    if (status)
        return status;
    progress_add(&run->progress, chunk->count, bytes, failed);
    return end == output->first_sample + output->sample_count ? finish_output(run, error) : FSH_OK;
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    Run *run = context;
    ChunkResult *result = slot;
    const Chunk *chunk = &run->chunks[item];
    FshStatus status = deliver_chunk(run, chunk, result, error);
    /* Else every buffer of every slot would grow to the largest record in time. */
    if (result->records.capacity > BUFFER_KEPT_BYTES)
        buffer_free(&result->records);
    if (status)
        budget_open(&run->budget);
    else
        budget_give(&run->budget, item, chunk->bytes);
    return status;
}

/* ---- the run ---- */

static FshStatus allocate(Run *run, FshError *error)
{
    const PackPlan *plan = run->plan;
    run->pending = calloc(plan->output_count + 1, sizeof *run->pending);
    run->workers = calloc((size_t)run->plan->found.options->jobs, sizeof *run->workers);
    if (!run->pending || !run->workers)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->found.root);
    return blueprint_make(&run->blueprint, plan, error);
}

static void release(Run *run)
{
    for (int thread = 0; run->workers && thread < run->plan->found.options->jobs; thread++)
        worker_free(&run->workers[thread]);
    blueprint_free(&run->blueprint);
    output_result_free(&run->output);
    free(run->pending);
    free(run->chunks);
    free(run->workers);
    budget_destroy(&run->budget);
}

static FshStatus add_chunk(Run *run, const Chunk *chunk, FshError *error)
{
    if (run->chunk_count == run->chunk_capacity) {
        uint64_t capacity = run->chunk_capacity ? 2 * run->chunk_capacity : 256;
        Chunk *chunks = reallocarray(run->chunks, capacity, sizeof *chunks);
        if (!chunks)
            return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", run->plan->found.root);
        run->chunks = chunks;
        run->chunk_capacity = capacity;
    }
    run->chunks[run->chunk_count++] = *chunk;
    return FSH_OK;
}

/* Cuts an output into chunks of at most CHUNK_SAMPLES and about CHUNK_BYTES. */
static FshStatus add_pending(Run *run, size_t index, FshError *error)
{
    const PackPlan *plan = run->plan;
    const PackOutput *output = &plan->outputs[index];
    Chunk chunk = {.first_sample = output->first_sample};
    FshStatus status = FSH_OK;
    run->pending[run->pending_count++] = index;
    for (uint64_t i = 0; i < output->sample_count && !status; i++) {
        if (chunk.count == CHUNK_SAMPLES || chunk.bytes >= CHUNK_BYTES) {
            status = add_chunk(run, &chunk, error);
            chunk = (Chunk){.first_sample = output->first_sample + i};
        }
        chunk.bytes += stored_sample_bytes(&plan->stored, &plan->split.samples[output->first_sample + i]);
        chunk.count++;
    }
    return status ? status : add_chunk(run, &chunk, error);
}

/* Looks whether an earlier run finished an output. *kept_ret: it did, and *result has it. */
static FshStatus find_output(const Run *run, size_t index, OutputResult *result, bool *kept_ret,
                             FshError *error)
{
    const PackPlan *plan = run->plan;
    const PackOutput *output = &plan->outputs[index];
    char sources[RESUME_SOURCES_BYTES];
    FshSplitInfo *split = NULL;
    const FshFileInfo *file = blueprint_output(&run->blueprint, index, &split);
    resume_sources(plan, output, sources);
    const ResumeKey key = {.id = plan->id,
                           .split = split->name,
                           .name = file->name,
                           .container = run->plan->found.options->container,
                           .class_count = plan->keyed.class_count,
                           .sources = sources};
    return resume_load(&key, run->destination.folder, result, kept_ret, error);
}

/* Takes over what an earlier run finished; the rest is pending, *sample_count_ret samples of it. */
static FshStatus find_pending_outputs(Run *run, uint64_t *sample_count_ret, FshError *error)
{
    const PackPlan *plan = run->plan;
    size_t end = 0;
    *sample_count_ret = 0;
    FshStatus status =
        blueprint_part(&run->blueprint, plan->found.options->part, &run->result->first_output, &end, error);
    run->result->output_count = end - run->result->first_output;
    for (size_t i = run->result->first_output; i < end && !status; i++) {
        bool kept = false;
        OutputResult output = {0};
        if (run->destination.resumes)
            status = find_output(run, i, &output, &kept, error);
        if (status)
            break;
        for (size_t n = 0; n < output.left_out.count && kept; n++)
            kept = !is_unread(run, output.left_out.items[n].status);
        if (!kept)
            output_result_free(&output);
        if (kept) {
            for (size_t n = 0; n < output.left_out.count && run->left_out; n++)
                run->left_out(&output.left_out.items[n], run->left_out_context);
            status = hand_over(run, output.info.name, error);
            status = status ? status : count_output(run, i, &output, error);
            run->result->kept_output_count++;
        } else {
            status = add_pending(run, i, error);
            *sample_count_ret += plan->outputs[i].sample_count;
        }
    }
    return status;
}

/* Ends the run: writes the manifest or, for a part, nothing more than what lies there. */
static FshStatus finish(Run *run, FshError *error)
{
    if (run->all_unread_count)
        return fsh_error_set(
            error, FSH_ERR_SYSTEM,
            "%s: not finished: %" PRIu64 " sample%s could not be read; the same command goes on "
            "with them, --on-error skip finishes without them",
            run->plan->found.options->destination, run->all_unread_count, text_plural(run->all_unread_count));
    const PackOptions *options = run->plan->found.options;
    if (options->part.count || run->plan->base) {
        const FshStatus status = options->taker && options->part.count
                                     ? options->taker->part(options->taker->context, error)
                                     : FSH_OK;
        if (status)
            return status;
        run->result->manifest = run->blueprint.manifest;
        run->blueprint.manifest = (FshManifest){0};
        return destination_leave_part(&run->destination, error);
    }
    if (run->result->sample_count == 0) {
        FshStatus status = destination_clear(&run->destination, error);
        return status
                   ? status
                   : fsh_error_set(error, FSH_ERR_CORRUPT,
                                   "%s: none of its samples (%" PRIu64 ") can be packed; nothing was written",
                                   run->plan->found.root, run->plan->split.sample_count);
    }
    return pack_finish(&run->blueprint, &run->destination, run->plan->found.options->taker, run->result,
                       error);
}

FshStatus pack_finish(Blueprint *blueprint, Destination *destination, const PackTaker *taker,
                      PackResult *result, FshError *error)
{
    FshStatus status = blueprint_finish(blueprint, error);
    if (!status)
        status = fsh_manifest_identify(&blueprint->manifest, error);
    if (!status)
        status = fsh_manifest_save(&blueprint->manifest, destination->folder, false, error);
    if (!status && taker)
        status = taker->manifest(taker->context, &blueprint->manifest, error);
    if (!status)
        status = destination_finish(destination, error);
    result->manifest = blueprint->manifest;
    blueprint->manifest = (FshManifest){0};
    return status;
}

/* Returns the folder that is walked, in which the destination would be found as a class; NULL: none is. A
 * list finds nothing but what it names. */
static const char *walked_source(const PackOptions *options)
{
    return options->files_from || options->root[0] ? NULL : options->source;
}

void pack_root(const PackOptions *options, char root[PATH_MAX])
{
    if (!realpath(options->source, root)) /* several files in one word */
        (void)snprintf(root, PATH_MAX, "%s", options->source);
}

/* Sets the error of a run that was interrupted, or adds to that of one whose disk was full, what is done and
 * that the same command goes on. */
static void say_what_goes_on(const Run *run, FshStatus status, FshError *error)
{
    const PackOptions *options = run->plan->found.options;
    const size_t count = run->result->output_count;
    char reason[sizeof error->message];
    const bool is_full = status == FSH_ERR_NO_SPACE; /* the message names the file */
    if (is_full)
        (void)snprintf(reason, sizeof reason, "%s", error->message);
    else
        (void)snprintf(reason, sizeof reason, "%s: interrupted", options->destination);
    (void)fsh_error_set(error, status,
                        "%s; %zu of %zu files of the %s are complete%sthe same command goes on from there",
                        reason, count - (run->pending_count - run->current), count,
                        options->part.count ? "part" : "dataset", is_full ? "; with more room, " : ", ");
}

FshStatus pack_run(const PackPlan *plan, PackLeftOut left_out, void *context, PackResult *result,
                   FshError *error)
{
    const PackOptions *options = plan->found.options;
    Run run = {.plan = plan, .result = result, .left_out = left_out, .left_out_context = context};
    *result = (PackResult){0};
    budget_init(&run.budget, (uint64_t)options->jobs * JOB_BYTES);
    run.statistics_split = plan->split.main;

    const DestinationOptions where = {.source = walked_source(options),
                                      .id = plan->id,
                                      .force = options->force || plan->base,
                                      .part = options->part};
    FshStatus status = destination_open(
        &run.destination, plan->base ? plan->base->folder : options->destination, &where, error);
    if (status) {
        budget_destroy(&run.budget);
        return status;
    }
    status = allocate(&run, error);
    uint64_t sample_count = 0;
    /* Before what an earlier run finished is added to it: --merge adds all outputs itself. */
    if (!status && options->part.count)
        status = blueprint_save(&run.blueprint, run.destination.folder, error);
    if (!status)
        status = find_pending_outputs(&run, &sample_count, error);
    if (!status) {
        progress_start(&run.progress, stderr, "packing", "samples", sample_count, options->quiet);
        status = pool_run_ordered(options->jobs, run.chunk_count, 0, sizeof(ChunkResult), work, deliver,
                                  chunk_result_free, &run, error);
        progress_finish(&run.progress);
        if (status == FSH_ERR_INTERRUPTED || status == FSH_ERR_NO_SPACE)
            say_what_goes_on(&run, status, error);
    }
    fsh_writer_close(&run.writer); /* what it was writing goes with it */
    if (!status)
        status = finish(&run, error);
    release(&run);
    destination_close(&run.destination);
    return status;
}

FshStatus pack_preview(const PackPlan *plan, PackResult *result, FshError *error)
{
    const PackOptions *options = plan->found.options;
    const DestinationOptions where = {
        .source = walked_source(options), .id = plan->id, .force = options->force, .part = options->part};
    Blueprint blueprint = {0};
    size_t end = 0;
    *result = (PackResult){0};
    FshStatus status = destination_check(options->destination, &where, error);
    if (!status)
        status = blueprint_make(&blueprint, plan, error);
    if (!status)
        status = blueprint_part(&blueprint, options->part, &result->first_output, &end, error);
    if (status) {
        blueprint_free(&blueprint);
        return status;
    }
    result->output_count = end - result->first_output;
    for (size_t index = result->first_output; index < end; index++) {
        const PackOutput *output = &plan->outputs[index];
        FshSplitInfo *split = NULL;
        (void)blueprint_output(&blueprint, index, &split);
        split->sample_count += output->sample_count;
        for (uint64_t i = 0; i < output->sample_count && split->class_counts; i++) {
            const int32_t label = plan->split.samples[output->first_sample + i].label;
            if (label >= 0) /* a tar's sample may have none */
                split->class_counts[label]++;
        }
        result->sample_count += output->sample_count;
        result->written_bytes += output->record_bytes;
    }
    result->manifest = blueprint.manifest;
    blueprint.manifest = (FshManifest){0};
    blueprint_free(&blueprint);
    return FSH_OK;
}

FshStatus pack_result_add(PackResult *result, const OutputResult *output, FshError *error)
{
    FshStatus status = FSH_OK;
    result->sample_count += output->info.sample_count;
    result->written_bytes += output->info.bytes;
    result->source_bytes += output->source_bytes;
    stored_add_planes(&result->planes, &output->planes);
    for (size_t i = 0; i < output->left_out.count && !status; i++) {
        const Note *note = &output->left_out.items[i];
        status = notes_add(&result->left_out, note->status, note->path, note->reason, error);
    }
    return status;
}

void pack_result_free(PackResult *result)
{
    fsh_manifest_free(&result->manifest);
    notes_free(&result->left_out);
    *result = (PackResult){0};
}
