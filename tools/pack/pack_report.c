#include "tools/pack/pack_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/json_text.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/text.h"
#include "stores/store.h"
#include "tools/job/job.h"

static json_t *note_to_json(const Note *note)
{
    return note_json(note->status ? fsh_strerror(note->status) : "duplicate", note->path, note->reason);
}

FshStatus report_check_path(const char *path, bool force, FshError *error)
{
    static const char begin[] = "{\"kind\":"; /* keys are sorted: so begins what note_to_json makes */
    char bytes[sizeof begin - 1];
    FshStatus status = file_check_parent_folder(path, error);
    FILE *stream = force || status ? NULL : fopen(path, "re");
    if (!stream)
        return status;
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
            status = line ? buffer_append_text(&text, line, error)
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

/* Prints "train 8000, val 2000". */
static void print_splits(FILE *stream, const FshManifest *manifest)
{
    char number[32];
    for (size_t i = 0; i < manifest->split_count; i++)
        (void)fprintf(stream, "%s%s %s", i ? ", " : "", manifest->splits[i].name,
                      progress_format_count(number, sizeof number, manifest->splits[i].sample_count));
}

static void print_kind(FILE *stream, const FshManifest *manifest)
{
    if (manifest->kind == FSH_KIND_CLASSES) {
        (void)fprintf(stream, "%zu class%s", manifest->class_count, manifest->class_count == 1 ? "" : "es");
        return;
    }
    for (size_t field = 0; field < manifest->field_count; field++) {
        (void)fputs(field ? ":" : "", stream);
        program_print_text(stream, manifest->field_names[field]);
    }
    if (manifest->statistics.mask_classes)
        (void)fprintf(stream, ", masks of %u class%s", (unsigned)manifest->statistics.mask_classes,
                      manifest->statistics.mask_classes == 1 ? "" : "es");
}

static bool has_value(const PackResult *result, unsigned value)
{
    return result->mask_values[value / 64] >> value % 64 & 1;
}

/* Warns of masks of one class, and of masks whose values look like those of a picture: far fewer values than
 * the largest one tells. What an earlier run looked at is not known here, so the latter is told only where
 * this run has looked at all masks. */
static void warn_of_masks(FILE *stream, const Report *report)
{
    enum { SHOWN = 4 };
    const PackResult *result = report->result;
    const unsigned classes = result->manifest.statistics.mask_classes;
    char values[64] = "";
    unsigned count = 0;
    size_t length = 0;
    if (result->manifest.kind != FSH_KIND_MASKS || report->dry_run)
        return;
    if (classes == 1)
        (void)fprintf(
            stream, "fpack: warning: the masks have one class alone, value 0, and ftrain needs two%s\n",
            has_value(result, FSH_MASK_IGNORED)
                ? "; 255 is no class, and is ignored: where it is what is to be found, write it as 1"
                : "");
    if (result->manifest.mask_names && result->manifest.mask_name_count < classes)
        (void)fprintf(
            stream,
            "fpack: warning: %zu classes have names, and the values of the masks go up to %u; those "
            "without are called by their numbers\n",
            result->manifest.mask_name_count, classes - 1);
    for (unsigned value = 0; value < FSH_MASK_IGNORED; value++) {
        if (!has_value(result, value))
            continue;
        if (count++ < SHOWN)
            length +=
                (size_t)snprintf(values + length, sizeof values - length, "%s%u", length ? ", " : "", value);
    }
    if (count == 0 || count * 2 >= classes || result->kept_output_count || report->update)
        return;
    (void)fprintf(
        stream,
        "fpack: warning: the largest value of the masks is %u, but only %u value%s occur%s (%s%s): they "
        "look like the grays of a picture, and not like indices; ftrain would learn %u classes: number "
        "the classes 0, 1, 2 and on (255: no class) and pack again\n",
        classes - 1, count, text_plural(count), count == 1 ? "s" : "", values, count > SHOWN ? ", …" : "",
        classes);
}

static uint64_t left_out_count(const Report *report)
{
    return report->result->left_out.count + (report->planned_left_out ? report->planned_left_out->count : 0);
}

static void print_left_alone(FILE *stream, const Report *report)
{
    char count[32];
    const uint64_t left_out = left_out_count(report), other = report->other_file_count;
    if (left_out)
        (void)fprintf(stream, "fpack: %s left out, as listed above\n",
                      progress_format_count(count, sizeof count, left_out));
    if (other)
        (void)fprintf(stream, "fpack: %s file%s no image, left alone\n",
                      progress_format_count(count, sizeof count, other), other == 1 ? " is" : "s are");
}

static void print_speed(FILE *stream, const PackResult *result)
{
    char rate[32];
    const double seconds = result->seconds > 1e-6 ? result->seconds : 1e-6;
    (void)fprintf(
        stream, "fpack: %.2f s, %.0f samples/s, %s/s\n", seconds, (double)result->worked_count / seconds,
        progress_format_bytes(rate, sizeof rate, (uint64_t)((double)result->worked_bytes / seconds)));
}

/* Prints "fpack: auto: 800 samples raw (1.2 GiB), 200 as they are (20 MiB)". */
static void print_chosen(FILE *stream, const PackChosen *chosen)
{
    char raw_count[32], copy_count[32], raw_bytes[32], copy_bytes[32];
    (void)fprintf(stream, "fpack: auto: %s sample%s raw (%s), %s as they are (%s)\n",
                  progress_format_count(raw_count, sizeof raw_count, chosen->raw_count),
                  text_plural(chosen->raw_count),
                  progress_format_bytes(raw_bytes, sizeof raw_bytes, chosen->raw_bytes),
                  progress_format_count(copy_count, sizeof copy_count, chosen->copy_count),
                  progress_format_bytes(copy_bytes, sizeof copy_bytes, chosen->copy_bytes));
}

/* Prints "fpack: yuv420: 800 images as planes (1.2 GiB); 200 raw (20 MiB): …", if any are so. */
static void print_planes(FILE *stream, const PackPlanes *planes)
{
    char count[32], bytes[32];
    if (planes->planes_count + planes->raw_count == 0)
        return;
    (void)fprintf(stream, "fpack: yuv420: %s image%s as planes (%s)",
                  progress_format_count(count, sizeof count, planes->planes_count),
                  text_plural(planes->planes_count),
                  progress_format_bytes(bytes, sizeof bytes, planes->planes_bytes));
    if (planes->raw_count)
        (void)fprintf(stream, "; %s raw (%s): in colour, and no JPEG whose planes could be kept",
                      progress_format_count(count, sizeof count, planes->raw_count),
                      progress_format_bytes(bytes, sizeof bytes, planes->raw_bytes));
    (void)fputc('\n', stream);
}

/* Prints "fpack: --dedupe: left out 12 of train, 3 of val". */
static void print_duplicates(FILE *stream, const uint64_t *duplicates)
{
    char count[32];
    const char *before = "left out ";
    (void)fputs("fpack: --dedupe: ", stream);
    for (uint32_t split = 0; split < PACK_SPLITS; split++) {
        if (!duplicates[split])
            continue;
        (void)fprintf(stream, "%s%s of %s", before,
                      progress_format_count(count, sizeof count, duplicates[split]), fsh_split_name(split));
        before = ", ";
    }
    (void)fputs(*before == 'l' ? "found nothing twice\n" : "\n", stream);
}

/* Prints what an update has found and done. */
static void print_update(FILE *stream, const UpdateCounts *counts, bool dry_run)
{
    char added[32], changed[32], vanished[32], same[32], number[32];
    (void)fprintf(stream, "fpack: %s new, %s changed, %s vanished, %s as they were",
                  progress_format_count(added, sizeof added, counts->added),
                  progress_format_count(changed, sizeof changed, counts->changed),
                  progress_format_count(vanished, sizeof vanished, counts->vanished),
                  progress_format_count(same, sizeof same, counts->unchanged));
    if (counts->is_same)
        (void)fputs("; nothing to do\n", stream);
    else
        (void)fprintf(stream, "; %zu shard%s %sadded, %zu removed\n", counts->new_files,
                      text_plural(counts->new_files), dry_run ? "would be " : "", counts->gone_files);
    if (counts->moved)
        (void)fprintf(
            stream, "fpack: packed again, for shards that had lost too much: %s unchanged sample%s\n",
            progress_format_count(number, sizeof number, counts->moved), text_plural(counts->moved));
    if (counts->dead_records)
        (void)fprintf(stream, "fpack: dead space: %s record%s of %zu shard%s\n",
                      progress_format_count(number, sizeof number, counts->dead_records),
                      text_plural(counts->dead_records), counts->dead_files, text_plural(counts->dead_files));
    if (counts->waiting_files)
        (void)fprintf(stream,
                      "fpack: %zu old shard%s stay%s for who reads the dataset as it was; a later --update "
                      "removes them\n",
                      counts->waiting_files, text_plural(counts->waiting_files),
                      counts->waiting_files == 1 ? "s" : "");
}

static void print_summary(FILE *stream, const Report *report)
{
    char bytes[32], count[32];
    const PackResult *result = report->result;
    const FshManifest *manifest = &result->manifest;
    (void)fputs("fpack: ", stream);
    program_print_text(stream, report->destination);
    (void)fputs(report->dry_run ? ": would hold " : ": ", stream);
    if (report->part.count)
        (void)fprintf(stream, "part %u/%u: ", report->part.index, report->part.count);
    (void)fprintf(stream, "%s sample%s (", progress_format_count(count, sizeof count, result->sample_count),
                  text_plural(result->sample_count));
    print_splits(stream, manifest);
    (void)fputs("; ", stream);
    print_kind(stream, manifest);
    (void)fprintf(stream, ") in %zu %s, %s%s\n", result->output_count,
                  fsh_container_noun(manifest->container, result->output_count),
                  progress_format_bytes(bytes, sizeof bytes, result->written_bytes),
                  report->dry_run ? "; nothing was written" : "");
    if (report->update)
        print_update(stream, report->update, report->dry_run);
    if (report->chosen)
        print_chosen(stream, report->chosen);
    print_planes(stream, &result->planes);
    if (report->duplicates)
        print_duplicates(stream, report->duplicates);
    if (result->kept_output_count)
        (void)fprintf(stream, "fpack: %zu of them kept from the run that was stopped\n",
                      result->kept_output_count);
    if (!report->dry_run && !report->merged)
        print_speed(stream, result);
    print_left_alone(stream, report);
}

static void print_next_step(FILE *stream, const Report *report)
{
    (void)fputs("fpack: when all parts are packed: fpack --merge ", stream);
    program_print_text(stream, report->destination);
    (void)fputs(store_is_address(report->destination)
                    ? "\n"
                    : ", followed by the folders of parts that lie elsewhere\n",
                stream);
}

void report_print(FILE *stream, const Report *report, bool quiet)
{
    if (!quiet || report->dry_run) /* the plan is what was asked for */
        print_summary(stream, report);
    warn_of_masks(stream, report);
    if (report->part.count && !report->dry_run && !quiet)
        print_next_step(stream, report);
}

/* ---- for machines ---- */

/* Returns {"train": {"samples": 3, "classes": {"cat": 1, …}}, …}; a dry run counts what is planned. */
static json_t *splits_to_json(const FshManifest *manifest)
{
    json_t *splits = json_object();
    for (size_t at = 0; at < manifest->split_count && splits; at++) {
        const FshSplitInfo *info = &manifest->splits[at];
        json_t *object = json_pack("{s:I}", "samples", (json_int_t)info->sample_count);
        int failed = !object;
        if (manifest->kind == FSH_KIND_CLASSES) {
            json_t *classes = json_object();
            failed |= !classes;
            for (size_t i = 0; i < manifest->class_count && !failed; i++)
                failed |= json_object_set_new(classes, manifest->class_names[i],
                                              json_integer((json_int_t)info->class_counts[i]));
            failed |= json_object_set_new(object, "classes", classes);
        }
        failed |= json_object_set_new(splits, info->name, object);
        if (failed) {
            json_decref(splits);
            splits = NULL;
        }
    }
    return splits;
}

static json_t *left_out_to_json(const Report *report)
{
    const NoteList *lists[] = {report->planned_left_out, &report->result->left_out};
    json_t *array = json_array();
    for (size_t list = 0; list < 2 && array; list++) {
        for (size_t i = 0; lists[list] && i < lists[list]->count; i++) {
            if (json_array_append_new(array, note_to_json(&lists[list]->items[i]))) {
                json_decref(array);
                return NULL;
            }
        }
    }
    return array;
}

/* Returns {"train": 12, "val": 3, "test": 0}. */
static json_t *duplicates_to_json(const uint64_t *duplicates)
{
    return json_pack("{s:I, s:I, s:I}", fsh_split_name(PACK_TRAIN), (json_int_t)duplicates[PACK_TRAIN],
                     fsh_split_name(PACK_VAL), (json_int_t)duplicates[PACK_VAL], fsh_split_name(PACK_TEST),
                     (json_int_t)duplicates[PACK_TEST]);
}

static json_t *update_to_json(const UpdateCounts *counts)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "new", (json_int_t)counts->added,
                     "changed", (json_int_t)counts->changed, "vanished", (json_int_t)counts->vanished,
                     "unchanged", (json_int_t)counts->unchanged, "packed_again", (json_int_t)counts->moved,
                     "dead_records", (json_int_t)counts->dead_records, "dead_files",
                     (json_int_t)counts->dead_files, "new_files", (json_int_t)counts->new_files,
                     "removed_files", (json_int_t)counts->gone_files, "waiting_files",
                     (json_int_t)counts->waiting_files);
}

FshStatus report_print_json(FILE *stream, const Report *report, FshError *error)
{
    const PackResult *result = report->result;
    const FshManifest *manifest = &result->manifest;
    json_t *object = json_pack(
        "{s:s, s:b, s:o, s:s, s:s, s:I, s:I, s:o, s:o, s:I}", "program", "fpack", "dry_run", report->dry_run,
        "destination", json_text(report->destination), "id", manifest->id, "container",
        fsh_container_name(manifest->container), "files", (json_int_t)result->output_count, "samples",
        (json_int_t)result->sample_count, "splits", splits_to_json(manifest), "left_out",
        left_out_to_json(report), "other_files", (json_int_t)report->other_file_count);
    int failed = !object;
    if (!failed && report->part.count)
        failed |= json_object_set_new(object, "part",
                                      json_pack("[i, i]", (int)report->part.index, (int)report->part.count));
    if (!failed && report->update)
        failed |= json_object_set_new(object, "update", update_to_json(report->update));
    if (!failed && report->duplicates)
        failed |= json_object_set_new(object, "duplicates", duplicates_to_json(report->duplicates));
    if (!failed && report->chosen)
        failed |= json_object_set_new(
            object, "chosen",
            json_pack("{s:I, s:I, s:I, s:I}", "raw", (json_int_t)report->chosen->raw_count, "raw_bytes",
                      (json_int_t)report->chosen->raw_bytes, "copy", (json_int_t)report->chosen->copy_count,
                      "copy_bytes", (json_int_t)report->chosen->copy_bytes));
    if (!failed && result->planes.planes_count + result->planes.raw_count)
        failed |= json_object_set_new(object, "yuv420",
                                      json_pack("{s:I, s:I, s:I, s:I}", "planes",
                                                (json_int_t)result->planes.planes_count, "planes_bytes",
                                                (json_int_t)result->planes.planes_bytes, "raw",
                                                (json_int_t)result->planes.raw_count, "raw_bytes",
                                                (json_int_t)result->planes.raw_bytes));
    if (!failed && !report->dry_run) {
        const double seconds = result->seconds > 1e-6 ? result->seconds : 1e-6;
        json_t *numbers =
            json_pack("{s:I, s:I, s:I, s:o, s:o, s:o}", "source_bytes", (json_int_t)result->source_bytes,
                      "bytes", (json_int_t)result->written_bytes, "kept_files",
                      (json_int_t)result->kept_output_count, "seconds", json_measured(result->seconds),
                      "samples_per_second", json_measured((double)result->worked_count / seconds),
                      "bytes_per_second", json_measured((double)result->worked_bytes / seconds));
        failed |= !numbers || json_object_update(object, numbers);
        json_decref(numbers);
    }
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return job_print_json(stream, object, JSON_SORT_KEYS, error);
}
