#include "tools/pack/pack.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/progress.h"
#include "tools/pack/destination.h"
#include "tools/pack/provenance.h"
#include "tools/pack/resume.h"
#include "tools/pack/work.h"

/* One run. The work only reads plan, options, pending and starts; the rest is the deliverer's. */
typedef struct Run {
    const Plan *plan;
    const PackOptions *options;
    Destination destination;
    uint32_t statistics_split; /* whose pixels are summed: train, or the first there is */

    size_t *pending; /* outputs to make, in order */
    size_t pending_count;
    uint64_t *starts; /* starts[i]: item that begins pending[i]; starts[pending_count]: items in all */
    Worker *workers;

    size_t current;      /* of pending */
    FshWriter *writer;   /* of the current output; NULL between two */
    OutputResult output; /* likewise */

    PackTotals totals;
    PackResult *result;
    PackLeftOut left_out;
    void *left_out_context;
    Progress progress;
} Run;

/* ---- work ---- */

/* The pending output that an item belongs to: the last that starts at or before it. */
static size_t find_pending(const Run *run, uint64_t item)
{
    size_t low = 0, high = run->pending_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (run->starts[middle] <= item)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static const PlanSample *sample_of(const Run *run, uint64_t item, size_t pending)
{
    const PlanOutput *output = &run->plan->outputs[run->pending[pending]];
    return &run->plan->samples[output->first_sample + (item - run->starts[pending])];
}

static FshStatus work(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    Run *run = context;
    const PlanSample *sample = sample_of(run, item, find_pending(run, item));
    return work_sample(&run->workers[thread], run->plan, run->options, sample,
                       sample->split == run->statistics_split, slot, error);
}

/* ---- deliver ---- */

static FshStatus start_output(Run *run, FshError *error)
{
    const Plan *plan = run->plan;
    const PlanOutput *output = &plan->outputs[run->pending[run->current]];
    const char *split = plan_split_names[output->split];
    char name[NAME_MAX + 1], path[PATH_MAX];
    (void)fsh_file_name(name, sizeof name, run->options->container, split, output->shard_index,
                        output->shard_count);
    FshStatus status = file_join(path, sizeof path, run->destination.folder, name, error);
    if (status)
        return status;
    run->output.class_counts = calloc(plan->class_count + 1, sizeof *run->output.class_counts);
    if (!run->output.class_counts)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    const FshWriterOptions options = {
        .container = run->options->container,
        .dataset_id = plan->id,
        .split = split,
        .kind = plan->kind,
        .field_names = plan->field_names,
        .field_count = plan->field_count,
        .class_names = (const char *const *)plan->class_names,
        .class_count = plan->class_count,
        .shard_index = output->shard_index,
        .shard_count = output->shard_count,
        .force = true, /* an output of this name in our locked folder is one that must be made again */
    };
    return fsh_writer_open(&run->writer, path, &options, error);
}

/* Takes a finished output into the totals; its parts move over. */
static FshStatus count_output(Run *run, size_t index, OutputResult *output, FshError *error)
{
    const Plan *plan = run->plan;
    const uint32_t split = plan->outputs[index].split;
    FshStatus status = FSH_OK;
    run->totals.infos[index] = output->info;
    output->info.name = NULL;
    run->totals.sample_counts[split] += output->info.sample_count;
    for (size_t i = 0; i < plan->class_count; i++)
        run->totals.class_counts[split][i] += output->class_counts[i];
    stats_merge(&run->totals.statistics, &output->statistics);
    run->totals.left_out_count += output->left_out.count;
    run->result->sample_count += output->info.sample_count;
    run->result->written_bytes += output->info.bytes;
    run->result->source_bytes += output->source_bytes;
    for (size_t i = 0; i < output->left_out.count && !status; i++) {
        const Note *note = &output->left_out.items[i];
        status = notes_add(&run->result->left_out, note->status, note->path, note->reason, error);
    }
    output_result_free(output);
    return status;
}

static FshStatus finish_output(Run *run, FshError *error)
{
    const size_t index = run->pending[run->current];
    FshStatus status = fsh_writer_finish(run->writer, &run->output.info, error);
    fsh_writer_close(&run->writer);
    if (!status)
        status =
            resume_save(run->plan, &run->plan->outputs[index], run->destination.folder, &run->output, error);
    if (!status)
        status = count_output(run, index, &run->output, error);
    run->current++;
    return status;
}

static FshStatus note_left_out(Run *run, const PlanSample *sample, const WorkResult *work_result,
                               FshError *error)
{
    NoteList *list = &run->output.left_out;
    const char *path = plan_source(run->plan, sample, work_result->failed_field)->path;
    FshStatus status = notes_add(list, work_result->failure, path, work_result->reason, error);
    if (!status && run->left_out) {
        progress_clear(&run->progress);
        run->left_out(&list->items[list->count - 1], run->left_out_context);
    }
    return status;
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    Run *run = context;
    const WorkResult *work_result = slot;
    const PlanSample *sample = sample_of(run, item, run->current);
    FshStatus status = FSH_OK;
    if (!run->writer)
        status = start_output(run, error);
    if (!status && work_result->failure) {
        status = note_left_out(run, sample, work_result, error);
    } else if (!status) {
        status =
            fsh_writer_put_record(run->writer, work_result->record.bytes, work_result->record.length, error);
        if (sample->label >= 0)
            run->output.class_counts[sample->label]++;
        run->output.source_bytes += work_result->source_bytes;
        stats_merge(&run->output.statistics, &work_result->statistics);
    }
    if (status)
        return status;
    run->result->worked_count++;
    run->result->worked_bytes += work_result->source_bytes;
    progress_add(&run->progress, 1, work_result->source_bytes, work_result->failure != FSH_OK);
    return item + 1 == run->starts[run->current + 1] ? finish_output(run, error) : FSH_OK;
}

/* ---- the run ---- */

static FshStatus allocate(Run *run, FshError *error)
{
    const Plan *plan = run->plan;
    run->pending = calloc(plan->output_count + 1, sizeof *run->pending);
    run->starts = calloc(plan->output_count + 1, sizeof *run->starts);
    run->workers = calloc((size_t)run->options->jobs, sizeof *run->workers);
    run->totals.infos = calloc(plan->output_count + 1, sizeof *run->totals.infos);
    bool complete = run->pending && run->starts && run->workers && run->totals.infos;
    for (uint32_t split = 0; split < PLAN_SPLITS; split++) {
        run->totals.class_counts[split] = calloc(plan->class_count + 1, sizeof(uint64_t));
        complete = complete && run->totals.class_counts[split];
    }
    return complete ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", plan->root);
}

static void release(Run *run)
{
    for (int thread = 0; run->workers && thread < run->options->jobs; thread++)
        worker_free(&run->workers[thread]);
    for (size_t i = 0; run->totals.infos && i < run->plan->output_count; i++)
        free(run->totals.infos[i].name);
    for (uint32_t split = 0; split < PLAN_SPLITS; split++)
        free(run->totals.class_counts[split]);
    fsh_writer_close(&run->writer); /* what it was writing goes with it */
    output_result_free(&run->output);
    free(run->totals.infos);
    free(run->pending);
    free(run->starts);
    free(run->workers);
}

/* Takes over what an earlier run finished; the rest is pending. */
static FshStatus find_pending_outputs(Run *run, FshError *error)
{
    const Plan *plan = run->plan;
    FshStatus status = FSH_OK;
    uint64_t items = 0;
    for (size_t i = 0; i < plan->output_count && !status; i++) {
        bool kept = false;
        OutputResult output = {0};
        if (run->destination.resumes)
            status = resume_load(plan, &plan->outputs[i], run->options->container, run->destination.folder,
                                 &output, &kept, error);
        if (status)
            break;
        if (kept) {
            for (size_t n = 0; n < output.left_out.count && run->left_out; n++)
                run->left_out(&output.left_out.items[n], run->left_out_context);
            status = count_output(run, i, &output, error);
            run->result->kept_output_count++;
        } else {
            run->pending[run->pending_count] = i;
            run->starts[run->pending_count++] = items;
            items += plan->outputs[i].sample_count;
        }
    }
    run->starts[run->pending_count] = items;
    return status;
}

static FshStatus write_manifest(Run *run, FshError *error)
{
    FshManifest *manifest = &run->result->manifest;
    if (run->result->sample_count == 0) {
        const uint64_t planned = run->plan->sample_count;
        FshStatus status = destination_clear(&run->destination, error);
        return status
                   ? status
                   : fsh_error_set(error, FSH_ERR_CORRUPT,
                                   "%s: none of its %" PRIu64 " samples can be packed; nothing was written",
                                   run->plan->root, planned);
    }
    FshStatus status = provenance_manifest(run->plan, run->options, &run->totals, manifest, error);
    if (!status)
        status = fsh_manifest_save(manifest, run->destination.folder, false, error);
    return status;
}

FshStatus pack_run(const Plan *plan, const PackOptions *options, PackLeftOut left_out, void *context,
                   PackResult *result, FshError *error)
{
    Run run = {.plan = plan,
               .options = options,
               .result = result,
               .left_out = left_out,
               .left_out_context = context};
    *result = (PackResult){0};
    const double begin = progress_now_seconds();
    while (!plan->splits[run.statistics_split].present)
        run.statistics_split++;

    FshStatus status = destination_open(&run.destination, options->destination, options->source, plan->id,
                                        options->force, error);
    if (status)
        return status;
    status = allocate(&run, error);
    if (!status)
        status = find_pending_outputs(&run, error);
    if (!status) {
        const uint64_t items = run.starts[run.pending_count];
        progress_start(&run.progress, stderr, "packing", "samples", items, options->quiet);
        status = pool_run_ordered(options->jobs, items, 0, sizeof(WorkResult), work, deliver,
                                  work_result_free, &run, error);
        progress_finish(&run.progress);
    }
    if (status == FSH_ERR_INTERRUPTED)
        status = fsh_error_set(
            error, status,
            "%s: interrupted; %zu of %zu files of the dataset are complete, the same command goes on "
            "from there",
            options->destination, plan->output_count - (run.pending_count - run.current), plan->output_count);
    if (!status)
        status = write_manifest(&run, error);
    release(&run);
    if (!status)
        status = destination_finish(&run.destination, error);
    destination_close(&run.destination);
    result->seconds = progress_now_seconds() - begin;
    return status;
}

void pack_result_free(PackResult *result)
{
    fsh_manifest_free(&result->manifest);
    notes_free(&result->left_out);
    *result = (PackResult){0};
}
