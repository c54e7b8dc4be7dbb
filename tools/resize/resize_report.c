#include "tools/resize/resize_report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json_text.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/text.h"
#include "tar/tar_source.h"
#include "tools/job/job.h"

static const char *const outcome_names[RESIZE_OUTCOME_COUNT] = {
    [RESIZE_OUTCOME_RESIZED] = "resized",         [RESIZE_OUTCOME_CONVERTED] = "converted",
    [RESIZE_OUTCOME_COPIED] = "copied",           [RESIZE_OUTCOME_LINKED] = "linked",
    [RESIZE_OUTCOME_DONE_BEFORE] = "done before", [RESIZE_OUTCOME_TOO_SMALL] = "too small",
    [RESIZE_OUTCOME_FAILED] = "failed",
};

static const char *const stage_names[RESIZE_STAGE_COUNT] = {
    [RESIZE_STAGE_FINDING] = "finding",   [RESIZE_STAGE_READING] = "reading",
    [RESIZE_STAGE_DECODING] = "decoding", [RESIZE_STAGE_RESAMPLING] = "resampling",
    [RESIZE_STAGE_ENCODING] = "encoding", [RESIZE_STAGE_WRITING] = "writing",
};

/* ---- the report ---- */

/* Refuses to add lines to a file that is no report of fresize: a slip of the hand must not cost a file. */
static FshStatus refuse_foreign(const ResizeReport *report, FshError *error)
{
    static const char beginning[] = "{\"path\":"; /* as line_json writes it */
    char bytes[sizeof beginning - 1];
    ssize_t length = pread(report->descriptor, bytes, sizeof bytes, 0);
    if (length <= 0 || memcmp(bytes, beginning, (size_t)length) == 0)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_EXISTS, "%s: exists and is no report of fresize; --force replaces it",
                         report->path);
}

/* Ends half a line that a killed run may have left: what follows must not become part of it. */
static FshStatus end_torn_line(const ResizeReport *report, FshError *error)
{
    char last = '\n';
    off_t length = lseek(report->descriptor, 0, SEEK_END);
    if (length > 0 && pread(report->descriptor, &last, 1, length - 1) != 1)
        return fsh_error_system(error, errno, "%s: cannot read", report->path);
    if (last != '\n' && write(report->descriptor, "\n", 1) != 1)
        return fsh_error_system(error, errno, "%s: cannot write", report->path);
    return FSH_OK;
}

bool resize_report_is_stdout(const char *path)
{
    return path && (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0);
}

static FshStatus open_stream(ResizeReport *report, FshError *error)
{
    report->is_stream = report->is_new = true;
    report->descriptor = resize_report_is_stdout(report->path) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                                                               : open(report->path, O_WRONLY | O_CLOEXEC);
    return report->descriptor >= 0
               ? FSH_OK
               : fsh_error_system(error, errno, "%s: cannot open the report", report->path);
}

FshStatus resize_report_open(ResizeReport *report, const char *path, bool resume, bool force, FshError *error)
{
    struct stat kind;
    *report = (ResizeReport){.descriptor = -1, .path = path};
    if (!path)
        return FSH_OK;
    if (resize_report_is_stdout(path) || (stat(path, &kind) == 0 && !S_ISREG(kind.st_mode)))
        return open_stream(report, error);
    report->is_made = access(path, F_OK) != 0;
    report->is_new = force || report->is_made;
    int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | (force || resume ? 0 : O_EXCL);
    report->descriptor = open(path, flags, 0666);
    if (report->descriptor < 0 && errno == EEXIST)
        return fsh_error_set(error, FSH_ERR_EXISTS, "%s: the report exists already; --force replaces it",
                             path);
    if (report->descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot open the report", path);
    return force ? FSH_OK : refuse_foreign(report, error);
}

FshStatus resize_report_begin(const ResizeReport *report, FshError *error)
{
    if (report->descriptor < 0 || report->is_stream)
        return FSH_OK;
    if (report->is_new && !report->is_made && ftruncate(report->descriptor, 0))
        return fsh_error_system(error, errno, "%s: cannot empty the report", report->path);
    return end_torn_line(report, error);
}

void resize_report_undo(const ResizeReport *report)
{
    if (report->descriptor >= 0 && report->is_made)
        (void)unlink(report->path);
}

static json_t *quirks_json(uint32_t quirks)
{
    json_t *names = json_array();
    for (unsigned bit = 0; bit < IMAGE_QUIRK_COUNT; bit++) {
        if (quirks & 1u << bit)
            (void)json_array_append_new(names, json_string(image_quirk_name((ImageQuirk)(1u << bit))));
    }
    return names;
}

static json_t *line_json(const ResizeLine *line)
{
    json_t *object =
        json_pack("{s:o, s:s}", "path", json_text(line->path), "status", outcome_names[line->outcome]);
    int failed = !object;
    if (line->reason)
        failed |= json_object_set_new(object, "reason", json_text(line->reason));
    if (line->outcome == RESIZE_OUTCOME_DONE_BEFORE) {
        failed |= json_object_set_new(object, "target", json_text(line->target));
    } else {
        failed |= json_object_update_new(
            object, json_pack("{s:s, s:i, s:i, s:I, s:o}", "format", image_format_name(line->info.format),
                              "width", (int)line->info.width, "height", (int)line->info.height, "bytes",
                              (json_int_t)line->bytes_before, "quirks", quirks_json(line->info.quirks)));
        if (line->outcome != RESIZE_OUTCOME_FAILED && line->outcome != RESIZE_OUTCOME_TOO_SMALL)
            failed |= json_object_update_new(
                object,
                json_pack("{s:o, s:s, s:i, s:i, s:I}", "target", json_text(line->target), "new_format",
                          image_format_name(line->format), "new_width", (int)line->width, "new_height",
                          (int)line->height, "new_bytes", (json_int_t)line->bytes_after));
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Writes the object as one line, and consumes it; NULL: there was no memory for it. */
static FshStatus write_line(const ResizeReport *report, json_t *object, FshError *error)
{
    FshStatus status = FSH_OK;
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%s: no memory for a line", report->path);
    size_t length = strlen(text);
    text[length] = '\n'; /* in place of the NUL: one line, one write */
    ssize_t written = 0;
    size_t sent = 0;
    do { /* a pipe may take a part */
        written = write(report->descriptor, text + sent, length + 1 - sent);
        sent += written > 0 ? (size_t)written : 0;
    } while (report->is_stream && sent < length + 1 && (written > 0 || (written < 0 && errno == EINTR)));
    if (sent != length + 1)
        status = fsh_error_system(error, written < 0 ? errno : ENOSPC, "%s: cannot write", report->path);
    free(text);
    return status;
}

FshStatus resize_report_add(const ResizeReport *report, const ResizeLine *line, FshError *error)
{
    if (report->descriptor < 0 || (line->outcome == RESIZE_OUTCOME_DONE_BEFORE && !report->is_new))
        return FSH_OK;
    return write_line(report, line_json(line), error);
}

FshStatus resize_report_add_finding(const ResizeReport *report, const char *path, const char *finding,
                                    const char *reason, FshError *error)
{
    if (report->descriptor < 0)
        return FSH_OK;
    return write_line(
        report,
        json_pack("{s:o, s:s, s:o}", "path", json_text(path), "status", finding, "reason", json_text(reason)),
        error);
}

FshStatus resize_report_close(ResizeReport *report, FshError *error)
{
    int descriptor = report->descriptor;
    report->descriptor = -1;
    if (descriptor >= 0 && close(descriptor))
        return fsh_error_system(error, errno, "%s: cannot write", report->path);
    return FSH_OK;
}

/* ---- the summary ---- */

/* Returns the images a second, of those that this run has read. */
static double rate(const ResizeSummary *summary)
{
    uint64_t count = resize_summary_images(summary) - summary->outcome_counts[RESIZE_OUTCOME_DONE_BEFORE];
    return summary->seconds > 0 ? (double)count / summary->seconds : 0;
}

/* Writes "0.4 s" or "1:02:03" to buffer. Returns buffer. */
static const char *format_seconds(char *buffer, size_t buffer_bytes, double seconds)
{
    if (seconds >= 60)
        return progress_format_duration(buffer, buffer_bytes, seconds);
    (void)snprintf(buffer, buffer_bytes, "%.1f s", seconds);
    return buffer;
}

/* Prints what the threads' time went to, the largest first: "decoding 71 %, encoding 14 %, …; the bottleneck
 * is decoding". */
static void print_stages(FILE *stream, const char *program, const ResizeSummary *summary)
{
    double all = 0;
    size_t order[RESIZE_STAGE_COUNT];
    for (size_t i = 0; i < RESIZE_STAGE_COUNT; i++) {
        size_t at = i;
        for (; at > 0 && summary->stage_seconds[order[at - 1]] < summary->stage_seconds[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
        all += summary->stage_seconds[i];
    }
    if (all <= 0 || summary->bytes_before == 0)
        return;
    (void)fprintf(stream, "%s: time", program);
    for (size_t i = 0; i < RESIZE_STAGE_COUNT; i++) {
        double part = 100 * summary->stage_seconds[order[i]] / all;
        if (part >= 0.5)
            (void)fprintf(stream, "%s %s %.0f %%", i ? "," : "", stage_names[order[i]], part);
    }
    (void)fprintf(stream, "; the bottleneck is %s\n", stage_names[order[0]]);
}

static void print_quirks(FILE *stream, const char *program, const ResizeSummary *summary)
{
    bool any = false;
    for (unsigned bit = 0; bit < IMAGE_QUIRK_COUNT; bit++) {
        if (summary->quirk_counts[bit] == 0)
            continue;
        (void)fprintf(stream, "%s%s%" PRIu64 " %s", any ? "" : program, any ? ", " : ": met ",
                      summary->quirk_counts[bit], image_quirk_name((ImageQuirk)(1u << bit)));
        any = true;
    }
    if (any)
        (void)fputc('\n', stream);
}

/* Prints "; 1.2 GiB saved", where there is something to tell. */
static void print_saved(FILE *stream, const ResizeSummary *summary)
{
    char saved[32];
    if (summary->bytes_before > summary->bytes_after)
        (void)fprintf(
            stream, ", %s (%.0f %%) saved",
            progress_format_bytes(saved, sizeof saved, summary->bytes_before - summary->bytes_after),
            100.0 * (double)(summary->bytes_before - summary->bytes_after) / (double)summary->bytes_before);
}

/* Prints bytes and rate, where anything was written: else they say nothing. */
static void print_written(FILE *stream, const char *program, const ResizeSummary *summary)
{
    char before[32], after[32], took[32];
    (void)format_seconds(took, sizeof took, summary->seconds);
    if (summary->bytes_after == 0) {
        (void)fprintf(stream, "%s: nothing was written, in %s\n", program, took);
        return;
    }
    (void)fprintf(stream, "%s: %s -> %s", program,
                  progress_format_bytes(before, sizeof before, summary->bytes_before),
                  progress_format_bytes(after, sizeof after, summary->bytes_after));
    print_saved(stream, summary);
    (void)fprintf(stream, " in %s, %.0f images/s\n", took, rate(summary));
}

static void print_warnings(FILE *stream, const char *program, const ResizeSummary *summary)
{
    if (summary->source_unfinished)
        (void)fprintf(stream,
                      "%s: warning: the run of fresize that makes SRC has not come to its end: images may be "
                      "missing; end "
                      "that one first, then repeat this one\n",
                      program);
    if (summary->unmarked_count) {
        (void)fprintf(stream, "%s: warning: ", program);
        program_print_text(stream, summary->unmarked_first);
        (void)fprintf(stream, ": %" PRIu64 " " TAR_UNMARKED "\n", summary->unmarked_count,
                      text_plural(summary->unmarked_count));
    }
    if (summary->outside_count) {
        (void)fprintf(stream, "%s: warning: ", program);
        program_print_text(stream, summary->outside_first);
        (void)fprintf(stream,
                      ": lies below neither side's folder, as %" PRIu64 " image%s in all; left alone\n",
                      summary->outside_count, text_plural(summary->outside_count));
    }
    if (summary->masked_pairs_count)
        (void)fprintf(stream,
                      "%s: warning: %" PRIu64
                      " pair%s with a PNG of a palette or of gray on one side alone: if "
                      "those are masks of segmentation, their values are mixed; --masks A:B keeps them\n",
                      program, summary->masked_pairs_count, text_plural(summary->masked_pairs_count));
}

static void print_summary(FILE *stream, const char *program, const ResizeSummary *summary, bool dry_run)
{
    static const char *const tenses[] = {"", "would be "};
    const uint64_t images = resize_summary_images(summary);
    (void)fprintf(stream, "%s: ", program);
    if (summary->part.count)
        (void)fprintf(stream, "part %u/%u: ", summary->part.index, summary->part.count);
    (void)fprintf(stream, "%" PRIu64 " image%s", images, text_plural(images));
    const char *separator = ": ";
    for (size_t i = 0; i < RESIZE_OUTCOME_COUNT; i++) {
        if (summary->outcome_counts[i] == 0)
            continue;
        (void)fprintf(stream, "%s%" PRIu64 " %s%s", separator, summary->outcome_counts[i],
                      tenses[dry_run && i < RESIZE_OUTCOME_DONE_BEFORE], outcome_names[i]);
        separator = ", ";
    }
    if (summary->stopped)
        (void)fputs("; stopped before the end", stream);
    if (summary->files_left)
        (void)fprintf(stream, ", %" PRIu64 " file%s not looked at", summary->files_left,
                      text_plural(summary->files_left));
    if (dry_run) {
        (void)fprintf(stream, "\n%s: headers read only, nothing written\n", program);
    } else {
        (void)fputc('\n', stream);
        print_written(stream, program, summary);
        print_stages(stream, program, summary);
    }
    print_quirks(stream, program, summary);
    if (summary->untold_count)
        (void)fprintf(stream,
                      "%s: %" PRIu64
                      " more were left out for such reasons: -v prints all, --report lists them\n",
                      program, summary->untold_count);
    if (summary->unlinked_count)
        (void)fprintf(stream, "%s: %" PRIu64 " copied, not linked: the file system of DST cannot link them\n",
                      program, summary->unlinked_count);
    if (summary->mixed_pairs_count)
        (void)fprintf(stream, "%s: %" PRIu64 " pair%s with one side gray and the other in colours\n", program,
                      summary->mixed_pairs_count, text_plural(summary->mixed_pairs_count));
    if (summary->other_count)
        (void)fprintf(stream, "%s: %" PRIu64 " other file%s left alone\n", program, summary->other_count,
                      text_plural(summary->other_count));
}

/* Prints a line, and goes on in another where it has more than 80 columns: after the program's name, at a
 * space that does not part a number from its "%". */
static void print_line(FILE *stream, const char *program, const char *line, size_t length)
{
    enum { COLUMNS = 80 };
    size_t room = COLUMNS;
    while (length > room) {
        size_t at = room;
        while (at > 0 && (line[at] != ' ' || line[at + 1] == '%'))
            at--;
        if (at == 0)
            break;
        (void)fprintf(stream, "%.*s\n%s:   ", (int)at, line, program);
        line += at + 1;
        length -= at + 1;
        room = COLUMNS - strlen(program) - 4;
    }
    (void)fprintf(stream, "%.*s\n", (int)length, line);
}

static void print_lines(FILE *stream, const char *program, const ResizeSummary *summary, bool dry_run,
                        bool quiet)
{
    if (!quiet || dry_run) /* the plan is what was asked for */
        print_summary(stream, program, summary, dry_run);
    print_warnings(stream, program, summary);
}

void resize_summary_print(FILE *stream, const char *program, const ResizeSummary *summary, bool dry_run,
                          bool quiet)
{
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory)
        print_lines(memory, program, summary, dry_run, quiet);
    if (!memory || fclose(memory)) {
        print_lines(stream, program, summary, dry_run, quiet); /* as long as its lines are */
        free(text);
        return;
    }
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        print_line(stream, program, line, strcspn(line, "\n"));
    free(text);
}

/* Returns an object with a number for each outcome; spaces in names become "_". NULL: no memory. */
static json_t *outcomes_json(const ResizeSummary *summary)
{
    json_t *object = json_object();
    int failed = 0;
    for (size_t i = 0; i < RESIZE_OUTCOME_COUNT && !failed; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%s", outcome_names[i]);
        for (char *space = strchr(name, ' '); space; space = strchr(space, ' '))
            *space = '_';
        failed = json_object_set_new(object, name, json_integer((json_int_t)summary->outcome_counts[i]));
    }
    return object;
}

static json_t *summary_json(const ResizeSummary *summary, bool dry_run)
{
    json_t *quirks = json_object(), *stages = json_object(), *object = outcomes_json(summary);
    int failed = !quirks || !stages || !object;
    for (unsigned bit = 0; bit < IMAGE_QUIRK_COUNT && !failed; bit++) {
        if (summary->quirk_counts[bit])
            failed = json_object_set_new(quirks, image_quirk_name((ImageQuirk)(1u << bit)),
                                         json_integer((json_int_t)summary->quirk_counts[bit]));
    }
    for (size_t i = 0; i < RESIZE_STAGE_COUNT && !failed; i++)
        failed = json_object_set_new(stages, stage_names[i], json_measured(summary->stage_seconds[i]));
    json_t *others = json_pack(
        "{s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "dry_run",
        dry_run, "source_unfinished", summary->source_unfinished, "images",
        (json_int_t)resize_summary_images(summary), "unread", (json_int_t)summary->unread_count,
        "unmarked_tars", (json_int_t)summary->unmarked_count, "mixed_pairs",
        (json_int_t)summary->mixed_pairs_count, "outside", (json_int_t)summary->outside_count, "other_files",
        (json_int_t)summary->other_count, "hidden", (json_int_t)summary->hidden_count, "not_linked",
        (json_int_t)summary->unlinked_count, "bytes_before", (json_int_t)summary->bytes_before, "bytes_after",
        (json_int_t)summary->bytes_after, "seconds", json_measured(summary->seconds), "images_per_second",
        json_measured(rate(summary)), "quirks", quirks, "stage_seconds", stages);
    failed |= !others || json_object_update_new(object, others);
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

FshStatus resize_summary_print_json(FILE *stream, const ResizeSummary *summary, bool dry_run, FshError *error)
{
    return job_print_json(stream, summary_json(summary, dry_run), 0, error);
}
