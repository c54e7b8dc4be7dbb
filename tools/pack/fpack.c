/* fpack - class folders, pairs of images, or another dataset into one dataset: shards or LMDB. The options
 * are in pack_settings.h, the work is in pack_plan.h and pack.h. */
#include <inttypes.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/json_text.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/text.h"
#include "imaging/decode.h"
#include "stores/store.h"
#include "tools/job/destination.h"
#include "tools/job/job.h"
#include "tools/pack/pack_merge.h"
#include "tools/pack/pack_remote.h"
#include "tools/pack/pack_report.h"
#include "tools/pack/pack_repair_manifest.h"
#include "tools/pack/pack_settings.h"

static void print_left_out(const Note *note, void *context)
{
    note_tell_left_out(context, note->path, note->reason);
}

static void print_warnings(const NoteList *warnings)
{
    for (size_t i = 0; i < warnings->count; i++)
        note_print(stderr, "fpack: warning", warnings->items[i].path, warnings->items[i].reason, "\n");
}

/* Refuses addresses where folders are wanted. */
static FshStatus check_folders(const char *const *paths, size_t count, const char *mode, FshError *error)
{
    for (size_t i = 0; i < count; i++)
        if (store_is_address(paths[i]))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s: --%s works on folders of this machine; copy it here, and upload what "
                                 "comes of it",
                                 paths[i], mode);
    return FSH_OK;
}

/* Runs "--merge DST PART…", or "--merge --dst DST PART…". */
static FshStatus merge(const ProgramContext *context, FshError *error)
{
    const Settings *settings = context->settings;
    const OptionArguments *arguments = context->arguments;
    const size_t taken = settings->destination ? 0 : 1;
    PackResult result = {0};
    FshStatus status = settings_take_merge(context, error);
    if (!status && arguments->count < taken)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "DST, the folder to merge into, is missing; usage: fpack "
                               "--merge DST [PART...]");
    if (status)
        return status;
    MergeOptions options = {.destination = taken ? arguments->items[0] : settings->destination,
                            .parts = arguments->items + taken,
                            .part_count = arguments->count - taken,
                            .force = settings->force,
                            .dry_run = settings->program.dry_run};
    const char *destination = options.destination, *brought = NULL;
    PackRemote remote = PACK_REMOTE_NONE;
    status = check_folders(arguments->items + taken, arguments->count - taken, "merge", error);
    if (!status && store_is_address(destination)) {
        status = remote_open_merge(&remote, settings, context->table->program, destination, &options, error);
        brought = status ? NULL : store_upload_parts(remote.upload);
        options.parts = &brought;
        options.part_count = 1;
    } else if (!status) {
        status = store_options_check(&settings->remote, false, error);
    }
    if (!status)
        status = merge_run(&options, &result, error);
    remote_close(&remote, !status && !options.dry_run, error);
    const Report report = {
        .destination = destination, .result = &result, .merged = true, .dry_run = options.dry_run};
    if (!status)
        report_print(stderr, &report, settings->program.quiet);
    if (!status && settings->program.json)
        status = report_print_json(stdout, &report, error);
    pack_result_free(&result);
    return status;
}

static FshStatus print_repaired_json(const RepairOptions *options, const RepairResult *result,
                                     FshError *error)
{
    const FshManifest *manifest = fsh_manifest(result->dataset);
    json_t *object = json_pack("{s:s, s:b, s:o, s:s, s:b, s:I, s:b}", "program", "fpack", "ok",
                               result->undecodable.count == 0, "destination", json_text(options->folder),
                               "id", manifest->id, "dry_run", options->dry_run, "undecodable",
                               (json_int_t)result->undecodable.count, "class_names_lost", result->names_lost);
    return job_print_json(stdout, object, JSON_SORT_KEYS, error);
}

/* Prints in a line what the manifest says now. */
static void print_repaired_line(const RepairOptions *options, const RepairResult *result)
{
    const FshManifest *manifest = fsh_manifest(result->dataset);
    uint64_t files = 0, samples = 0;
    for (size_t i = 0; i < manifest->split_count; i++) {
        files += manifest->splits[i].file_count;
        samples += manifest->splits[i].sample_count;
    }
    (void)fputs("fpack: ", stderr);
    program_print_text(stderr, options->folder);
    (void)fprintf(stderr,
                  ": " FSH_MANIFEST_NAME " %s from %" PRIu64 " file%s, %" PRIu64 " sample%s; id %s; mean",
                  options->dry_run ? "would be made again" : "made again", files, text_plural(files), samples,
                  text_plural(samples), manifest->id);
    for (uint32_t i = 0; i < result->statistics.channels; i++)
        (void)fprintf(stderr, " %.3f", result->statistics.mean[i]);
    (void)fputs(", std", stderr);
    for (uint32_t i = 0; i < result->statistics.channels; i++)
        (void)fprintf(stderr, " %.3f", result->statistics.standard_deviation[i]);
    (void)fputc('\n', stderr);
}

/* Prints what was repaired; when quiet, only what was lost by it, and of a dry run the plan. */
static void print_repaired(const RepairOptions *options, const RepairResult *result)
{
    if (!options->quiet || options->dry_run)
        print_repaired_line(options, result);
    if (result->names_lost) {
        (void)fputs("fpack: warning: readable names of classes, if the old " FSH_MANIFEST_NAME
                    " had any, are gone; fverify --set-class-names FILE ",
                    stderr);
        program_print_text(stderr, options->folder);
        (void)fputs(" gives them again\n", stderr);
    }
}

/* Runs "--repair-manifest DST", or "--repair-manifest --dst DST". *partial_ret: some images cannot be
 * decoded. */
static FshStatus repair(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    const OptionArguments *arguments = context->arguments;
    FshStatus status = settings_take_repair(context, error);
    if (!status)
        status = check_folders(arguments->items, arguments->count, "repair-manifest", error);
    if (!status && arguments->count + (settings->destination != NULL) != 1)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "--repair-manifest takes one folder, that of the dataset; usage: fpack "
                               "--repair-manifest DST");
    if (status)
        return status;
    const RepairOptions options = {.folder =
                                       settings->destination ? settings->destination : arguments->items[0],
                                   .jobs = cpu_jobs(settings->program.jobs),
                                   .quiet = settings->program.quiet,
                                   .dry_run = settings->program.dry_run};
    RepairResult result;
    status = repair_manifest(&options, &result, error);
    for (size_t i = 0; i < result.undecodable.count; i++) {
        const Note *note = &result.undecodable.items[i];
        note_print(stderr, "fpack", note->path, note->reason, "; not counted in mean and deviation\n");
    }
    *partial_ret = result.undecodable.count > 0;
    if (!status)
        print_repaired(&options, &result);
    if (!status && settings->program.json)
        status = print_repaired_json(&options, &result, error);
    repair_result_free(&result);
    return status;
}

/* Prints what the plan leaves out. Where it has failed, the error says more than a line for each image: the
 * first three, or all if verbose. */
static void print_planned(const NoteList *left_out, FshStatus status, NoteTeller *teller)
{
    enum { SHOWN_BEFORE_ERROR = 3 };
    const bool few = status && !teller->verbose && left_out->count > SHOWN_BEFORE_ERROR;
    const size_t shown = few ? SHOWN_BEFORE_ERROR : left_out->count;
    for (size_t i = 0; i < shown; i++)
        print_left_out(&left_out->items[i], teller);
    if (few)
        (void)fprintf(stderr,
                      "fpack: and %zu more, not shown: --report lists them all, --verbose shows them\n",
                      left_out->count - shown);
}

/* Packs what the options say. shown: where that goes, for people. *partial_ret: something was left out that
 * was not to be. */
static FshStatus pack(const ProgramContext *context, PackOptions *options, const char *shown,
                      bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    PackPlan plan = {0};
    PackResult result = {0};
    NoteTeller notes = {.program = context->table->program, .verbose = settings->program.verbose};
    const double begin = progress_now_seconds();
    FshStatus status = FSH_OK;
    if (settings->report)
        status = destination_check_outside(options->destination, settings->report, error);
    if (settings->report && !status)
        status = report_check_path(settings->report, settings->force, error);
    if (status)
        return status;
    const bool updates = settings->update || settings->append;
    const UpdateOptions wanted = {
        .append = settings->append, .by_content = settings->checksum, .dry_run = settings->program.dry_run};
    Update update = {.lock = -1};
    status = updates ? update_plan(&update, &plan, options, &wanted, error)
                     : pack_plan_make(&plan, options, error);
    if (status == FSH_ERR_INTERRUPTED)
        status = fsh_error_set(error, status, "%s: interrupted before anything was written", options->source);
    print_warnings(&plan.notes.warnings); /* first: they say what would mend a long list */
    print_planned(&plan.notes.left_out, status, &notes);
    if (!status && settings->program.dry_run && !updates)
        status = pack_preview(&plan, &result, error);
    else if (!status && !settings->program.dry_run)
        status = pack_plan_check_read(&plan, error);
    if (!status && updates)
        status = update_run(&update, &plan, print_left_out, &notes, &result, error);
    else if (!status && !settings->program.dry_run)
        status = pack_run(&plan, print_left_out, &notes, &result, error);

    result.seconds = progress_now_seconds() - begin;

    /* Also after a stop: what was found by then is worth reading. */
    if (settings->report && !settings->program.dry_run) {
        FshError report_error = {0};
        if (report_write_left_out(settings->report, &plan.notes.left_out, &result.left_out, &report_error) &&
            !status)
            status = fsh_error_set(error, report_error.status, "--report: %s", report_error.message);
    }
    const Report report = {.destination = shown,
                           .result = &result,
                           .planned_left_out = &plan.notes.left_out,
                           .other_file_count = plan.found.other_file_count,
                           .part = options->part,
                           .dry_run = settings->program.dry_run,
                           .duplicates = options->dedupe ? plan.keyed.duplicates : NULL,
                           .update = updates ? &update.counts : NULL,
                           .chosen = options->store == PACK_STORE_AUTO ? &plan.stored.chosen : NULL};
    if (!status)
        report_print(stderr, &report, settings->program.quiet);
    if (!status && settings->program.json)
        status = report_print_json(stdout, &report, error);
    *partial_ret = result.left_out.count > 0;
    for (size_t i = 0; i < plan.notes.left_out.count; i++)
        *partial_ret = *partial_ret || plan.notes.left_out.items[i].status; /* FSH_OK: left out as asked */
    pack_result_free(&result);
    pack_plan_free(&plan);
    update_free(&update);
    return status;
}

/* Packs from and to folders of this machine and servers. */
static FshStatus fetch_pack_and_send(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    PackRemote remote = PACK_REMOTE_NONE;
    PackOptions options;
    FshStatus status = settings_take(context, &options, error);
    if (!status)
        status = remote_open(&remote, context->settings, context->table->program, &options, error);
    if (!status)
        status = pack(context, &options, remote.destination, partial_ret, error);
    remote_close(&remote, !status && options.taker, error);
    return status;
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    if (settings->merge && settings->repair_manifest)
        return fsh_error_set(error, FSH_ERR_USAGE, "--merge and --repair-manifest: one at a time");
    if (settings->repair_manifest)
        return repair(context, partial_ret, error);
    return settings->merge ? merge(context, error) : fetch_pack_and_send(context, partial_ret, error);
}

/* Has the C library give decoded photographs back to the system when they are freed. glibc's own threshold
 * grows to the size of what was freed, up to 32 MiB, and its arenas then kept three times what is in use. */
static void limit_kept_memory(void)
{
#ifdef M_MMAP_THRESHOLD
    enum { KEPT_BYTES = 1 << 20 };
    (void)mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
#endif
}

int main(int argc, char **argv)
{
    limit_kept_memory();
    Settings defaults, settings;
    Option rows[SETTINGS_ROWS];
    settings_init(&defaults);
    settings = defaults;
    settings.defaults = &defaults;
    settings_rows(&settings, rows);
    const OptionTable table = settings_table(rows);
    return program_main(argc, argv, &table, &settings, image_library_versions, run);
}
