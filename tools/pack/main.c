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
#include "tools/pack/settings.h"

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

/* 1,024T as a message says it: more than any file system holds. */
#define SIZE_MOST 0x1p50

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

/* "--merge DST PART…", or "--merge --dst DST PART…". */
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
    FshStatus status = settings_take(context, &options, error);
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
                           .duplicates = options.dedupe ? plan.duplicates : NULL,
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
        .format = settings_formats[0],
        .layout = settings_layouts[0],
        .store = pack_store_names[PACK_STORE_COPY],
        .level = FSH_PACK_LEVEL_DEFAULT,
        .dictionary_size = 16384,
        .shard_size = (uint64_t)256 << 20,
        .check = true,
        .max_pixels = (int64_t)IMAGE_MAX_PIXELS_DEFAULT,
        .edge = settings_edges[0],
        .filter = "lanczos",
        .quality = 90,
        .pair_scale = 1,
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
        {.name = "pair-scale",
         .kind = OPTION_INTEGER,
         .value = &settings.pair_scale,
         .argument = "N",
         .minimum = 1,
         .maximum = FSH_PAIR_SCALE_MAX,
         .help = "super-resolution: images of B are N times as wide and high as those of A"},
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
         .help = "what the images of a flat folder (SRC/val), or of a tar without labels, are: lines of NAME "
                 "LABEL or NAME,LABEL"},
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
         .given = &settings.seed_given,
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
         .choices = settings_edges,
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
         .choices = settings_formats,
         .given = &settings.format_given,
         .help = "shards: files of about --shard-size; lmdb: one LMDB for each split; tar: WebDataset",
         .group = "Output"},
        {.name = "layout",
         .kind = OPTION_CHOICE,
         .value = &settings.layout,
         .argument = "LAYOUT",
         .choices = settings_layouts,
         .help = "basicsr: LMDBs as BasicSR reads them, one for each side"},
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
         .maximum = SIZE_MOST,
         .help = "--store auto: raw where an image's pixels take at most SIZE; 0: no bound"},
        {.name = "budget",
         .kind = OPTION_SIZE,
         .value = &settings.budget,
         .argument = "SIZE",
         .maximum = SIZE_MOST,
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
         .maximum = SIZE_MOST,
         .given = &settings.shard_size_given,
         .help = "bytes of a shard or tar, about"},
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
