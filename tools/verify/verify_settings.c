#include "tools/verify/verify_settings.h"

#include <string.h>

#include "tools/verify/verify_likeness.h"

void verify_settings_init(VerifySettings *settings)
{
    *settings =
        (VerifySettings){.overlap = true, .likeness_min = LIKENESS_MIN, .store = store_options_default()};
}

void verify_settings_rows(VerifySettings *settings, Option rows[VERIFY_SETTINGS_ROWS])
{
    /* clang-format off */
    const Option table[] = {
        {.name = "quick", .kind = OPTION_FLAG, .value = &settings->quick, .group = "Checks",
         .help = "headers, indexes and checksums of whole files only"},
        {.name = "decode", .kind = OPTION_FLAG, .value = &settings->decode,
         .help = "decode every image in full: its size, channels and format are those of its record"},
        {.name = "against", .kind = OPTION_TEXT, .value = &settings->against, .argument = "SRC",
         .help = "compare every image with the file in SRC that it was packed from, byte for byte; where "
                 "fresize or --max-size made it smaller, with what the same recipe makes of the file"},
        {.name = "pairs", .kind = OPTION_FLAG, .value = &settings->pairs,
         .help = "compare what the sides of each pair show, and list those that do not look alike"},
        {.name = "likeness", .kind = OPTION_REAL, .value = &settings->likeness_min,
         .given = &settings->likeness_given, .argument = "R", .minimum = -1, .maximum = 1,
         .help = "with --pairs: two sides that are less alike are suspicious"},
        {.name = "overlap", .kind = OPTION_FLAG, .value = &settings->overlap,
         .help = "find images that two splits share"},
        {.name = "part", .kind = OPTION_TEXT, .value = &settings->part, .argument = "I/N",
         .help = "check the I-th of N parts of the files, equal in bytes, less what only all files tell; "
                 "auto: as the job array says, auto/N: where that tells no count"},
        {.name = "html", .kind = OPTION_TEXT, .value = &settings->html, .argument = "FILE",
         .group = "Output",
         .help = "write the report as one page too, with pictures; it needs no network"},
        {.name = "list", .kind = OPTION_FLAG, .value = &settings->list,
         .help = "instead, print a line for each sample: split, index, key, label, class, fields, sizes, "
                 "codecs, bytes, between tabs"},
        {.name = "extract", .kind = OPTION_TEXT, .value = &settings->extract, .argument = "DIR",
         .help = "instead, write every image below DIR under the name of its source; raw pixels as PNG, "
                 "planes as .y4m"},
        {.name = "sheet", .kind = OPTION_TEXT, .value = &settings->sheet, .argument = "FILE",
         .help = "instead, write a contact sheet, a JPEG, PNG or WebP as FILE is called; with --pairs or "
                 "--decode after them, what they find first"},
        {.name = "repair", .kind = OPTION_TEXT, .value = &settings->repair, .argument = "OUT",
         .help = "instead, write what is intact of the shard PATH as the new shard OUT, and tell what is "
                 "lost"},
        {.name = "set-class-names", .kind = OPTION_TEXT, .value = &settings->class_names,
         .argument = "FILE",
         .help = "instead, write into the dataset what FILE calls its classes, as fpack --class-names"},
        {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &settings->force,
         .help = "replace the FILE of --html or --sheet"},
        STORE_ROWS(&settings->store, 0),
        /* PROGRAM_OPTIONS less --dry-run: no file of a dataset but its manifest is ever written to. */
        {.name = "jobs", .letter = 'j', .kind = OPTION_INTEGER, .value = &settings->jobs, .argument = "N",
         .maximum = 4096, .group = "General",
         .help = "threads to use; 0: as many as this process may use"},
        {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .value = &settings->quiet,
         .help = "print problems only"},
        {.name = "verbose", .letter = 'v', .kind = OPTION_FLAG, .value = &settings->verbose,
         .help = "print every class and every problem"},
        {.name = "json", .kind = OPTION_FLAG, .value = &settings->json,
         .help = "print the result as one JSON object on standard output"},
        {0}};
    /* clang-format on */
    _Static_assert(sizeof table / sizeof table[0] <= VERIFY_SETTINGS_ROWS,
                   "more rows than VERIFY_SETTINGS_ROWS");
    memcpy(rows, table, sizeof table);
}

/* What peers that look at datasets call what stands here under another name, or nowhere. */
static const OptionForeign foreign[] = {{"workers", "jobs"},
                                        {"num-workers", "jobs"},
                                        {"threads", "jobs"},
                                        {"check-images", "decode"},
                                        {"full", "decode"},
                                        {"fast", "quick"},
                                        {"compare", "against"},
                                        {"source", "against"},
                                        {"src", "against"},
                                        {"duplicates", "overlap"},
                                        {"leakage", "overlap"},
                                        {"report", "html"},
                                        {"output", "extract"},
                                        {"out-dir", "extract"},
                                        {"unpack", "extract"},
                                        {"contact-sheet", "sheet"},
                                        {"montage", "sheet"},
                                        {"fix", "repair"},
                                        {"recover", "repair"},
                                        {"threshold", "likeness"},
                                        {"ls", "list"},
                                        {"overwrite", "force"},
                                        {0}};
static const OptionForeign answers[] = {
    {"checksum", "checksums of files and records are compared anyway; --quick compares the files' alone"},
    {"hash", "checksums of files and records are compared anyway; --quick compares the files' alone"},
    {"dry-run", "a dataset is not written to, but by --set-class-names"},
    {"stats", "counts, sizes and classes are printed anyway; -v has every class, --html draws them"},
    {"pair-scale", "the dataset's manifest says it"},
    {0}};

OptionTable verify_settings_table(const Option *rows)
{
    return (OptionTable){
        .program = "fverify",
        .summary =
            "Checks datasets: structure, checksums of files and records, labels, keys, images that "
            "two splits share; with --decode every image, with --against every source. PATH is a "
            "dataset's folder, its dataset.json, a .fshard file, an .lmdb folder, WebDataset tars, or "
            "LMDBs of BasicSR, or the address (https://, s3://, gs://) of a dataset's folder. What is wrong "
            "is "
            "named by file, record, key and source.",
        .usage = "[OPTIONS] PATH...",
        .options = rows,
        .foreign = foreign,
        .answers = answers,
        .examples = "  fverify shards/\n"
                    "  fverify --decode --against photos/ shards/\n"
                    "  fverify --html report.html shards/\n"
                    "  fverify --repair fixed.fshard torn.fshard\n"
                    "  fverify --decode --part auto shards/         # in each task of a job array\n"
                    "  fverify --quick shards/train-00003-of-00016.fshard\n"
                    "  fverify s3://bucket/imagenet160\n"
                    "  fverify --json shards/ | jq '.datasets[].problems'\n",
        .arguments_min = 1,
        .arguments_max = 1 << 20,
    };
}
