/* fverify - is a dataset whole? The options are here, the work is in verify.h. */
#include <stdio.h>

#include "common/cpu.h"
#include "common/program.h"
#include "imaging/decode.h"
#include "tools/verify/verify_report.h"

/* Motion blur and resizing leave a pair above this, other pictures are below: docs/measurements has the numbers. */
#define LIKENESS_MIN 0.8

typedef struct Settings {
    int64_t jobs;
    bool quick, decode, overlap, pairs, quiet, verbose, json;
    double likeness_min;
    const char *against;
} Settings;

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    const VerifyOptions options = {.level = settings->quick    ? VERIFY_QUICK
                                            : settings->decode ? VERIFY_DECODE
                                                               : VERIFY_RECORDS,
                                   .overlap = settings->overlap,
                                   .against = settings->against,
                                   .pairs = settings->pairs,
                                   .likeness_min = settings->likeness_min,
                                   .jobs = cpu_jobs(settings->jobs),
                                   .no_progress = settings->quiet};
    const VerifyPrint print = {.options = &options, .quiet = settings->quiet, .verbose = settings->verbose};
    if (settings->quick && settings->decode)
        return fsh_error_set(error, FSH_ERR_USAGE, "--quick and --decode contradict each other");
    json_t *datasets = json_array();
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < context->arguments->count && !status; i++) {
        VerifyReport report;
        status = verify_path(context->arguments->items[i], &options, &report, error);
        if (!status && settings->json && json_array_append_new(datasets, verify_to_json(&report, &options)))
            status = fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", context->arguments->items[i]);
        if (!status && !settings->json)
            verify_print(stdout, &report, &print);
        *partial_ret = *partial_ret || report.problem_count > 0;
        verify_report_free(&report);
    }
    if (!status && settings->json) {
        json_t *object =
            json_pack("{s:s, s:b, s:O}", "program", "fverify", "ok", !*partial_ret, "datasets", datasets);
        if (!object || json_dumpf(object, stdout, JSON_COMPACT | JSON_SORT_KEYS) ||
            fputc('\n', stdout) == EOF)
            status = fsh_error_set(error, FSH_ERR_MEMORY, "--json: the result cannot be written");
        json_decref(object);
    }
    json_decref(datasets);
    return status;
}

int main(int argc, char **argv)
{
    Settings settings = {.overlap = true, .likeness_min = LIKENESS_MIN};
    const Option options[] = {
        {.name = "quick",
         .kind = OPTION_FLAG,
         .value = &settings.quick,
         .help = "headers, indexes and checksums of whole files only",
         .group = "Checks"},
        {.name = "decode",
         .kind = OPTION_FLAG,
         .value = &settings.decode,
         .help = "decode every image in full: its size, channels and format are those of its record"},
        {.name = "against",
         .kind = OPTION_TEXT,
         .value = &settings.against,
         .argument = "SRC",
         .help = "compare every image with the file in SRC that it was packed from, byte for byte; where "
                 "fresize or --max-size made it smaller, with what the same recipe makes of the file"},
        {.name = "pairs",
         .kind = OPTION_FLAG,
         .value = &settings.pairs,
         .help = "compare what the sides of each pair show, and list those that do not look alike"},
        {.name = "likeness",
         .kind = OPTION_REAL,
         .value = &settings.likeness_min,
         .argument = "R",
         .help = "with --pairs: the least correlation of two sides' thumbnails",
         .minimum = -1,
         .maximum = 1},
        {.name = "overlap",
         .kind = OPTION_FLAG,
         .value = &settings.overlap,
         .help = "find images that two splits share"},
        /* PROGRAM_OPTIONS less --dry-run: nothing is ever written. */
        {.name = "jobs",
         .letter = 'j',
         .kind = OPTION_INTEGER,
         .value = &settings.jobs,
         .argument = "N",
         .help = "threads to use; 0: as many as this process may use",
         .maximum = 4096,
         .group = "General"},
        {.name = "quiet",
         .letter = 'q',
         .kind = OPTION_FLAG,
         .value = &settings.quiet,
         .help = "print problems only"},
        {.name = "verbose",
         .letter = 'v',
         .kind = OPTION_FLAG,
         .value = &settings.verbose,
         .help = "print every class and every problem"},
        {.name = "json",
         .kind = OPTION_FLAG,
         .value = &settings.json,
         .help = "print the result as one JSON object on standard output"},
        {0}};
    const OptionTable table = {
        .program = "fverify",
        .summary = "Checks datasets: structure, checksums of files and records, labels, keys, images that "
                   "two splits share; with --decode every image, with --against every source. PATH is a "
                   "dataset's folder, its dataset.json, a .fshard file or an .lmdb folder. What is wrong is "
                   "named by file, record, key and source.",
        .usage = "[OPTIONS] PATH...",
        .options = options,
        .examples = "  fverify shards/\n"
                    "  fverify --decode --against photos/ shards/\n"
                    "  fverify --quick shards/train-00003-of-00016.fshard\n"
                    "  fverify --json shards/ | jq '.datasets[].problems'\n",
        .arguments_min = 1,
        .arguments_max = 1 << 20,
    };
    return program_main(argc, argv, &table, &settings, image_library_versions, run);
}
