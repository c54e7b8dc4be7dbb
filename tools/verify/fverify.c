/* fverify - is a dataset whole? The options are in verify_settings.h, the work is in verify.h. */
#include <stdio.h>

#include "common/cpu.h"
#include "common/file.h"
#include "common/mapped_pages.h"
#include "common/program.h"
#include "imaging/decode.h"
#include "stores/store.h"
#include "tools/job/job.h"
#include "tools/verify/verify_actions.h"
#include "tools/verify/verify_html.h"
#include "tools/verify/verify_names.h"
#include "tools/verify/verify_report.h"
#include "tools/verify/verify_settings.h"
#include "tools/verify/verify_sheet.h"

/* ---- instead of proving ---- */

/* Chooses what the options ask for besides or instead of proof. *action_ret: what to run, NULL: nothing;
 * *target_ret: its file or folder. */
static FshStatus choose_action(const VerifySettings *settings, size_t path_count, Action *action_ret,
                               const char **target_ret, FshError *error)
{
    const bool proves =
        settings->quick || settings->decode || settings->against || settings->pairs || settings->part;
    const struct {
        const char *name, *target;
        Action action;
    } actions[] = {{"list", settings->list ? "" : NULL, action_list},
                   {"extract", settings->extract, action_extract},
                   {"sheet", settings->sheet, proves ? NULL : action_sheet}, /* after the proof */
                   {"repair", settings->repair, action_repair},
                   {"set-class-names", settings->class_names, action_name_classes},
                   {"html", settings->html, NULL}};
    const char *first = NULL;
    *action_ret = NULL;
    *target_ret = NULL;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (!actions[i].target)
            continue;
        if (first)
            return fsh_error_set(error, FSH_ERR_USAGE, "--%s and --%s: one at a time", first,
                                 actions[i].name);
        first = actions[i].name;
        if (path_count > 1 && !settings->list)
            return fsh_error_set(error, FSH_ERR_USAGE, "--%s takes one PATH", first);
        *action_ret = actions[i].action;
        *target_ret = actions[i].target;
    }
    if (*action_ret && proves)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--%s proves nothing: run fverify without it for --quick, --decode, --against, "
                             "--pairs and --part",
                             first);
    return FSH_OK;
}

/* Refuses options that would do nothing. */
static FshStatus check_usage(const VerifySettings *settings, FshError *error)
{
    const char *message = NULL;
    if (settings->list && settings->json)
        message = "--list prints lines, not --json";
    else if (settings->quick && settings->decode)
        message = "--quick and --decode contradict each other";
    else if (settings->likeness_given && !settings->pairs)
        message = "--likeness: of what --pairs compares; give it too";
    else if (settings->part && (settings->html || settings->sheet))
        message = "--part: --html and --sheet show a whole dataset";
    else if (settings->force && !settings->html && !settings->sheet)
        message = "--force: replaces the FILE of --html or --sheet, and nothing else is ever replaced";
    return message ? fsh_error_set(error, FSH_ERR_USAGE, "%s", message) : FSH_OK;
}

/* Checks that the page can be written, before an hour of proof rather than after it. */
static FshStatus check_page(const VerifySettings *settings, FshError *error)
{
    if (settings->sheet)
        return sheet_check(settings->sheet, settings->force, error);
    if (!settings->html)
        return FSH_OK;
    FshStatus status = file_check_parent_folder(settings->html, error);
    if (status || settings->force || !file_exists(settings->html))
        return status;
    return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists already; --force replaces it", settings->html);
}

/* Runs an action on a path, or on an address that was fetched. */
static FshStatus run_action(const char *path, const char *name, const VerifySettings *settings, Action action,
                            const char *target, bool *partial_ret, FshError *error)
{
    const ActionOptions options = {.path = path,
                                   .name = name,
                                   .target = target,
                                   .jobs = cpu_jobs(settings->jobs),
                                   .quiet = settings->quiet,
                                   .verbose = settings->verbose,
                                   .json = settings->json,
                                   .force = settings->force};
    return action(&options, partial_ret, error);
}

/* ---- proving ---- */

/* Writes what was asked for to look at: the page, or the sheet with what is wrong first. */
static FshStatus write_pictures(const char *path, const VerifySettings *settings, const VerifyReport *report,
                                const VerifyOptions *options, FshError *error)
{
    FshDataset *dataset = NULL;
    FshStatus status = FSH_OK;
    if (!settings->html && !settings->sheet)
        return FSH_OK;
    (void)verify_open_named(&dataset, path, NULL); /* why it cannot be is in the report */
    if (settings->html)
        status = verify_write_html(report, options, dataset, settings->html, settings->force, error);
    else
        status = verify_write_sheet(report, options, dataset, settings->sheet, settings->force, error);
    fsh_close(&dataset);
    return status;
}

static FshStatus verify_one(const char *path, const VerifySettings *settings, const VerifyOptions *options,
                            json_t *datasets, bool *partial_ret, FshError *error)
{
    const VerifyPrint print = {.options = options, .quiet = settings->quiet, .verbose = settings->verbose};
    VerifyReport report;
    FshStatus status = verify_path(path, options, &report, error);
    if (!status && settings->json && json_array_append_new(datasets, verify_to_json(&report, options)))
        status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", path);
    if (!status && !settings->json)
        verify_print(stdout, &report, &print);
    if (!status)
        status = write_pictures(path, settings, &report, options, error);
    *partial_ret = *partial_ret || report.problem_count > 0;
    verify_report_free(&report);
    return status;
}

/* Refuses what is not done to a dataset on a server, and options of servers where none is named. */
static FshStatus check_addresses(const ProgramContext *context, FshError *error)
{
    const VerifySettings *settings = context->settings;
    bool any = false;
    for (size_t i = 0; i < context->arguments->count; i++) {
        const char *path = context->arguments->items[i];
        if (!store_is_address(path))
            continue;
        any = true;
        if (settings->repair || settings->class_names)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "%s: --%s changes a dataset, and this one is on a server; do it where its "
                                 "files are, and upload it again",
                                 path, settings->repair ? "repair" : "set-class-names");
    }
    return store_options_check(&settings->store, any, error);
}

/* Proves a path, or runs the action on it; a dataset on a server is fetched before. datasets: of --json. */
static FshStatus do_path(const char *path, const VerifySettings *settings, const VerifyOptions *options,
                         Action action, const char *target, json_t *datasets, bool *partial_ret,
                         FshError *error)
{
    StoreFolder folder = STORE_FOLDER_NONE;
    FshStatus status = FSH_OK;
    VerifyOptions named = *options;
    named.name = path;
    if (store_is_address(path)) {
        StoreOptions store = settings->store;
        store.speaker = "fverify";
        store.quiet = settings->quiet;
        status = store_open(&folder, path, &store, error);
        path = folder.path;
    }
    if (!status)
        status = action ? run_action(path, named.name, settings, action, target, partial_ret, error)
                        : verify_one(path, settings, &named, datasets, partial_ret, error);
    store_close(&folder);
    return status;
}

/* What a thread may have in memory of the files that it reads: enough to give pages back seldom. */
enum { MAPPED_BYTES = 16 << 20 };

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const VerifySettings *settings = context->settings;
    VerifyOptions options = {.level = settings->quick    ? VERIFY_QUICK
                                      : settings->decode ? VERIFY_DECODE
                                                         : VERIFY_RECORDS,
                             .overlap = settings->overlap,
                             .against = settings->against,
                             .pairs = settings->pairs,
                             .likeness_min = settings->likeness_min,
                             .jobs = cpu_jobs(settings->jobs),
                             .no_progress = settings->quiet};
    Action action = NULL;
    const char *target = NULL;
    FshStatus status = choose_action(settings, context->arguments->count, &action, &target, error);
    if (!status)
        status = check_usage(settings, error);
    if (!status)
        status = check_addresses(context, error);
    if (!status)
        status = check_page(settings, error);
    if (!status && settings->part)
        status = part_parse("--part", settings->part, &options.part, error);
    if (status)
        return status;
    mapped_pages_bound(MAPPED_BYTES);
    json_t *datasets = json_array();
    for (size_t i = 0; i < context->arguments->count && !status; i++)
        status = do_path(context->arguments->items[i], settings, &options, action, target, datasets,
                         partial_ret, error);
    if (!status && settings->json && !action)
        status = job_print_json(
            stdout,
            json_pack("{s:s, s:b, s:O}", "program", "fverify", "ok", !*partial_ret, "datasets", datasets),
            JSON_SORT_KEYS, error);
    json_decref(datasets);
    return status;
}

int main(int argc, char **argv)
{
    VerifySettings settings;
    Option rows[VERIFY_SETTINGS_ROWS];
    verify_settings_init(&settings);
    verify_settings_rows(&settings, rows);
    const OptionTable table = verify_settings_table(rows);
    return program_main(argc, argv, &table, &settings, image_library_versions, run);
}
