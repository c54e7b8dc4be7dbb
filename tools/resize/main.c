/* fresize - a folder of photographs into the same folder, smaller. The options are here, the work is in resize.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/cpu.h"
#include "common/program.h"
#include "imaging/decode.h"
#include "tools/resize/resize_report.h"

typedef struct Settings {
    ProgramOptions program;
    const char *source, *destination, *report, *edge, *filter, *subsampling, *orient, *icc, *on_error;
    int64_t max_size, quality, max_pixels;
    bool exact, force;
} Settings;

static const char *const edges[] = {"short", "long", NULL};
static const char *const subsamplings[] = {"420", "444", NULL};
static const char *const orients[] = {"apply", "ignore", NULL};
static const char *const iccs[] = {"srgb", "ignore", NULL};
static const char *const on_errors[] = {"skip", "fail", NULL};

static void print_failure(const char *path, const char *reason, void *context)
{
    program_note_left_out(context, path, reason);
}

static bool is(const char *choice, const char *name)
{
    return strcmp(choice, name) == 0;
}

static ResampleFilter filter_of(const char *name)
{
    size_t filter = 0;
    while (!is(resample_filter_names[filter], name)) /* the option table has checked that it is one of them */
        filter++;
    return (ResampleFilter)filter;
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    ResizeOptions options = {
        .source = settings->source,
        .destination = settings->destination,
        .report = settings->report,
        .recipe = {.max_size = (uint32_t)settings->max_size,
                   .long_edge = is(settings->edge, "long"),
                   .filter = filter_of(settings->filter),
                   .quality = (int)settings->quality,
                   .subsampling =
                       is(settings->subsampling, "444") ? IMAGE_SUBSAMPLING_444 : IMAGE_SUBSAMPLING_420,
                   .ignore_orientation = is(settings->orient, "ignore"),
                   .ignore_icc = is(settings->icc, "ignore"),
                   .exact = settings->exact,
                   .max_pixels = (uint64_t)settings->max_pixels},
        .force = settings->force,
        .dry_run = settings->program.dry_run,
        .quiet = settings->program.quiet,
        .fail_on_error = is(settings->on_error, "fail"),
        .jobs = cpu_jobs(settings->program.jobs),
    };
    ProgramNotes notes = {.program = context->table->program, .verbose = settings->program.verbose};
    ResizeSummary summary = {0};
    FshStatus status = program_take_paths(context, &options.source, &options.destination, error);
    if (status)
        return status;
    status = resize_run(&options, print_failure, &notes, &summary, error);
    bool ran =
        !status || (status == FSH_ERR_INTERRUPTED &&
                    summary.images_count > 0); /* or stopped on the way: what was done is worth telling */
    for (size_t i = 0; i < RESIZE_OUTCOME_COUNT; i++)
        ran = ran || summary.outcome_counts[i] > 0;
    if (ran && !settings->program.quiet)
        resize_summary_print(stderr, context->table->program, &summary, options.dry_run);
    if (ran && settings->program.json && (!status || status == FSH_ERR_INTERRUPTED)) {
        FshStatus printed = resize_summary_print_json(stdout, &summary, options.dry_run, error);
        status = status ? status : printed;
    }
    *partial_ret = summary.outcome_counts[RESIZE_OUTCOME_FAILED] > 0;
    return status;
}

int main(int argc, char **argv)
{
    Settings settings = {
        .edge = "short",
        .filter = "lanczos",
        .subsampling = "420",
        .orient = "apply",
        .icc = "srgb",
        .on_error = "skip",
        .max_size = 256,
        .quality = 90,
        .max_pixels = (int64_t)IMAGE_MAX_PIXELS_DEFAULT,
    };
    const Option options[] = {
        {.name = "max-size",
         .kind = OPTION_INTEGER,
         .value = &settings.max_size,
         .argument = "N",
         .help = "short edge at most N pixels; never enlarged",
         .minimum = 1,
         .maximum = 65500,
         .group = "Size"},
        {.name = "edge",
         .kind = OPTION_CHOICE,
         .value = &settings.edge,
         .argument = "WHICH",
         .help = "which edge --max-size means",
         .choices = edges},
        {.name = "filter",
         .kind = OPTION_CHOICE,
         .value = &settings.filter,
         .argument = "NAME",
         .help = "how pixels are weighed, with antialiasing, in Pillow's arithmetic",
         .choices = resample_filter_names},
        {.name = "exact",
         .kind = OPTION_FLAG,
         .value = &settings.exact,
         .help =
             "decode every JPEG in full; else large ones are decoded at a half, a quarter or an eighth of "
             "their size, with at least twice the pixels that are needed"},
        {.name = "quality",
         .kind = OPTION_INTEGER,
         .value = &settings.quality,
         .argument = "N",
         .help = "of the JPEGs written",
         .minimum = 1,
         .maximum = 100,
         .group = "Output"},
        {.name = "subsampling",
         .kind = OPTION_CHOICE,
         .value = &settings.subsampling,
         .argument = "WHICH",
         .help = "of the colours of the JPEGs written",
         .choices = subsamplings},
        {.name = "orient",
         .kind = OPTION_CHOICE,
         .value = &settings.orient,
         .argument = "WHAT",
         .help = "whether to turn images as their EXIF orientation says",
         .choices = orients},
        {.name = "icc",
         .kind = OPTION_CHOICE,
         .value = &settings.icc,
         .argument = "WHAT",
         .help = "what to do with an embedded colour profile: convert to sRGB, or ignore it as Pillow does",
         .choices = iccs},
        {.name = "force",
         .letter = 'f',
         .kind = OPTION_FLAG,
         .value = &settings.force,
         .help = "write into a DST that is not empty, and write everything anew"},
        {.name = "on-error",
         .kind = OPTION_CHOICE,
         .value = &settings.on_error,
         .argument = "WHAT",
         .help = "leave an image out that cannot be read, or stop there",
         .choices = on_errors,
         .group = "Bad input"},
        {.name = "max-pixels",
         .kind = OPTION_INTEGER,
         .value = &settings.max_pixels,
         .argument = "N",
         .help = "refuse images whose header claims more pixels",
         .minimum = 1,
         .maximum = 1e12},
        {.name = "report",
         .kind = OPTION_TEXT,
         .value = &settings.report,
         .argument = "FILE",
         .help = "write a line of JSON for each image: path, status, reason, quirks, sizes before and after"},
        {.name = "src",
         .kind = OPTION_TEXT,
         .value = &settings.source,
         .argument = "DIR",
         .help = "the same as SRC, for older scripts",
         .group = "Paths"},
        {.name = "dst",
         .kind = OPTION_TEXT,
         .value = &settings.destination,
         .argument = "DIR",
         .help = "the same as DST, for older scripts"},
        PROGRAM_OPTIONS(&settings.program),
        {0},
    };
    const OptionTable table = {
        .program = "fresize",
        .summary = "Writes the images of SRC to DST with their SHORT edge at most --max-size pixels, never "
                   "enlarged. "
                   "Same tree, same names; images already small enough are copied byte for byte.",
        .usage = "[OPTIONS] SRC DST",
        .options = options,
        .examples =
            "  fresize --max-size 160 imagenet/ imagenet160/\n"
            "  fresize --max-size 160 --exact --icc ignore imagenet/ imagenet160/   # Pillow's pixels\n"
            "  fresize --edge long --max-size 1024 --quality 95 raw/ small/\n"
            "  fresize --dry-run photos/ small/                                     # what would be done\n",
        .arguments_min = 0,
        .arguments_max = 2,
    };
    return program_main(argc, argv, &table, &settings, image_library_versions, run);
}
