/* fpack - class folders, pairs of images, or another dataset into one dataset: shards or LMDB. The options are here, the work
 * is in plan.h and pack.h. */
#include <inttypes.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "common/program.h"
#include "common/progress.h"
#include "imaging/decode.h"
#include "tools/pack/destination.h"
#include "tools/pack/merge.h"
#include "tools/pack/pack_report.h"

typedef struct Settings {
    ProgramOptions program;
    const char *source, *destination, *format, *store, *pairs, *fields, *report, *edge, *filter;
    const char *files_from, *labels, *classes;
    uint64_t shard_size, raw_under, budget, dictionary_size;
    double split;
    int64_t seed, shuffle, limit, max_pixels, max_size, quality, level;
    const char *part;
    const struct Settings *defaults;
    bool check, force, merge, dedupe, dictionary, quality_given, level_given, dictionary_size_given, exact,
        sizing; /* sizing: an option was given that says how to make images smaller */
} Settings;

static const char *const formats[] = {"shards", "lmdb", "tar", NULL};
static const FshContainer containers[] = {FSH_CONTAINER_SHARDS, FSH_CONTAINER_LMDB, FSH_CONTAINER_TAR};
static const char *const edges[] = {"short", "long", NULL};

/* What img2dataset, WebDataset's and FFCV's writers, MDS and older scripts call them. */
static const OptionForeign foreign[] = {
    {"workers", "jobs"},    {"num-workers", "jobs"},   {"processes-count", "jobs"},
    {"n-jobs", "jobs"},     {"threads", "jobs"},       {"overwrite", "force"},
    {"exist-ok", "force"},  {"input", "src"},          {"input-dir", "src"},
    {"data-dir", "src"},    {"output", "dst"},         {"output-dir", "dst"},
    {"out-dir", "dst"},     {"maxsize", "shard-size"}, {"size-limit", "shard-size"},
    {"val-split", "split"}, {"val-fraction", "split"}, {"output-format", "format"},
    {"subset", "limit"},    {"max-samples", "limit"},  {0},
};

static void print_left_out(const Note *note, void *context)
{
    program_note_left_out(context, note->path, note->reason);
}

static void print_warnings(const Settings *settings, const NoteList *warnings)
{
    for (size_t i = 0; i < warnings->count && !settings->program.quiet; i++) {
        (void)fputs("fpack: warning: ", stderr);
        program_print_text(stderr, warnings->items[i].path);
        (void)fputs(": ", stderr);
        program_print_text(stderr, warnings->items[i].reason);
        (void)fputc('\n', stderr);
    }
}

/* The folders in which a data set's own documents, or a code's, put the sides of its pairs. */
static const struct {
    const char *name, *sides;
} pair_presets[] = {
    {"gopro", "blur:sharp"},    /* GOPRO_Large, REDS' blur and sharp */
    {"nafnet", "input:target"}, /* NAFNet, Restormer, MPRNet: datasets/GoPro/train/input */
    {"basicsr", "lq:gt"},       /* BasicSR: dataroot_lq, dataroot_gt */
};

/* The sides of a preset; text itself where it names none. */
static FshStatus find_pairs(const char *text, const char **sides_ret, FshError *error)
{
    *sides_ret = text;
    for (size_t i = 0; i < sizeof pair_presets / sizeof pair_presets[0]; i++) {
        if (strcmp(text, pair_presets[i].name) == 0)
            *sides_ret = pair_presets[i].sides;
    }
    return strchr(*sides_ret, ':')
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_USAGE,
                               "--pairs: '%s' is neither A:B nor one of gopro, nafnet, basicsr", text);
}

static FshStatus take_fields(const Settings *settings, PackOptions *options, FshError *error)
{
    if (settings->pairs && settings->fields)
        return fsh_error_set(error, FSH_ERR_USAGE, "--pairs and --fields: give one of them");
    FshStatus status = FSH_OK;
    const char *sides = NULL;
    if (settings->pairs)
        status = find_pairs(settings->pairs, &sides, error);
    if (sides && !status)
        status = options_split_colon("--pairs", sides, options->field_names, 2, &options->field_count, error);
    if (settings->fields)
        status = options_split_colon("--fields", settings->fields, options->field_names, FSH_FIELDS_MAX,
                                     &options->field_count, error);
    for (size_t field = 0; field < options->field_count && !status; field++) {
        if (strchr(options->field_names[field], '/'))
            status =
                fsh_error_set(error, FSH_ERR_USAGE, "%s: '%s' is a path; give the name of the folder alone",
                              settings->pairs ? "--pairs" : "--fields", options->field_names[field]);
    }
    return status;
}

/* What goes together, and what does not. */
static FshStatus check_usage(const PackOptions *options, FshError *error)
{
    const char *one = NULL, *other = NULL;
    if (options->field_count) {
        one = "--pairs and --fields";
        other = options->labels       ? "--labels"
                : options->files_from ? "--files-from"
                : options->classes    ? "--classes"
                                      : NULL;
    } else if (options->labels && options->files_from) {
        one = "--labels";
        other = "--files-from";
    }
    return other ? fsh_error_set(error, FSH_ERR_USAGE, "%s: %s", one,
                                 options->field_count ? "pairs have no classes; leave out --labels, "
                                                        "--files-from and --classes"
                                                      : "a list of --files-from has labels itself")
                 : FSH_OK;
}

/* fresize's recipe, with its defaults where fpack has no option. */
static FshStatus take_recipe(const Settings *settings, ResizeRecipe *recipe, FshError *error)
{
    size_t filter = 0;
    while (strcmp(resample_filter_names[filter], settings->filter) != 0)
        filter++; /* the option table has checked that it is one of them */
    *recipe = (ResizeRecipe){.max_size = (uint32_t)settings->max_size,
                             .long_edge = strcmp(settings->edge, "long") == 0,
                             .filter = (ResampleFilter)filter,
                             .format = IMAGE_UNKNOWN,
                             .quality = (int)settings->quality,
                             .subsampling = IMAGE_SUBSAMPLING_420,
                             .exact = settings->exact,
                             .max_pixels = (uint64_t)settings->max_pixels};
    return settings->sizing && !settings->max_size
               ? fsh_error_set(error, FSH_ERR_USAGE,
                               "--edge, --filter and --exact say how images are made smaller; give "
                               "--max-size too")
               : FSH_OK;
}

/* How samples are stored; an option that would do nothing is refused. */
static FshStatus take_store(const Settings *settings, PackOptions *options, FshError *error)
{
    while (strcmp(pack_store_names[options->store], settings->store) != 0)
        options->store++; /* the option table has checked that it is one of them */
    const bool automatic = options->store == PACK_STORE_AUTO;
    const bool compresses = options->store == PACK_STORE_ZSTD || settings->dictionary;
    const char *message = NULL;
    if (automatic && !settings->raw_under && !settings->budget)
        message = "--store auto: give --raw-under or --budget, or both: what shall be stored raw";
    else if (!automatic && (settings->raw_under || settings->budget))
        message = "--raw-under and --budget choose between raw and copy: give --store auto too";
    else if (settings->quality_given && !settings->max_size && options->store != PACK_STORE_JPEG)
        message = "--quality: nothing is encoded; give --max-size too, or --store jpeg";
    else if (settings->dictionary && (automatic || options->store == PACK_STORE_RAW))
        message = "--dictionary: raw pixels are mapped as they are; use --store zstd, copy or jpeg";
    else if (options->container == FSH_CONTAINER_TAR && compresses)
        message =
            "--format tar: holds files as others read them, not compressed: no --store zstd, no --dictionary";
    else if (settings->dictionary_size_given && !settings->dictionary)
        message = "--dictionary-size: give --dictionary too";
    else if (settings->level_given && !compresses)
        message = "--level: nothing is compressed; give --store zstd or --dictionary too";
    return message ? fsh_error_set(error, FSH_ERR_USAGE, "%s", message) : FSH_OK;
}

/* ---- --merge ---- */

static size_t option_value_bytes(OptionKind kind)
{
    switch (kind) {
    case OPTION_FLAG:
        return sizeof(bool);
    case OPTION_INTEGER:
        return sizeof(int64_t);
    case OPTION_SIZE:
        return sizeof(uint64_t);
    case OPTION_REAL:
        return sizeof(double);
    case OPTION_LIST:
        return sizeof(OptionList);
    case OPTION_TEXT:
    case OPTION_CHOICE:
        break;
    }
    return sizeof(const char *);
}

/* What the dataset is was decided when its parts were packed: an option that says otherwise is a misunderstanding. */
static FshStatus refuse_other_options(const ProgramContext *context, FshError *error)
{
    static const char *const allowed[] = {"merge",   "force", "dst",     "jobs",
                                          "dry-run", "quiet", "verbose", "json"};
    const Settings *settings = context->settings;
    for (const Option *option = context->table->options; option->name; option++) {
        bool known = false;
        for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
            known = known || strcmp(option->name, allowed[i]) == 0;
        const size_t offset = (size_t)((const char *)option->value - (const char *)settings);
        if (!known && memcmp(option->value, (const char *)settings->defaults + offset,
                             option_value_bytes(option->kind)) != 0)
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--%s: was decided when the parts were packed; it does not go with --merge",
                                 option->name);
    }
    return FSH_OK;
}

/* "--merge DST PART…", or "--merge --dst DST PART…". */
static FshStatus merge(const ProgramContext *context, FshError *error)
{
    const Settings *settings = context->settings;
    const OptionArguments *arguments = context->arguments;
    const size_t taken = settings->destination ? 0 : 1;
    PackResult result = {0};
    FshStatus status = refuse_other_options(context, error);
    if (!status && arguments->count < taken)
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "DST, the folder to merge into, is missing; usage: fpack "
                               "--merge DST [PART...]");
    if (status)
        return status;
    const MergeOptions options = {.destination = taken ? arguments->items[0] : settings->destination,
                                  .parts = arguments->items + taken,
                                  .part_count = arguments->count - taken,
                                  .force = settings->force,
                                  .dry_run = settings->program.dry_run};
    status = merge_run(&options, &result, error);
    const Report report = {
        .destination = options.destination, .result = &result, .merged = true, .dry_run = options.dry_run};
    if (!status && !settings->program.quiet)
        report_print(stderr, &report);
    if (!status && settings->program.json)
        status = report_print_json(stdout, &report, error);
    pack_result_free(&result);
    return status;
}

/* ---- packing ---- */

static FshContainer container_of(const char *format)
{
    size_t i = 0;
    while (strcmp(formats[i], format) != 0)
        i++; /* the option table has checked that it is one of them */
    return containers[i];
}

static FshStatus take_options(const ProgramContext *context, PackOptions *options, FshError *error)
{
    const Settings *settings = context->settings;
    *options = (PackOptions){
        .source = settings->source,
        .destination = settings->destination,
        .container = container_of(settings->format),
        .files_from = settings->files_from,
        .labels = settings->labels,
        .classes = settings->classes,
        .dedupe = settings->dedupe,
        .level = (int)settings->level,
        .raw_under = settings->raw_under,
        .budget_bytes = settings->budget,
        .dictionary_bytes = settings->dictionary ? settings->dictionary_size : 0,
        .shard_bytes = settings->shard_size,
        .val_fraction = settings->split,
        .seed = (uint64_t)settings->seed,
        .shuffle = settings->shuffle != 0,
        .shuffle_seed = (uint64_t)settings->shuffle,
        .limit = (uint64_t)settings->limit,
        .check = settings->check,
        .force = settings->force,
        .max_pixels = (uint64_t)settings->max_pixels,
        .jobs = cpu_jobs(settings->program.jobs),
        .quiet = settings->program.quiet,
    };
    if (settings->split >= 1)
        return fsh_error_set(error, FSH_ERR_USAGE, "--split: %g leaves nothing to train on: a tenth is 0.1",
                             settings->split);
    FshStatus status = program_take_paths(context, &options->source, &options->destination, error);
    if (!status && settings->part)
        status = part_parse("--part", settings->part, &options->part, error);
    if (!status)
        status = take_recipe(settings, &options->resize, error);
    if (!status)
        status = take_store(settings, options, error);
    if (!status)
        status = take_fields(settings, options, error);
    return status ? status : check_usage(options, error);
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    const Settings *settings = context->settings;
    PackOptions options;
    Plan plan = {.folder = -1};
    PackResult result = {0};
    ProgramNotes notes = {.program = context->table->program, .verbose = settings->program.verbose};
    const double begin = progress_now_seconds();
    if (settings->merge)
        return merge(context, error);
    FshStatus status = take_options(context, &options, error);
    if (status)
        return status;
    if (settings->report)
        status = destination_check_outside(options.destination, settings->report, error);
    if (settings->report && !status)
        status = report_check_path(settings->report, settings->force, error);
    if (status)
        return status;
    status = plan_make(&plan, &options, error);
    if (status == FSH_ERR_INTERRUPTED)
        status = fsh_error_set(error, status, "%s: interrupted before anything was written", options.source);
    for (size_t i = 0; i < plan.left_out.count; i++)
        print_left_out(&plan.left_out.items[i], &notes);
    print_warnings(settings, &plan.warnings);
    if (!status && settings->program.dry_run)
        status = pack_preview(&plan, &options, &result, error);
    else if (!status)
        status = pack_run(&plan, &options, print_left_out, &notes, &result, error);

    result.seconds = progress_now_seconds() - begin;

    /* Also after a stop: what was found by then is worth reading. */
    if (settings->report && !settings->program.dry_run) {
        FshError report_error = {0};
        if (report_write_left_out(settings->report, &plan.left_out, &result.left_out, &report_error) &&
            !status)
            status = fsh_error_set(error, report_error.status, "--report: %s", report_error.message);
    }
    const Report report = {.destination = options.destination,
                           .result = &result,
                           .planned_left_out = &plan.left_out,
                           .other_file_count = plan.other_file_count,
                           .part = options.part,
                           .dry_run = settings->program.dry_run,
                           .chosen = options.store == PACK_STORE_AUTO ? &plan.chosen : NULL};
    if (!status && !settings->program.quiet)
        report_print(stderr, &report);
    if (!status && settings->program.json)
        status = report_print_json(stdout, &report, error);
    *partial_ret = result.left_out.count > 0;
    for (size_t i = 0; i < plan.left_out.count; i++)
        *partial_ret = *partial_ret || plan.left_out.items[i].status; /* FSH_OK: left out as asked */
    pack_result_free(&result);
    plan_free(&plan);
    return status;
}

/* Decoded photographs are given back to the system when they are freed. glibc's own threshold for that grows to the size
 * of what was freed, up to 32 MiB, and its arenas then kept three times what is in use. */
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
    const Settings defaults = {
        .format = formats[0],
        .store = pack_store_names[PACK_STORE_COPY],
        .level = FSH_PACK_LEVEL_DEFAULT,
        .dictionary_size = 112640,
        .shard_size = (uint64_t)256 << 20,
        .check = true,
        .max_pixels = (int64_t)IMAGE_MAX_PIXELS_DEFAULT,
        .edge = edges[0],
        .filter = "lanczos",
        .quality = 90,
    };
    Settings settings = defaults;
    settings.defaults = &defaults;
    const Option options[] = {
        {.name = "pairs",
         .kind = OPTION_TEXT,
         .value = &settings.pairs,
         .argument = "A:B",
         .help = "pairs of images: same path below a folder A and below a folder B, at any depth; gopro is "
                 "blur:sharp, nafnet input:target, basicsr lq:gt",
         .group = "Input"},
        {.name = "fields",
         .kind = OPTION_TEXT,
         .value = &settings.fields,
         .argument = "A:B:C",
         .help = "as --pairs, with two to eight images a sample"},
        {.name = "files-from",
         .kind = OPTION_TEXT,
         .value = &settings.files_from,
         .argument = "FILE",
         .help = "the images that FILE lists, in its order: PATH<tab>LABEL, with a path below SRC and a "
                 "label that is a name or a number; -: standard input"},
        {.name = "labels",
         .kind = OPTION_TEXT,
         .value = &settings.labels,
         .argument = "FILE",
         .help = "what the images of a flat folder (SRC/val) are: lines of NAME LABEL or NAME,LABEL"},
        {.name = "classes",
         .kind = OPTION_TEXT,
         .value = &settings.classes,
         .argument = "FILE",
         .help = "only the classes that FILE names, one a line; a class's index is its place there, from 0"},
        {.name = "dedupe",
         .kind = OPTION_FLAG,
         .value = &settings.dedupe,
         .help = "of images with exactly the same content keep the first, in the order train, val, test"},
        {.name = "split",
         .kind = OPTION_REAL,
         .value = &settings.split,
         .argument = "FRACTION",
         .maximum = 1,
         .help = "make a val split of this share of each class of train; 0: none"},
        {.name = "limit",
         .kind = OPTION_INTEGER,
         .value = &settings.limit,
         .argument = "N",
         .maximum = 1e15,
         .help = "take at most N samples of each split, spread over its classes; 0: all"},
        {.name = "seed",
         .kind = OPTION_INTEGER,
         .value = &settings.seed,
         .argument = "SEED",
         .maximum = 1e15,
         .help = "which samples --split and --limit choose"},
        {.name = "check",
         .kind = OPTION_FLAG,
         .value = &settings.check,
         .help = "decode every image in full and leave out what is damaged"},
        {.name = "max-pixels",
         .kind = OPTION_INTEGER,
         .value = &settings.max_pixels,
         .argument = "N",
         .minimum = 1,
         .maximum = 1e12,
         .help = "leave out images of more pixels"},
        {.name = "max-size",
         .kind = OPTION_INTEGER,
         .value = &settings.max_size,
         .argument = "N",
         .maximum = 65500,
         .help = "make images smaller on the way in, as fresize would: short edge at most N pixels, never "
                 "enlarged; 0: as they are",
         .group = "Size"},
        {.name = "edge",
         .kind = OPTION_CHOICE,
         .value = &settings.edge,
         .argument = "WHICH",
         .choices = edges,
         .given = &settings.sizing,
         .help = "which edge --max-size means"},
        {.name = "filter",
         .kind = OPTION_CHOICE,
         .value = &settings.filter,
         .argument = "NAME",
         .choices = resample_filter_names,
         .given = &settings.sizing,
         .help = "how pixels are weighed, with antialiasing, in Pillow's arithmetic"},
        {.name = "quality",
         .kind = OPTION_INTEGER,
         .value = &settings.quality,
         .argument = "N",
         .minimum = 1,
         .maximum = 100,
         .given = &settings.quality_given,
         .help = "of JPEGs and WebPs that are made smaller, and of --store jpeg"},
        {.name = "exact",
         .kind = OPTION_FLAG,
         .value = &settings.exact,
         .given = &settings.sizing,
         .help = "decode every JPEG in full; else large ones are decoded at a half, a quarter or an eighth "
                 "of their size, with at least twice the pixels that are needed"},
        {.name = "format",
         .kind = OPTION_CHOICE,
         .value = &settings.format,
         .argument = "FORMAT",
         .choices = formats,
         .help = "shards: files of about --shard-size; lmdb: one LMDB for each split; tar: WebDataset",
         .group = "Output"},
        {.name = "store",
         .kind = OPTION_CHOICE,
         .value = &settings.store,
         .argument = "STORE",
         .choices = pack_store_names,
         .help =
             "copy: the files' bytes as they are; jpeg: encoded again, see --quality; raw: decoded pixels, "
             "uint8, height x width x channels; zstd: the same, compressed; auto: raw or copy, see "
             "--raw-under and --budget"},
        {.name = "raw-under",
         .kind = OPTION_SIZE,
         .value = &settings.raw_under,
         .argument = "SIZE",
         .maximum = 1e15,
         .help = "--store auto: raw where an image's pixels take at most SIZE; 0: no bound"},
        {.name = "budget",
         .kind = OPTION_SIZE,
         .value = &settings.budget,
         .argument = "SIZE",
         .maximum = 1e15,
         .help = "--store auto: raw for as many samples as fit, so that all records take at most SIZE; 0: no "
                 "bound"},
        {.name = "level",
         .kind = OPTION_INTEGER,
         .value = &settings.level,
         .argument = "N",
         .minimum = 1,
         .maximum = FSH_PACK_LEVEL_MAX,
         .given = &settings.level_given,
         .help = "of zstd: higher is smaller and slower to pack"},
        {.name = "dictionary",
         .kind = OPTION_FLAG,
         .value = &settings.dictionary,
         .help = "compress with a dictionary trained on the training split: for small images, with --store "
                 "copy, jpeg or zstd"},
        {.name = "dictionary-size",
         .kind = OPTION_SIZE,
         .value = &settings.dictionary_size,
         .argument = "SIZE",
         .minimum = 256,
         .maximum = FSH_DICTIONARY_BYTES_MAX,
         .given = &settings.dictionary_size_given,
         .help = "bytes of that dictionary, at most"},
        {.name = "shard-size",
         .kind = OPTION_SIZE,
         .value = &settings.shard_size,
         .argument = "SIZE",
         .minimum = 4096,
         .maximum = 1e15,
         .help = "bytes of a shard, about"},
        {.name = "shuffle",
         .kind = OPTION_INTEGER,
         .value = &settings.shuffle,
         .argument = "SEED",
         .maximum = 1e15,
         .help = "store the samples of each split in the random order of this seed; 0: by path"},
        {.name = "force",
         .letter = 'f',
         .kind = OPTION_FLAG,
         .value = &settings.force,
         .help = "replace the dataset in DST"},
        {.name = "report",
         .kind = OPTION_TEXT,
         .value = &settings.report,
         .argument = "FILE",
         .help = "write what was left out, one JSON object a line; an older report is replaced"},
        {.name = "part",
         .kind = OPTION_TEXT,
         .value = &settings.part,
         .argument = "I/N",
         .help =
             "pack part I of N, into the same DST as the others or one of its own; auto: as the Slurm array "
             "says",
         .group = "Many machines"},
        {.name = "merge",
         .kind = OPTION_FLAG,
         .value = &settings.merge,
         .help = "the arguments are DST and folders of parts: make the dataset of them"},
        PROGRAM_PATHS(&settings.source, &settings.destination),
        PROGRAM_OPTIONS(&settings.program),
        {0}};
    const OptionTable table = {
        .program = "fpack",
        .summary = "Packs images from class folders (SRC/CLASS/x.jpg, or SRC/train/CLASS/x.jpg and "
                   "SRC/val/CLASS/x.jpg), or "
                   "pairs of images, or another dataset, into a dataset that ftrain reads: "
                   "DST/dataset.json and its shards. "
                   "Every image is "
                   "decoded on the way in; what is damaged is listed and left out. After a stop, the same "
                   "command goes on.",
        .usage = "[OPTIONS] SRC DST, or fpack --merge DST [PART...]",
        .options = options,
        .foreign = foreign,
        .examples = "  fpack imagenet160/ shards/\n"
                    "  fpack --split 0.1 photos/ shards/\n"
                    "  fpack --pairs blurry:sharp gopro/ shards/\n"
                    "  fpack --pairs gopro GOPRO_Large/ shards/\n"
                    "  fpack --labels LOC_val_solution.csv imagenet/ shards/ # train/CLASS/x.jpg, val/x.jpg\n"
                    "  fpack --max-size 160 imagenet/ shards/       # from originals in one pass\n"
                    "  fpack --split 0.2 --format lmdb shards/ lmdb/ # a dataset, packed again\n"
                    "  fpack --part auto photos/ shards/            # in each task of a Slurm array, then\n"
                    "  fpack --merge shards/\n"
                    "  fpack --store raw --format lmdb mnist/ mnist-lmdb/\n",
        .arguments_max = SIZE_MAX,
    };
    return program_main(argc, argv, &table, &settings, image_library_versions, run);
}
