/* resize_report.h - what a run did: lines for a file, numbers for people and for programs. */
#ifndef FSHARD_RESIZE_REPORT_H
#define FSHARD_RESIZE_REPORT_H

#include <stdio.h>

#include "tools/resize/resize.h"

/* One image, as --report tells it. */
typedef struct ResizeLine {
    const char *path, *target;
    ResizeOutcome outcome;
    const char *reason; /* FAILED only */
    ImageInfo info;
    ImageFormat format;
    uint32_t width, height; /* as written */
    uint64_t bytes_before, bytes_after;
} ResizeLine;

typedef struct ResizeReport {
    int descriptor; /* -1: none */
    const char *path;
    bool is_stream; /* standard output, a pipe or a device: nothing in it is looked at or taken back */
    bool is_new;    /* holds nothing of an earlier run */
    bool is_made;   /* by this run */
} ResizeReport;

/* Returns whether this names standard output: "-", or "/dev/stdout". NULL does not. */
bool resize_report_is_stdout(const char *path);

/* Opens path for lines at its end, and changes nothing yet. What is no regular file, and standard output,
 * takes them as they come. A file that is there is continued when resume and it is a report, emptied when
 * force, else FSH_ERR_EXISTS. path NULL: a report that takes lines and drops them. */
FshStatus resize_report_open(ResizeReport *report, const char *path, bool resume, bool force,
                             FshError *error);
/* Makes the report ready for its first line, when it is known that no other run is at the destination and its
 * report. */
FshStatus resize_report_begin(const ResizeReport *report, FshError *error);
/* Removes the report of a run that did nothing, if it was not there before. It is to be closed all the same.
 */
void resize_report_undo(const ResizeReport *report);
/* Writes one line in one write. Images done before are in an earlier run's report: they are left out unless
 * it is new. */
FshStatus resize_report_add(const ResizeReport *report, const ResizeLine *line, FshError *error);
/* Writes a line of what --check finds. */
FshStatus resize_report_add_finding(const ResizeReport *report, const char *path, const char *finding,
                                    const char *reason, FshError *error);
FshStatus resize_report_close(ResizeReport *report, FshError *error);

/* Prints a few lines; dry_run: in the conditional; quiet: only what it warns of, and of a
 * dry run the plan. */
void resize_summary_print(FILE *stream, const char *program, const ResizeSummary *summary, bool dry_run,
                          bool quiet);
/* Prints one JSON object and a newline. FSH_ERR_MEMORY. */
FshStatus resize_summary_print_json(FILE *stream, const ResizeSummary *summary, bool dry_run,
                                    FshError *error);

#endif
