/* fresize - a folder or tar of photographs into another, smaller; tars may lie on servers. The options are
 * here, the work is in resize.h. */
#include <stdio.h>
#include <string.h>

#include "common/cpu.h"
#include "common/program.h"
#include "imaging/decode.h"
#include "stores/store.h"
#include "stores/store_files.h"
#include "stores/store_put.h"
#include "tools/job/job.h"
#include "tools/job/notes.h"
#include "tools/resize/resize_findings.h"
#include "tools/resize/resize_report.h"
#include "tools/resize/resize_state.h"

typedef struct Settings {
    ProgramOptions program;
    const char *source, *destination, *report;
    int edge, filter, subsampling, format, orient, icc, on_error; /* indices of the choices below */
    const char *files_from, *labels, *pairs, *masks, *part;
    int64_t max_size, min_size, quality, max_pixels;
    bool exact, force, link, check, keep_metadata, null_separated;
    StoreOptions store;
    struct {
        bool max_size, edge, min_size, filter, exact, format, quality, subsampling, orient, icc,
            keep_metadata, labels, pairs, masks, part;
    } given; /* what of the recipe was on the command line */
} Settings;

enum { EDGE_SHORT, EDGE_LONG };
static const char *const edges[] = {"short", "long", NULL};
static const char *const subsamplings[] = {"420", "444", NULL}; /* ImageSubsampling */
static const char *const formats[] = {"keep", "jpeg", "png", "webp", NULL};
static const ImageFormat format_values[] = {IMAGE_UNKNOWN, IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP};
enum { ORIENT_APPLY, ORIENT_IGNORE };
static const char *const orients[] = {"apply", "ignore", NULL};
enum { ICC_SRGB, ICC_IGNORE };
static const char *const iccs[] = {"srgb", "ignore", NULL};
enum { ON_ERROR_STOP, ON_ERROR_SKIP, ON_ERROR_FAIL };
static const char *const on_errors[] = {"stop", "skip", "fail", NULL};

/* What Pillow scripts, img2dataset, FFCV's writer, vipsthumbnail and mogrify call it. */
static const OptionForeign foreign[] = {
    JOB_FOREIGN,
    {"processes", "jobs"},
    {"thumbnail", "max-size"},
    {"min-image-size", "min-size"},
    {"encode-format", "format"},
    {"ext", "format"},
    {"verify", "check"},
    {"shard", "part"},
    {"short-edge", "max-size"},
    {"target-size", "max-size"},
    {"kernel", "filter"},
    {"exif", "keep-metadata"},
    {"auto-orient", "orient"},
    {"auto-rotate", "orient"},
    {"chroma-subsampling", "subsampling"},
    {"sampling-factor", "subsampling"},
    {"max-image-area", "max-pixels"},
    {"fail-fast", "on-error fail"},
    {"retries", "fetch-retries"},
    {"timeout", "fetch-timeout"},
    {0},
};

static const OptionForeign answers[] = {
    JOB_ANSWERS,
    {"skip-existing", "what is done is not done again"},
    {"resize-only-if-bigger", "images are never enlarged"},
    {"upscale", "images are never enlarged"},
    {"upscale-interpolation", "images are never enlarged"},
    {"long-edge", "--edge long makes --max-size mean the long edge"},
    {"width", "--max-size N bounds the short edge, and proportions are kept"},
    {"height", "--max-size N bounds the short edge, and proportions are kept"},
    {"crop", "nothing is cut off: ftrain crops, at random or in the middle"},
    {"center-crop", "nothing is cut off: ftrain crops, at random or in the middle"},
    {"crop-size", "nothing is cut into tiles: ftrain takes random crops of whole images"},
    {"antialias", "every filter is antialiased"},
    {"strip", "nothing but pixels is written unless --keep-metadata is given"},
    {"skip-reencode", "images that are small enough are copied byte for byte"},
    {"disable-all-reencoding", "images that are small enough are copied byte for byte"},
    {"pair-suffix", "fpack has it: make the images of each side smaller by a command of its own"},
    {"pair-scale", "fpack has it: pairs for super-resolution go there as they are"},
    {"output-format", "fpack --format packs; --format here is what images are written as"},
    {"url-list", "no single images are downloaded; SRC may be the address of a tar"},
    {"enable-wandb", "nothing calls Weights & Biases: --report FILE tells every image, --json the sums"},
    {"wandb", "nothing calls Weights & Biases: --report FILE tells every image, --json the sums"},
    {"distributor", "--part I/N does a part on each machine"},
    {"subjob-size", "--part I/N does a part on each machine"},
    {"number-sample-per-shard", "fpack --shard-size cuts shards"},
    {0},
};

static void print_failure(const char *path, const char *reason, void *context)
{
    note_tell_left_out(context, path, reason);
}

static bool is(const char *choice, const char *name)
{
    return strcmp(choice, name) == 0;
}

/* ---- --check ---- */

static FshStatus check(const ProgramContext *context, const ResizeOptions *options, bool *partial_ret,
                       FshError *error)
{
    const Settings *settings = context->settings;
    ResizeFindings findings;
    ResizeCheckSummary summary;
    FshStatus status =
        findings_open(&findings, stdout, settings->program.json, options->report, options->force, error);
    if (!status)
        status = resize_check(options, findings_add, &findings, &summary, error);
    FshStatus closed = findings_close(&findings, status ? NULL : &summary, status ? NULL : error);
    status = status ? status : closed;
    if (status)
        return status;
    if (!settings->program.quiet)
        resize_check_print(stderr, context->table->program, &summary);
    for (size_t i = 0; i < RESIZE_FINDING_COUNT; i++)
        *partial_ret = *partial_ret || summary.finding_counts[i] > 0;
    return status;
}

/* ---- resizing ---- */

/* Adds to the error of a run that was stopped what comes of the same command. */
static void say_what_goes_on(const ResizeOptions *options, FshError *error)
{
    const FshStatus status = error->status;
    const bool has_old_tar =
        options->force && resize_state_is_tar(options->destination) && file_exists(options->destination);
    const char *forced = options->force ? " without --force" : "";
    char reason[sizeof error->message];
    if (options->dry_run || (status != FSH_ERR_INTERRUPTED && status != FSH_ERR_NO_SPACE))
        return;
    (void)snprintf(reason, sizeof reason, "%s", error->message);
    if (status == FSH_ERR_INTERRUPTED && has_old_tar)
        (void)fsh_error_set(error, status, "interrupted; %s is as it was, and the same command begins anew",
                            options->destination);
    else if (status == FSH_ERR_INTERRUPTED)
        (void)fsh_error_set(error, status, "interrupted; the same command%s goes on from here", forced);
    else if (has_old_tar)
        (void)fsh_error_set(error, status,
                            "%s; %s is as it was: with more room, the same command begins anew", reason,
                            options->destination);
    else
        (void)fsh_error_set(error, status, "%s; with more room, the same command%s goes on from here", reason,
                            forced);
}

/* put: where a tar goes in the end; NULL: it stays. */
static FshStatus resize(const ProgramContext *context, const ResizeOptions *options, StorePut *put,
                        bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    NoteTeller notes = {.program = context->table->program, .verbose = settings->program.verbose};
    ResizeSummary summary;
    FshStatus status = resize_run(options, print_failure, &notes, &summary, error);
    /* what was done before a stop is worth telling, too */
    const bool ran = (!status || resize_summary_images(&summary) > 0) && status != FSH_ERR_NOT_FOUND;
    if (ran)
        resize_summary_print(stderr, context->table->program, &summary, options->dry_run,
                             settings->program.quiet);
    if (ran && settings->program.json && (!status || status == FSH_ERR_INTERRUPTED || summary.unread_count)) {
        FshStatus printed =
            resize_summary_print_json(stdout, &summary, options->dry_run, status ? NULL : error);
        status = status ? status : printed;
    }
    if (status)
        say_what_goes_on(options, error);
    else if (put && !options->dry_run)
        status = store_put_finish(put, error);
    *partial_ret = summary.outcome_counts[RESIZE_OUTCOME_FAILED] > 0;
    return status;
}

/* ---- the options ---- */

/* Returns the length of a name before the end that says it is a tar of another kind; 0: it does not. */
static size_t other_tar_stem(const char *name)
{
    static const char *const endings[] = {".tar.gz", ".tgz",     ".tar.bz2", ".tbz",     ".tbz2", ".tar.xz",
                                          ".txz",    ".tar.zst", ".tzst",    ".tar.lz4", ".TAR"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t ending = strlen(endings[i]);
        const size_t stem = length > ending ? length - ending : 0;
        if (stem && name[stem - 1] != '/' && is(name + stem, endings[i]))
            return stem;
    }
    return 0;
}

/* Returns whether a name is that of a tar, whatever it is compressed with. */
static bool tar_name_is(const char *name)
{
    return resize_state_is_tar(name) || other_tar_stem(name);
}

/* Refuses a name that asks for a tar of another kind: it would become a folder of this name. */
static FshStatus check_tar_name(const char *destination, FshError *error)
{
    const size_t stem = other_tar_stem(destination);
    if (!stem || file_is_folder(destination))
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: tars are written uncompressed: name it %.*s.tar",
                         destination, (int)stem, destination);
}

/* Refuses options that do not go together. */
static FshStatus check_usage(const Settings *settings, const ResizeOptions *options, FshError *error)
{
    const bool is_tar = resize_source_is_tar(&options->source);
    const bool is_forced = options->force && !options->report; /* else it is for the report */
    const bool is_in_part = options->part.count && !resize_state_is_tar(options->destination);
    if (settings->check && (is_in_part || is_forced || options->dry_run))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--check looks at all of DST and writes nothing: it goes without %s",
                             is_in_part  ? "--part"
                             : is_forced ? "--force"
                                         : "--dry-run");
    if (settings->program.json && resize_report_is_stdout(options->report))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--json and --report %s both want standard output; take a file for one of them",
                             options->report);
    if (options->source.null_separated && !options->source.files_from)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "-0 says how the list of --files-from is separated; name the list");
    if (options->source.files_from && is(options->source.files_from, "-") && options->part.count)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "--part reads the list of --files-from twice, which standard input cannot give; take a file");
    if (settings->pairs && settings->masks)
        return fsh_error_set(error, FSH_ERR_USAGE, "--pairs and --masks: give one of them");
    if ((settings->pairs || settings->masks) && (settings->labels || settings->files_from))
        return fsh_error_set(error, FSH_ERR_USAGE, "--%s goes without %s",
                             settings->masks ? "masks" : "pairs",
                             settings->labels ? "--labels" : "--files-from");
    if (options->link && is_tar)
        return fsh_error_set(error, FSH_ERR_USAGE, "--link needs files to link to, and %s is a tar",
                             options->source.path);
    return check_tar_name(options->destination, error);
}

/* Takes the names of the two sides that an option, --pairs or --masks, gives as text. */
static FshStatus fill_pairs(const char *option, const char *text, ResizeSourceOptions *source,
                            FshError *error)
{
    char parts[2][256];
    size_t count = 0;
    if (strchr(text, '='))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s': sides lie below one SRC here%s", option, text,
                             source->masks ? "; move or link both folders into one"
                                           : "; make the images of each folder smaller by "
                                             "a command of its own, which gives equal sizes to equal sizes, "
                                             "and pack both with fpack --pairs A=DST1:B=DST2");
    FshStatus status = options_split_colon(option, text, parts, 2, &count, error);
    for (size_t side = 0; side < 2 && !status; side++) {
        if (strchr(parts[side], '/') || is(parts[side], ".") || is(parts[side], ".."))
            status =
                fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is no name of a folder", option, parts[side]);
        memcpy(source->sides[side], parts[side], sizeof source->sides[side]);
    }
    return status;
}

static ResizeOptions options_of(const Settings *settings)
{
    return (ResizeOptions){
        .source = {.path = settings->source,
                   .avoided = settings->destination,
                   .files_from = settings->files_from,
                   .null_separated = settings->null_separated,
                   .masks = settings->masks != NULL},
        .destination = settings->destination,
        .labels = settings->labels,
        .report = settings->report,
        .recipe = {.max_size = (uint32_t)settings->max_size,
                   .min_size = (uint32_t)settings->min_size,
                   .long_edge = settings->edge == EDGE_LONG,
                   .filter = (ResampleFilter)settings->filter,
                   .format = format_values[settings->format],
                   .quality = (int)settings->quality,
                   .subsampling = (ImageSubsampling)settings->subsampling,
                   .ignore_orientation = settings->orient == ORIENT_IGNORE,
                   .ignore_icc = settings->icc == ICC_IGNORE,
                   .keep_metadata = settings->keep_metadata,
                   .exact = settings->exact,
                   .max_pixels = (uint64_t)settings->max_pixels},
        .link = settings->link,
        .force = settings->force,
        .dry_run = settings->program.dry_run,
        .quiet = settings->program.quiet,
        .verbose = settings->program.verbose,
        .fail_on_error = settings->on_error == ON_ERROR_FAIL,
        .skip_unread = settings->on_error == ON_ERROR_SKIP,
        .jobs = cpu_jobs(settings->program.jobs),
    };
}

/* Takes DST or, in a part of a tar, the part's own tar, whose name is written to part_name. */
static FshStatus take_destination(Settings *settings, char part_name[PATH_MAX], FshError *error)
{
    Part part = {0};
    FshStatus status = settings->part ? part_parse("--part", settings->part, &part, error) : FSH_OK;
    if (!status && part.count) {
        status = resize_state_part_name(settings->destination, part, part_name, error);
        settings->destination = part_name;
    }
    return status;
}

/* ---- servers ---- */

/* SRC and DST as they are here, where they are on servers. */
typedef struct Remote {
    const char *source, *destination; /* the addresses; NULL: it is not on a server */
    StoreFolder folder;
    StorePut *put;
} Remote;

/* Refuses what is not done to and from servers, and options of servers where none is named. */
static FshStatus check_addresses(const Settings *settings, FshError *error)
{
    const char *source = settings->source, *destination = settings->destination;
    const bool from = store_is_address(source), to = store_is_address(destination);
    if (from && !tar_name_is(source))
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: is no tar; folders of servers are not listed, and an image for each request "
            "would take days: name a tar, or make a dataset smaller by fpack --max-size",
            source);
    if (from && to && store_files_meet(source, destination))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: is the source too, and its images would be replaced by what comes of them; "
                             "name another tar",
                             destination);
    if (to && settings->check)
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: --check looks at what is on this machine; fetch it",
                             destination);
    FshStatus status = to ? check_tar_name(destination, error) : FSH_OK;
    if (!status && to && !resize_state_is_tar(destination))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "%s: to a server goes a tar, which is one request and not one for each image: "
                             "name it %s%simages.tar",
                             destination, destination,
                             destination[strlen(destination) - 1] == '/' ? "" : "/");
    return status ? status : store_options_check(&settings->store, from || to, error);
}

/* Brings a SRC here that is on a server, and finds a place here for a DST that is. */
static FshStatus open_remote(Remote *remote, Settings *settings, const char *program, FshError *error)
{
    StoreOptions *store = &settings->store;
    FshStatus status = check_addresses(settings, error);
    store->speaker = program;
    store->quiet = settings->program.quiet;
    if (!status && store_is_address(settings->destination)) { /* first, since it may refuse */
        status = store_put_open(&remote->put, settings->destination, settings->force,
                                settings->program.dry_run, store, error);
        remote->destination = settings->destination;
        settings->destination = remote->put ? store_put_path(remote->put) : NULL;
    }
    if (!status && store_is_address(settings->source)) {
        status = store_open(&remote->folder, settings->source, store, error);
        remote->source = settings->source;
        settings->source = remote->folder.path;
    }
    return status;
}

/* Has a message name the addresses, and lets go. */
static void close_remote(Remote *remote, FshError *error)
{
    if (remote->source)
        store_name_error(error, remote->folder.path, remote->source);
    if (remote->put)
        store_name_error(error, store_put_path(remote->put), remote->destination);
    store_close(&remote->folder);
    store_put_close(&remote->put);
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    Settings *settings = context->settings;
    Labels *labels = NULL;
    json_t *recipe = NULL; /* holds texts of settings */
    char part_name[PATH_MAX];
    ResizeOptions options;
    Remote remote = {.folder = STORE_FOLDER_NONE};
    FshStatus status = program_take_paths(context, &settings->source, &settings->destination, error);
    if (!status)
        status = take_destination(settings, part_name, error);
    if (!status)
        status = open_remote(&remote, settings, context->table->program, error);
    if (!status && settings->check)
        status = recipe_fill_options(context->table->options, settings->destination, &recipe, error);
    options = options_of(settings);
    options.source.name = remote.source;
    if (!status && (settings->pairs || settings->masks))
        status = fill_pairs(settings->masks ? "--masks" : "--pairs",
                            settings->masks ? settings->masks : settings->pairs, &options.source, error);
    if (!status && settings->part)
        status = part_parse("--part", settings->part, &options.part, error);
    if (!status)
        status = check_usage(settings, &options, error);
    if (!status)
        status = resize_state_refuse_report(&options, error);
    if (!status && settings->labels)
        status = labels_load(&labels, settings->labels, error);
    options.source.labels = labels;
    if (!status)
        status = settings->check ? check(context, &options, partial_ret, error)
                                 : resize(context, &options, remote.put, partial_ret, error);
    close_remote(&remote, error);
    labels_free(&labels);
    json_decref(recipe);
    return status;
}

int main(int argc, char **argv)
{
    Settings settings = {
        .edge = EDGE_SHORT,
        .filter = RESAMPLE_LANCZOS,
        .orient = ORIENT_APPLY,
        .icc = ICC_SRGB,
        .on_error = ON_ERROR_STOP,
        .max_size = 256,
        .quality = 90,
        .max_pixels = (int64_t)IMAGE_MAX_PIXELS_DEFAULT,
        .store = store_options_default(),
    };
    /* clang-format off */
    const Option options[] = {
        {.name = "max-size", .kind = OPTION_INTEGER, .value = &settings.max_size,
         .given = &settings.given.max_size, .argument = "N", .minimum = 1, .maximum = 65500,
         .group = "Size",
         .help = "short edge at most N pixels; never enlarged"},
        {.name = "edge", .kind = OPTION_CHOICE, .value = &settings.edge, .given = &settings.given.edge,
         .argument = "WHICH", .choices = edges,
         .help = "which edge --max-size means"},
        {.name = "min-size", .kind = OPTION_INTEGER, .value = &settings.min_size,
         .given = &settings.given.min_size, .argument = "N", .maximum = 65500,
         .help = "leave out images whose short edge is below N pixels, and count them; 0: none"},
        {.name = "filter", .kind = OPTION_CHOICE, .value = &settings.filter,
         .given = &settings.given.filter, .argument = "NAME", .choices = resample_filter_names,
         .help = "how pixels are weighed, with antialiasing, in Pillow's arithmetic"},
        {.name = "exact", .kind = OPTION_FLAG, .value = &settings.exact, .given = &settings.given.exact,
         .help = "decode every JPEG in full; else large ones are decoded at a half, a quarter or an "
                 "eighth of their size, with at least twice the pixels that are needed"},
        {.name = "format", .kind = OPTION_CHOICE, .value = &settings.format,
         .given = &settings.given.format, .argument = "NAME", .choices = formats, .group = "Output",
         .help = "what all images are written as; keep: JPEG, PNG and WebP as they are named, other "
                 "photographs as JPEG, other graphics as PNG"},
        {.name = "quality", .kind = OPTION_INTEGER, .value = &settings.quality,
         .given = &settings.given.quality, .argument = "N", .minimum = 1, .maximum = 100,
         .help = "of the JPEG and WebP files written"},
        {.name = "subsampling", .kind = OPTION_CHOICE, .value = &settings.subsampling,
         .given = &settings.given.subsampling, .argument = "WHICH", .choices = subsamplings,
         .help = "of the colours of the JPEGs written"},
        {.name = "orient", .kind = OPTION_CHOICE, .value = &settings.orient,
         .given = &settings.given.orient, .argument = "WHAT", .choices = orients,
         .help = "whether to turn images as their EXIF orientation says"},
        {.name = "icc", .kind = OPTION_CHOICE, .value = &settings.icc, .given = &settings.given.icc,
         .argument = "WHAT", .choices = iccs,
         .help = "what to do with an embedded colour profile: convert to sRGB, or ignore it as Pillow "
                 "does"},
        {.name = "keep-metadata", .kind = OPTION_FLAG, .value = &settings.keep_metadata,
         .given = &settings.given.keep_metadata,
         .help = "write EXIF, XMP and colour profile too, and leave colours in that profile; else "
                 "nothing but pixels is written"},
        {.name = "link", .kind = OPTION_FLAG, .value = &settings.link,
         .help = "make images that are small enough hard links of their sources, instead of copies"},
        {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &settings.force,
         .help = "write into a DST that is not empty, and write everything anew"},
        {.name = "on-error", .kind = OPTION_CHOICE, .value = &settings.on_error, .argument = "WHAT",
         .choices = on_errors, .group = "Bad input",
         .help = "what the system cannot read: stop before DST is finished, so that the same command "
                 "goes on with it, or skip it; damaged images are left out in any case; fail: end at the "
                 "first of both"},
        {.name = "max-pixels", .kind = OPTION_INTEGER, .value = &settings.max_pixels, .argument = "N",
         .minimum = 1, .maximum = 1e12,
         .help = "refuse images whose header claims more pixels"},
        {.name = "report", .kind = OPTION_TEXT, .value = &settings.report, .argument = "FILE",
         .group = "Report",
         .help = "write a line of JSON for each image: path, status, reason, quirks, sizes before and "
                 "after; with --check, for each finding; -: standard output"},
        {.name = "check", .kind = OPTION_FLAG, .value = &settings.check,
         .help = "compare DST with SRC and write nothing: outputs that are missing, damaged, of a source "
                 "that has changed or is gone, and files that are not fresize's; exit status 1 if there "
                 "are any"},
        {.name = "files-from", .kind = OPTION_TEXT, .value = &settings.files_from, .argument = "FILE",
         .group = "Input",
         .help = "the images that FILE lists, a path below SRC on each line; -: standard input"},
        {.name = "null", .letter = '0', .kind = OPTION_FLAG, .value = &settings.null_separated,
         .help = "the list of --files-from is separated by NUL, as find -printf '%P\\0' writes it"},
        {.name = "labels", .kind = OPTION_TEXT, .value = &settings.labels, .given = &settings.given.labels,
         .argument = "FILE",
         .help = "put each image into the folder of its class: lines of NAME LABEL or NAME,LABEL, or of "
                 "LABEL alone for images that end in their number (ImageNet's validation set)"},
        {.name = "pairs", .kind = OPTION_TEXT, .value = &settings.pairs, .given = &settings.given.pairs,
         .argument = "A:B",
         .help = "images below folders A and B belong together and keep one geometry; a pair that is "
                 "incomplete, of two sizes, or unreadable on one side is left out"},
        {.name = "masks", .kind = OPTION_TEXT, .value = &settings.masks, .given = &settings.given.masks,
         .argument = "A:B",
         .help = "as --pairs, for segmentation: images of A, and PNGs of B whose values (palette indices, or "
                 "gray of 1 to 8 bits) are classes; masks take the nearest pixel, and keep values and "
                 "palette"},
        {.name = "part", .kind = OPTION_TEXT, .value = &settings.part, .given = &settings.given.part,
         .argument = "I/N",
         .help = "do the I-th of N parts, equal in bytes, into one DST, or where that is x.tar into "
                 "x-I-of-N.tar; auto: as the job array says, auto/N: where that tells no count"},
        STORE_ROWS(&settings.store, 0),
        PROGRAM_PATHS(&settings.source, &settings.destination),
        PROGRAM_OPTIONS(&settings.program),
        {0},
    };
    /* clang-format on */
    const OptionTable table = {
        .program = "fresize",
        .summary =
            "Writes the images of SRC to DST with their SHORT edge at most --max-size pixels, never "
            "enlarged. Same tree, same names; images already small enough are copied byte for byte. SRC is "
            "a folder or a tar (of tars, as ImageNet's), DST a folder, or a tar if its name ends in .tar. "
            "Tars may "
            "lie on servers: https://, s3://, gs://.",
        .usage = "[OPTIONS] SRC DST",
        .options = options,
        .foreign = foreign,
        .answers = answers,
        .examples =
            "  fresize --max-size 160 imagenet/ imagenet160/\n"
            "  fresize --max-size 160 ILSVRC2012_img_train.tar imagenet160/train\n"
            "  fresize --max-size 160 --labels val.txt ILSVRC2012_img_val.tar imagenet160/val\n"
            "  fresize --max-size 160 --exact --icc ignore imagenet/ imagenet160/   # Pillow's pixels\n"
            "  fresize --max-size 256 --pairs blur:sharp GOPRO_Large/ gopro256/\n"
            "  fresize --max-size 512 --masks images:labels seg/ seg512/\n"
            "  fresize --max-size 160 s3://bucket/photos.tar s3://bucket/photos160.tar\n"
            "  fresize --part 2/8 --max-size 160 imagenet/ imagenet160/             # on the second of 8 "
            "machines\n"
            "  fresize --check imagenet/ imagenet160/                               # is it all there, and "
            "right?\n"
            "  fresize --dry-run photos/ small/                                     # what would be done\n",
        .arguments_min = 0,
        .arguments_max = 2,
    };
    return program_main(argc, argv, &table, &settings, image_library_versions, run);
}
