#include "tools/pack/pack_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/program.h"
#include "common/progress.h"

static json_t *note_to_json(const Note *note)
{
    return json_pack("{s:o, s:o, s:s}", "path", json_text(note->path), "reason", json_text(note->reason),
                     "kind", fsh_strerror(note->status));
}

FshStatus report_check_path(const char *path, bool force, FshError *error)
{
    static const char begin[] = "{\"kind\":"; /* keys are sorted: so begins what note_to_json makes */
    char bytes[sizeof begin - 1];
    FILE *stream = force ? NULL : fopen(path, "re");
    if (!stream)
        return FSH_OK;
    size_t length = fread(bytes, 1, sizeof bytes, stream);
    (void)fclose(stream);
    if (length == 0 || (length == sizeof bytes && memcmp(bytes, begin, sizeof bytes) == 0))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_EXISTS,
                         "%s: exists and is no report of fpack; --force replaces it, or name another file",
                         path);
}

FshStatus report_write_left_out(const char *path, const NoteList *planned, const NoteList *worked,
                                FshError *error)
{
    const NoteList *lists[] = {planned, worked};
    Buffer text = {0};
    FshStatus status = FSH_OK;
    for (size_t list = 0; list < 2; list++) {
        for (size_t i = 0; i < lists[list]->count && !status; i++) {
            json_t *object = note_to_json(&lists[list]->items[i]);
            char *line = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
            status = line ? buffer_append(&text, line, strlen(line), error)
                          : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
            if (!status)
                status = buffer_append(&text, "\n", 1, error);
            free(line);
            json_decref(object);
        }
    }
    if (!status)
        status = file_write_atomic(path, text.bytes, text.length, true, false, error);
    buffer_free(&text);
    return status;
}

/* ---- for people ---- */

/* "train 8000, val 2000" */
static void print_splits(FILE *stream, const Plan *plan, const PackResult *result)
{
    const char *separator = "";
    char number[32];
    for (uint32_t split = 0, at = 0; split < PLAN_SPLITS; split++) {
        if (!plan->splits[split].present)
            continue;
        uint64_t count =
            result ? result->manifest.splits[at++].sample_count : plan->splits[split].sample_count;
        (void)fprintf(stream, "%s%s %s", separator, plan_split_names[split],
                      progress_format_count(number, sizeof number, count));
        separator = ", ";
    }
}

static void print_kind(FILE *stream, const Plan *plan)
{
    if (plan->kind == FSH_KIND_CLASSES) {
        (void)fprintf(stream, "%zu class%s", plan->class_count, plan->class_count == 1 ? "" : "es");
        return;
    }
    for (size_t field = 0; field < plan->field_count; field++) {
        (void)fputs(field ? ":" : "", stream);
        program_print_text(stream, plan->field_names[field]);
    }
}

static const char *container_word(const PackOptions *options, size_t count)
{
    if (options->container == FSH_CONTAINER_LMDB)
        return count == 1 ? "LMDB" : "LMDBs";
    return count == 1 ? "shard" : "shards";
}

static void print_left_alone(FILE *stream, const Plan *plan, uint64_t left_out_count)
{
    char count[32];
    if (left_out_count)
        (void)fprintf(stream, "fpack: %s left out, as listed above\n",
                      progress_format_count(count, sizeof count, left_out_count));
    if (plan->other_file_count)
        (void)fprintf(stream, "fpack: %s file%s no image, left alone\n",
                      progress_format_count(count, sizeof count, plan->other_file_count),
                      plan->other_file_count == 1 ? " is" : "s are");
}

void report_print(FILE *stream, const Plan *plan, const PackOptions *options, const PackResult *result)
{
    char bytes[32], rate[32], count[32];
    const double seconds = result->seconds > 1e-6 ? result->seconds : 1e-6;
    (void)fputs("fpack: ", stream);
    program_print_text(stream, options->destination);
    (void)fprintf(stream, ": %s samples (", progress_format_count(count, sizeof count, result->sample_count));
    print_splits(stream, plan, result);
    (void)fprintf(stream, "; ");
    print_kind(stream, plan);
    (void)fprintf(stream, ") in %zu %s, %s\n", plan->output_count,
                  container_word(options, plan->output_count),
                  progress_format_bytes(bytes, sizeof bytes, result->written_bytes));
    if (result->kept_output_count)
        (void)fprintf(stream, "fpack: %zu of them kept from the run that was stopped\n",
                      result->kept_output_count);
    (void)fprintf(
        stream, "fpack: %.2f s, %.0f samples/s, %s/s\n", seconds, (double)result->worked_count / seconds,
        progress_format_bytes(rate, sizeof rate, (uint64_t)((double)result->worked_bytes / seconds)));
    print_left_alone(stream, plan, plan->left_out.count + result->left_out.count);
}

void report_print_plan(FILE *stream, const Plan *plan, const PackOptions *options)
{
    char bytes[32], count[32];
    uint64_t total = 0;
    for (size_t i = 0; i < plan->output_count; i++)
        total += plan->outputs[i].record_bytes;
    (void)fputs("fpack: ", stream);
    program_print_text(stream, options->destination);
    (void)fprintf(stream, ": would hold %s samples (",
                  progress_format_count(count, sizeof count, plan->sample_count));
    print_splits(stream, plan, NULL);
    (void)fprintf(stream, "; ");
    print_kind(stream, plan);
    (void)fprintf(stream, ") in %zu %s, %s; nothing was written\n", plan->output_count,
                  container_word(options, plan->output_count),
                  progress_format_bytes(bytes, sizeof bytes, total));
    print_left_alone(stream, plan, plan->left_out.count);
}

/* ---- for machines ---- */

/* {"train": {"samples": 3, "classes": {"cat": 1, …}}, …}; a dry run counts what is planned. */
static json_t *splits_to_json(const Plan *plan, const PackResult *result)
{
    json_t *splits = json_object();
    size_t at = 0;
    for (uint32_t split = 0; split < PLAN_SPLITS && splits; split++) {
        const PlanSplit *range = &plan->splits[split];
        if (!range->present)
            continue;
        const FshSplitInfo *info = result ? &result->manifest.splits[at++] : NULL;
        json_t *object =
            json_pack("{s:I}", "samples", (json_int_t)(info ? info->sample_count : range->sample_count));
        int failed = !object;
        if (plan->kind == FSH_KIND_CLASSES) {
            uint64_t *counts = calloc(plan->class_count + 1, sizeof *counts);
            json_t *classes = json_object();
            failed |= !counts || !classes;
            for (uint64_t i = 0; i < range->sample_count && counts && !info; i++) {
                const int32_t label = plan->samples[range->first_sample + i].label;
                if (label >= 0) /* a tar may have samples of no class */
                    counts[label]++;
            }
            for (size_t i = 0; i < plan->class_count && !failed; i++)
                failed |=
                    json_object_set_new(classes, plan->class_names[i],
                                        json_integer((json_int_t)(info ? info->class_counts[i] : counts[i])));
            failed |= json_object_set_new(object, "classes", classes);
            free(counts);
        }
        failed |= json_object_set_new(splits, plan_split_names[split], object);
        if (failed) {
            json_decref(splits);
            splits = NULL;
        }
    }
    return splits;
}

FshStatus report_print_json(FILE *stream, const Plan *plan, const PackOptions *options,
                            const PackResult *result, FshError *error)
{
    static const NoteList none = {0};
    const NoteList *lists[] = {&plan->left_out, result ? &result->left_out : &none};
    json_t *left_out = json_array();
    int failed = !left_out;
    for (size_t list = 0; list < 2; list++) {
        for (size_t i = 0; i < lists[list]->count; i++)
            failed |= json_array_append_new(left_out, note_to_json(&lists[list]->items[i]));
    }
    json_t *object = json_pack("{s:s, s:o, s:s, s:s, s:I, s:I, s:o, s:o, s:I}", "program", "fpack",
                               "destination", json_text(options->destination), "id", plan->id, "container",
                               options->container == FSH_CONTAINER_LMDB ? "lmdb" : "shards", "files",
                               (json_int_t)plan->output_count, "samples",
                               (json_int_t)(result ? result->sample_count : plan->sample_count), "splits",
                               splits_to_json(plan, result), "left_out", left_out, "other_files",
                               (json_int_t)plan->other_file_count);
    failed |= !object;
    if (!failed && result) {
        const double seconds = result->seconds > 1e-6 ? result->seconds : 1e-6;
        json_t *numbers = json_pack(
            "{s:I, s:I, s:I, s:f, s:f, s:f}", "source_bytes", (json_int_t)result->source_bytes, "bytes",
            (json_int_t)result->written_bytes, "kept_files", (json_int_t)result->kept_output_count, "seconds",
            result->seconds, "samples_per_second", (double)result->worked_count / seconds, "bytes_per_second",
            (double)result->worked_bytes / seconds);
        failed |= !numbers || json_object_update(object, numbers);
        json_decref(numbers);
    }
    if (!failed)
        failed = json_dumpf(object, stream, JSON_COMPACT | JSON_SORT_KEYS) || fputc('\n', stream) == EOF;
    json_decref(object);
    return failed ? fsh_error_set(error, FSH_ERR_MEMORY, "--json: the result cannot be written") : FSH_OK;
}
