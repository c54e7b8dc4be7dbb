/* pack_settings_table.c - fpack's options as --help has them. */
#include <stdint.h>
#include <string.h>

#include "imaging/decode.h"
#include "tools/pack/pack_settings.h"

/* 1,024T as a message says it: more than any file system holds. */
#define SIZE_MOST 0x1p50

void settings_init(Settings *settings)
{
    *settings = (Settings){
        .format = SETTINGS_SHARDS,
        .layout = SETTINGS_FSHARD,
        .store = PACK_STORE_COPY,
        .level = FSH_PACK_LEVEL_DEFAULT,
        .dictionary_size = 16384,
        .shard_size = (uint64_t)256 << 20,
        .check = true,
        .max_pixels = (int64_t)IMAGE_MAX_PIXELS_DEFAULT,
        .edge = SETTINGS_SHORT,
        .on_error = SETTINGS_STOP,
        .filter = RESAMPLE_LANCZOS,
        .quality = 90,
        .pair_scale = 1,
        .remote = store_options_default(),
    };
}

void settings_rows(Settings *settings, Option rows[SETTINGS_ROWS])
{
    /* clang-format off */
    const Option table[] = {
        {.name = "pairs", .kind = OPTION_TEXT, .value = &settings->pairs, .argument = "A:B",
         .group = "Input",
         .help = "pairs of images: same path below a folder A and below a folder B, at any depth; gopro "
                 "is blur:sharp, nafnet input:target, basicsr lq:gt; lq=/a/LR:gt=/b/HR: of folders "
                 "anywhere, without SRC"},
        {.name = "fields", .kind = OPTION_TEXT, .value = &settings->fields, .argument = "A:B:C",
         .help = "as --pairs, with two to eight images a sample"},
        {.name = "masks", .kind = OPTION_TEXT, .value = &settings->masks, .argument = "A:B",
         .help = "as --pairs, for segmentation: images of A, and PNGs of B whose values (palette indices, or "
                 "gray of 1 to 8 bits) are the classes of their pixels, 255 for none; masks are stored byte "
                 "for byte"},
        {.name = "pair-suffix", .kind = OPTION_TEXT, .value = &settings->pair_suffix, .argument = "A=END",
         .help = "names of side A end in END, which is no part of what must be equal: lq=x2 pairs "
                 "0001x2.png with 0001.png; A=END:B=END for both sides"},
        {.name = "pair-scale", .kind = OPTION_INTEGER, .value = &settings->pair_scale, .argument = "N",
         .minimum = 1, .maximum = FSH_PAIR_SCALE_MAX,
         .help = "super-resolution: images of B are N times as wide and high as those of A"},
        {.name = "files-from", .kind = OPTION_TEXT, .value = &settings->files_from, .argument = "FILE",
         .help = "the images that FILE lists, in its order: PATH<tab>LABEL, with a path below SRC and a "
                 "label that is a name or a number; -: standard input"},
        {.name = "labels", .kind = OPTION_TEXT, .value = &settings->labels, .argument = "FILE",
         .help = "what the images of a flat folder (SRC/val), or of a tar without labels, are: lines of "
                 "NAME LABEL or NAME,LABEL"},
        {.name = "classes", .kind = OPTION_TEXT, .value = &settings->classes, .argument = "FILE",
         .help = "only the classes that FILE names, one a line; a class's index is its place there, from "
                 "0"},
        {.name = "class-names", .kind = OPTION_TEXT, .value = &settings->class_names, .argument = "FILE",
         .help = "what people call the classes, shown beside their own names: ImageNet's words.txt or "
                 "LOC_synset_mapping.txt, a JSON index, or a list in the order of the classes; of "
                 "--masks what their values are called"},
        {.name = "dedupe", .kind = OPTION_FLAG, .value = &settings->dedupe,
         .help = "of images with exactly the same content keep the first, in the order train, val, test"},
        {.name = "split", .kind = OPTION_REAL, .value = &settings->split, .argument = "FRACTION",
         .maximum = 1,
         .help = "make a val split of this share of each class of train, as 0.1 or 10%; 0: none"},
        {.name = "limit", .kind = OPTION_INTEGER, .value = &settings->limit, .argument = "N",
         .maximum = 1e15,
         .help = "take at most N samples of each split, spread over its classes (ftrain --limit counts "
                 "each class); 0: all"},
        {.name = "seed", .kind = OPTION_INTEGER, .value = &settings->seed, .given = &settings->seed_given,
         .argument = "SEED", .maximum = 1e15,
         .help = "which samples --split and --limit choose"},
        {.name = "check", .kind = OPTION_FLAG, .value = &settings->check,
         .help = "decode every image in full and leave out what is damaged"},
        {.name = "on-error", .kind = OPTION_CHOICE, .value = &settings->on_error, .argument = "WHAT",
         .choices = settings_on_error,
         .help = "what the system cannot read: stop before the dataset is finished, so that the same "
                 "command goes on with it, or skip it"},
        {.name = "max-pixels", .kind = OPTION_INTEGER, .value = &settings->max_pixels, .argument = "N",
         .minimum = 1, .maximum = 1e12,
         .help = "leave out images of more pixels"},
        {.name = "max-size", .kind = OPTION_INTEGER, .value = &settings->max_size, .argument = "N",
         .maximum = 65500, .group = "Size",
         .help = "make images smaller on the way in, as fresize would: short edge at most N pixels, "
                 "never enlarged; 0: as they are"},
        {.name = "edge", .kind = OPTION_CHOICE, .value = &settings->edge, .given = &settings->sizing,
         .argument = "WHICH", .choices = settings_edges,
         .help = "which edge --max-size means"},
        {.name = "filter", .kind = OPTION_CHOICE, .value = &settings->filter, .given = &settings->sizing,
         .argument = "NAME", .choices = resample_filter_names,
         .help = "how pixels are weighed, with antialiasing, in Pillow's arithmetic"},
        {.name = "quality", .kind = OPTION_INTEGER, .value = &settings->quality,
         .given = &settings->quality_given, .argument = "N", .minimum = 1, .maximum = 100,
         .help = "of JPEGs and WebPs that are made smaller, and of --store jpeg"},
        {.name = "exact", .kind = OPTION_FLAG, .value = &settings->exact, .given = &settings->sizing,
         .help = "decode every JPEG in full; else large ones are decoded at a half, a quarter or an "
                 "eighth of their size, with at least twice the pixels that are needed"},
        {.name = "format", .kind = OPTION_CHOICE, .value = &settings->format,
         .given = &settings->format_given, .argument = "FORMAT", .choices = settings_formats,
         .hints = settings_format_hints, .group = "Output",
         .help = "shards: files of about --shard-size; lmdb: one LMDB for each split; tar: WebDataset"},
        {.name = "layout", .kind = OPTION_CHOICE, .value = &settings->layout, .argument = "LAYOUT",
         .choices = settings_layouts,
         .help = "basicsr: LMDBs as BasicSR reads them, one for each side"},
        {.name = "store", .kind = OPTION_CHOICE, .value = &settings->store, .argument = "STORE",
         .choices = pack_store_names, .hints = settings_store_hints,
         .help = "copy: the files' bytes as they are; jpeg: encoded again, see --quality; raw: decoded "
                 "pixels, uint8, height x width x channels; zstd: the same, compressed; auto: raw or "
                 "copy, see --raw-under and --budget"},
        {.name = "raw-under", .kind = OPTION_SIZE, .value = &settings->raw_under, .argument = "SIZE",
         .maximum = SIZE_MOST,
         .help = "--store auto: raw where an image's pixels take at most SIZE; 0: no bound"},
        {.name = "budget", .kind = OPTION_SIZE, .value = &settings->budget, .argument = "SIZE",
         .maximum = SIZE_MOST,
         .help = "--store auto: raw for as many samples as fit, so that all records take at most SIZE; "
                 "0: no bound"},
        {.name = "level", .kind = OPTION_INTEGER, .value = &settings->level,
         .given = &settings->level_given, .argument = "N", .minimum = 1, .maximum = FSH_PACK_LEVEL_MAX,
         .help = "of zstd: higher is smaller and slower to pack"},
        {.name = "dictionary", .kind = OPTION_FLAG, .value = &settings->dictionary,
         .help = "compress with a dictionary trained on the training split: for small images, with "
                 "--store copy, jpeg or zstd"},
        {.name = "dictionary-size", .kind = OPTION_SIZE, .value = &settings->dictionary_size,
         .given = &settings->dictionary_size_given, .argument = "SIZE", .minimum = 256,
         .maximum = FSH_DICTIONARY_BYTES_MAX,
         .help = "bytes of that dictionary, at most"},
        {.name = "shard-size", .kind = OPTION_SIZE, .value = &settings->shard_size,
         .given = &settings->shard_size_given, .argument = "SIZE", .minimum = 4096, .maximum = SIZE_MOST,
         .help = "bytes of a shard or tar, about"},
        {.name = "shuffle", .kind = OPTION_INTEGER, .value = &settings->shuffle, .argument = "SEED",
         .maximum = 1e15,
         .help = "store the samples of each split in the random order of this seed; 0: by path"},
        {.name = "update", .kind = OPTION_FLAG, .value = &settings->update,
         .help = "change the dataset in DST to what SRC holds now: only files that are new or changed are "
                 "packed, and vanished ones go; give the same options as when it was packed"},
        {.name = "append", .kind = OPTION_FLAG, .value = &settings->append,
         .help = "add the samples of SRC, another folder, to the dataset in DST"},
        {.name = "checksum", .kind = OPTION_FLAG, .value = &settings->checksum,
         .help = "--update: tell changed files by their bytes, all of which are read, not by their times"},
        {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &settings->force,
         .help = "replace the dataset in DST"},
        {.name = "report", .kind = OPTION_TEXT, .value = &settings->report, .argument = "FILE",
         .help = "write what was left out, one JSON object a line; an older report is replaced"},
        {.name = "part", .kind = OPTION_TEXT, .value = &settings->part, .argument = "I/N",
         .group = "Many machines",
         .help = "pack part I of N, into the same DST as the others or one of its own; auto: as the "
                 "job array says, auto/N: where that tells no count"},
        {.name = "merge", .kind = OPTION_FLAG, .value = &settings->merge,
         .help = "the arguments are DST and folders of parts: make the dataset of them"},
        {.name = "repair-manifest", .kind = OPTION_FLAG, .value = &settings->repair_manifest,
         .group = "Repair",
         .help = "the argument is DST: make its dataset.json again from its files, where it was damaged, "
                 "edited or lost, or has no checksum"},
        STORE_ROWS(&settings->remote, 0),
        PROGRAM_PATHS(&settings->source, &settings->destination),
        PROGRAM_OPTIONS(&settings->program),
        {0}};
    /* clang-format on */
    _Static_assert(sizeof table / sizeof table[0] <= SETTINGS_ROWS, "more rows than SETTINGS_ROWS");
    memcpy(rows, table, sizeof table);
}

OptionTable settings_table(const Option *rows)
{
    return (OptionTable){
        .program = "fpack",
        .summary = "Packs images from class folders (SRC/CLASS/x.jpg, or SRC/train/CLASS/x.jpg and "
                   "SRC/val/CLASS/x.jpg), or "
                   "pairs of images, or another dataset, into a dataset that ftrain reads: "
                   "DST/dataset.json and its shards; SRC and DST may be in a bucket (s3://, gs://). "
                   "Every image is "
                   "decoded on the way in; what is damaged is listed and left out. After a stop, the same "
                   "command goes on.",
        .usage = "[OPTIONS] SRC DST, or fpack --merge DST [PART...], or fpack --repair-manifest DST",
        .options = rows,
        .foreign = settings_foreign,
        .answers = settings_answers,
        .examples = "  fpack imagenet160/ shards/\n"
                    "  fpack --split 0.1 photos/ shards/\n"
                    "  fpack --pairs blurry:sharp gopro/ shards/\n"
                    "  fpack --pairs gopro GOPRO_Large/ shards/\n"
                    "  fpack --pairs lq=/a/LR:gt=/b/HR --pair-suffix lq=x2 --pair-scale 2 shards/\n"
                    "  fpack --labels LOC_val_solution.csv imagenet/ shards/ # train/CLASS/x.jpg, val/x.jpg\n"
                    "  fpack --max-size 160 imagenet/ shards/       # from originals in one pass\n"
                    "  fpack --split 0.2 --format lmdb shards/ lmdb/ # a dataset, packed again\n"
                    "  fpack --part auto photos/ shards/            # in each task of a job array, then\n"
                    "  fpack --merge shards/\n"
                    "  fpack --update photos/ shards/               # what changed since, and no more\n"
                    "  fpack photos/ s3://bucket/shards             # each shard is sent as it is finished\n"
                    "  fpack --repair-manifest shards/\n"
                    "  fpack --store raw --format lmdb mnist/ mnist-lmdb/\n",
        .arguments_max = SIZE_MAX,
    };
}
