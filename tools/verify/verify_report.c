#include "tools/verify/verify_report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/program.h"
#include "common/progress.h"
#include "common/text.h"

enum {
    CLASSES_SHOWN = 20,  /* all, if there are no more */
    CLASSES_LARGEST = 5, /* else these, */
    CLASSES_SMALLEST = 3,
    PROBLEMS_SHOWN = 50,
    ABSENT_SHOWN = 3, /* of absent sources, where the folder is likely another */
    CLASS_COLUMN = 24,
};

static void print_splits(FILE *stream, const VerifyReport *report)
{
    char samples[32], bytes[32];
    (void)fprintf(stream, "  %-8s %7s %14s %12s\n", "split", "files", "samples", "bytes");
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        const VerifySplit *split = &report->splits[i];
        (void)fprintf(stream, "  %-8s %7" PRIu64 " %14s %12s\n", split->name, split->file_count,
                      progress_format_count(samples, sizeof samples, split->sample_count),
                      progress_format_bytes(bytes, sizeof bytes, split->bytes));
    }
}

typedef struct ClassRow {
    size_t class_index;
    uint64_t count; /* in all splits */
} ClassRow;

static int compare_rows(const void *a, const void *b)
{
    const ClassRow *left = a, *right = b;
    if (left->count != right->count)
        return left->count > right->count ? -1 : 1;
    return left->class_index < right->class_index ? -1 : left->class_index > right->class_index;
}

static void print_class(FILE *stream, const VerifyReport *report, size_t class_index)
{
    char count[32];
    char name[512];
    (void)fsh_class_display(&report->manifest, class_index, name, sizeof name);
    const size_t length = strlen(name);
    (void)fputs("  ", stream);
    program_print_text(stream, name);
    (void)fprintf(stream, "%*s", length < CLASS_COLUMN ? CLASS_COLUMN - (int)length : 0, "");
    for (size_t i = 0; i < report->manifest.split_count; i++)
        (void)fprintf(
            stream, " %12s",
            progress_format_count(count, sizeof count, report->splits[i].class_counts[class_index]));
    (void)fprintf(stream, "\n");
}

/* Returns whether any sample has a label: containers of others need not tell any. */
static bool has_labels(const VerifyReport *report)
{
    bool labelled = false, any = false;
    for (size_t i = 0; i < report->manifest.split_count; i++) {
        any |= report->splits[i].sample_count > 0;
        for (size_t c = 0; c < report->manifest.class_count && !labelled; c++)
            labelled = report->splits[i].class_counts[c] > 0;
    }
    return labelled || !any;
}

/* Prints what the values of masks are called; of many the first. */
static void print_mask_names(FILE *stream, const FshManifest *manifest, bool all)
{
    const size_t count = manifest->mask_name_count,
                 shown = all || count <= CLASSES_SHOWN ? count : CLASSES_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        (void)fprintf(stream, "%s%zu ", i ? ", " : "  masks    ", i);
        program_print_text(stream, manifest->mask_names[i]);
    }
    if (shown < count)
        (void)fprintf(stream, ", … and %zu more (--verbose lists them)", count - shown);
    if (count)
        (void)fputc('\n', stream);
}

/* Prints the classes: few all, by name; of many the largest and the smallest. */
static void print_classes(FILE *stream, const VerifyReport *report, bool all)
{
    const size_t class_count = report->manifest.class_count;
    print_mask_names(stream, &report->manifest, all);
    if (class_count == 0 || !has_labels(report))
        return;
    (void)fprintf(stream, "  %-*s", CLASS_COLUMN, "class");
    for (size_t i = 0; i < report->manifest.split_count; i++)
        (void)fprintf(stream, " %12s", report->splits[i].name);
    (void)fprintf(stream, "\n");
    ClassRow *rows = all || class_count <= CLASSES_SHOWN ? NULL : calloc(class_count, sizeof *rows);
    for (size_t c = 0; c < class_count && !rows; c++)
        print_class(stream, report, c);
    for (size_t c = 0; c < class_count && rows; c++) {
        rows[c].class_index = c;
        for (size_t i = 0; i < report->manifest.split_count; i++)
            rows[c].count += report->splits[i].class_counts[c];
    }
    if (rows) {
        qsort(rows, class_count, sizeof *rows, compare_rows);
        for (size_t i = 0; i < CLASSES_LARGEST; i++)
            print_class(stream, report, rows[i].class_index);
        (void)fprintf(stream, "  … and %zu between (--verbose lists them)\n",
                      class_count - CLASSES_LARGEST - CLASSES_SMALLEST);
        for (size_t i = class_count - CLASSES_SMALLEST; i < class_count; i++)
            print_class(stream, report, rows[i].class_index);
    }
    free(rows);
}

static void print_range(FILE *stream, const Histogram *histogram, const char *what)
{
    if (histogram->minimum == histogram->maximum)
        (void)fprintf(stream, "%" PRIu64 " %s", histogram->minimum, what);
    else
        (void)fprintf(stream, "%" PRIu64 " to %" PRIu64 " %s", histogram->minimum, histogram->maximum, what);
}

/* Prints how many images have an edge of so many pixels; nothing where all are of one size. */
static void print_dimensions(FILE *stream, const VerifyReport *report)
{
    const Histogram *widths = &report->widths, *heights = &report->heights;
    size_t begin, end, heights_begin, heights_end;
    histogram_range(widths, &begin, &end);
    histogram_range(heights, &heights_begin, &heights_end);
    if (widths->minimum == widths->maximum && heights->minimum == heights->maximum)
        return;
    begin = heights_begin < begin ? heights_begin : begin;
    end = heights_end > end ? heights_end : end;
    (void)fprintf(stream, "  %-*s %12s %12s\n", CLASS_COLUMN, "pixels", "wide", "high");
    for (size_t i = begin; i < end; i++) {
        char range[64], wide[32], high[32];
        const uint64_t last = histogram_bin_begin(i + 1) - 1;
        if (!widths->counts[i] && !heights->counts[i])
            continue;
        (void)snprintf(range, sizeof range,
                       i + 1 == HISTOGRAM_BINS ? "%" PRIu64 " and more" : "%" PRIu64 " to %" PRIu64,
                       histogram_bin_begin(i), last);
        (void)fprintf(stream, "  %-*s %12s %12s\n", CLASS_COLUMN, range,
                      progress_format_count(wide, sizeof wide, widths->counts[i]),
                      progress_format_count(high, sizeof high, heights->counts[i]));
    }
}

static void print_images(FILE *stream, const VerifyReport *report)
{
    char count[32], bytes[32];
    const char *separator = "";
    if (report->image_count == 0)
        return;
    (void)fprintf(stream, "  images   ");
    for (unsigned codec = 0; codec < VERIFY_CODECS; codec++) {
        if (report->codec_counts[codec] == 0)
            continue;
        (void)fprintf(stream, "%s%s %s", separator,
                      progress_format_count(count, sizeof count, report->codec_counts[codec]),
                      fsh_codec_name((FshCodec)codec));
        separator = ", ";
    }
    if (report->compressed_count)
        (void)fprintf(stream, ", %s compressed",
                      progress_format_count(count, sizeof count, report->compressed_count));
    (void)fprintf(stream, "; ");
    if (report->widths.count) {
        print_range(stream, &report->widths, "wide, ");
        print_range(stream, &report->heights, "high; ");
        if (report->gray_count == report->image_count)
            (void)fprintf(stream, "all gray; ");
        else
            (void)fprintf(stream, "%s gray; ",
                          report->gray_count ? progress_format_count(count, sizeof count, report->gray_count)
                                             : "none");
    }
    (void)fprintf(stream, "%s each\n",
                  progress_format_bytes(bytes, sizeof bytes, report->bytes.sum / report->bytes.count));
    print_dimensions(stream, report);
    if (report->pair_count)
        (void)fprintf(
            stream, "  pairs    %s compared: likeness %.3f at least, %.3f on average; %s suspicious\n",
            progress_format_count(count, sizeof count, report->pair_count), report->likeness_least,
            report->likeness_sum / (double)report->pair_count,
            report->suspect_count ? progress_format_count(bytes, sizeof bytes, report->suspect_count)
                                  : "none");
}

static void print_missing(FILE *stream, const VerifyReport *report, const char *folder)
{
    char count[32];
    if (!report->missing.count)
        return;
    (void)fputs("  source   ", stream);
    program_print_text(stream, folder);
    (void)fprintf(stream, " has %s image%s in no record:",
                  progress_format_count(count, sizeof count, report->missing.count),
                  report->missing.count == 1 ? " that is" : "s that are");
    for (size_t i = 0; i < MISSING_NAMES && report->missing.names[i]; i++) {
        (void)fputc(' ', stream);
        program_print_text(stream, report->missing.names[i]);
    }
    (void)fputs(report->missing.count > MISSING_NAMES ? " …\n" : "\n", stream);
}

/* Prints a name between words of ours. */
static void print_name(FILE *stream, const char *before, const char *name, const char *after)
{
    (void)fputs(before, stream);
    program_print_text(stream, name);
    (void)fputs(after, stream);
}

/* Prints "train-00000-of-00002.fshard record 17, key cat/5, source train/cat/5.jpg: …". */
static void print_problem(FILE *stream, const VerifyReport *report, const VerifyProblem *problem)
{
    if (problem->status && strcmp(problem->file, report->name) != 0) /* remarks stand below its heading */
        print_name(stream, "", report->name, ": ");
    program_print_text(stream, problem->file);
    if (problem->record >= 0)
        (void)fprintf(stream, " record %" PRId64, problem->record);
    if (problem->key)
        print_name(stream, ", key ", problem->key, "");
    if (problem->source)
        print_name(stream, ", source ", problem->source, "");
    print_name(stream, ": ", problem->reason, "\n");
}

static void print_remarks(FILE *stream, const VerifyReport *report)
{
    for (size_t i = 0; i < report->remark_count; i++) {
        (void)fputs("  note     ", stream);
        print_problem(stream, report, &report->remarks[i]);
    }
}

bool verify_root_is_wrong(const VerifyReport *report)
{
    return report->absent_count > 1 &&
           report->source_count - report->absent_count <= report->source_count / 10;
}

bool verify_is_absent(const VerifyProblem *problem)
{
    return problem->status == FSH_ERR_NOT_FOUND && problem->record >= 0 && problem->source;
}

bool verify_is_listed(const VerifyReport *report, const VerifyProblem *problem, size_t most,
                      VerifyListed *listed)
{
    const bool told_at_once = verify_root_is_wrong(report) && verify_is_absent(problem);
    size_t *count = told_at_once ? &listed->absent_count : &listed->other_count;
    if (*count >= (told_at_once ? ABSENT_SHOWN : most))
        return false;
    ++*count;
    return true;
}

const char *verify_wrong_root(char *text, size_t text_bytes, const VerifyReport *report, const char *folder)
{
    char found[32], all[32];
    json_t *provenance =
        json_loads(report->manifest.provenance_json ? report->manifest.provenance_json : "", 0, NULL);
    const char *packed = json_string_value(json_object_get(provenance, "source"));
    const bool is_told = packed && *packed;
    const uint64_t there = report->source_count - report->absent_count;
    const size_t tried = report->nearby_root ? report->nearby_count : 0;
    char nearby[PATH_MAX + 64] = "";
    if (tried)
        (void)snprintf(nearby, sizeof nearby, "; %s has %s%zu that %s tried: give that", report->nearby_root,
                       tried > 1 ? "all " : "the ", tried, tried > 1 ? "were" : "was");
    (void)snprintf(text, text_bytes,
                   "--against: %s of the %s image%s that records name %s below %s: it is likely another "
                   "folder than the one that was packed%s%s%s",
                   there ? progress_format_count(found, sizeof found, there) : "none",
                   progress_format_count(all, sizeof all, report->source_count),
                   text_plural(report->source_count), there > 1 ? "are" : "is", folder,
                   is_told ? ", which fpack was given as " : "", is_told ? packed : "", nearby);
    json_decref(provenance);
    return text;
}

void verify_print_problems(FILE *stream, const VerifyReport *report, bool all)
{
    VerifyListed listed = {0};
    for (size_t i = 0; i < report->problem_count; i++) {
        if (all || verify_is_listed(report, &report->problems[i], PROBLEMS_SHOWN, &listed))
            print_problem(stream, report, &report->problems[i]);
    }
    const size_t shown = all ? report->problem_count : listed.absent_count + listed.other_count;
    if (shown < report->problem_count)
        (void)fprintf(stream, "… and %zu more (--verbose or --json lists them)\n",
                      report->problem_count - shown);
}

static void print_heading(FILE *stream, const VerifyReport *report)
{
    const FshManifest *manifest = &report->manifest;
    print_name(stream, "", report->name, ": ");
    (void)fprintf(stream, "%s, ", fsh_container_name(manifest->container));
    if (manifest->kind == FSH_KIND_CLASSES && !has_labels(report))
        (void)fprintf(stream, "no labels");
    else if (manifest->kind == FSH_KIND_CLASSES)
        (void)fprintf(stream, "%zu class%s", manifest->class_count, manifest->class_count == 1 ? "" : "es");
    else if (manifest->kind == FSH_KIND_MASKS && manifest->statistics.mask_classes)
        (void)fprintf(stream, "images and masks of %u class%s", (unsigned)manifest->statistics.mask_classes,
                      manifest->statistics.mask_classes == 1 ? "" : "es");
    else
        (void)fprintf(stream, "%s", manifest->kind == FSH_KIND_MASKS ? "images and masks" : "pairs");
    if (manifest->id[0]) /* containers of others have none */
        (void)fprintf(stream, ", id %s", manifest->id);
    (void)fputc('\n', stream);
}

const char *verify_claim(char *text, size_t text_bytes, const VerifyReport *report,
                         const VerifyOptions *options)
{
    char decoded[96] = "; images were not decoded (--decode does)", compared[64] = "", part[64] = "",
         count[32];
    const char *proved = options->level == VERIFY_QUICK ? "headers, indexes and checksums of files"
                                                        : "checksums of files and records";
    if (report->opened && !report->from_manifest &&
        !fsh_container_has(report->manifest.container, FSH_HAS_CHECKSUMS))
        proved = "structure of files and samples"; /* they carry no checksums */
    if (options->level == VERIFY_DECODE)
        (void)snprintf(decoded, sizeof decoded, ", %s image%s decoded",
                       progress_format_count(count, sizeof count, report->decoded_count),
                       text_plural(report->decoded_count));
    else if (report->pair_count)
        (void)snprintf(decoded, sizeof decoded,
                       "; images were decoded small, for the pairs (in full: --decode)");
    if (options->against)
        (void)snprintf(compared, sizeof compared, "; %s compared with their sources",
                       progress_format_count(count, sizeof count, report->compared_count));
    if (report->part.count)
        (void)snprintf(part, sizeof part, "part %u/%u: ", report->part.index, report->part.count);
    (void)snprintf(text, text_bytes, "%s%s%s%s", part, proved, decoded, compared);
    return text;
}

void verify_print(FILE *stream, const VerifyReport *report, const VerifyPrint *print)
{
    char count[32], rate[32], claim[256];
    if (report->opened && !print->quiet) {
        print_heading(stream, report);
        print_splits(stream, report);
        print_classes(stream, report, print->verbose);
        print_images(stream, report);
        print_missing(stream, report, print->options->against);
        print_remarks(stream, report);
    }
    verify_print_problems(stream, report, print->verbose);
    if (verify_root_is_wrong(report)) {
        char wrong[VERIFY_WRONG_ROOT_BYTES];
        print_name(stream, "", verify_wrong_root(wrong, sizeof wrong, report, print->options->against), "\n");
    }
    /* Of what could not be opened nothing is claimed, and one problem needs no count. */
    if (print->quiet || (!report->opened && report->problem_count == 1))
        return;
    const double seconds = report->seconds > 1e-6 ? report->seconds : 1e-6;
    uint64_t bytes = 0;
    for (size_t i = 0; report->opened && i < report->manifest.split_count; i++)
        bytes += report->splits[i].bytes;
    print_name(stream, "", report->name, ": ");
    if (report->problem_count)
        (void)fprintf(stream, "%s problem%s",
                      progress_format_count(count, sizeof count, report->problem_count),
                      text_plural(report->problem_count));
    else
        (void)fprintf(stream, "ok");
    if (!report->opened) {
        (void)fputc('\n', stream);
        return;
    }
    (void)fprintf(stream, "; %s; %.2f s, %s/s\n", verify_claim(claim, sizeof claim, report, print->options),
                  seconds, progress_format_bytes(rate, sizeof rate, (uint64_t)((double)bytes / seconds)));
}
