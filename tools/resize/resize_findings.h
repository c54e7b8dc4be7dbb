/* resize_findings.h - what --check finds, as it is found: lines, an array of JSON, a report. Memory does not
 * grow with their number. */
#ifndef FSHARD_RESIZE_FINDINGS_H
#define FSHARD_RESIZE_FINDINGS_H

#include <stdio.h>

#include "tools/resize/resize_check.h"
#include "tools/resize/resize_report.h"

typedef struct ResizeFindings {
    FILE *stream;
    bool json;
    ResizeReport report;
    bool begun; /* the JSON object */
    bool report_begun;
    FshStatus status; /* the first line that could not be written; error: why */
    FshError error;
} ResizeFindings;

/* Begins to tell. json: one object on the stream, which findings_close ends; else a line for each finding,
 * unless the report takes the same stream. report: as resize_report_open has it; NULL: none. */
FshStatus findings_open(ResizeFindings *findings, FILE *stream, bool json, const char *report, bool force,
                        FshError *error);

/* Tells a finding, "missing: PATH: REASON"; a ResizeOnFinding, whose context is a ResizeFindings. */
void findings_add(ResizeFinding finding, const char *path, const char *reason, void *context);

/* Ends the object with the summary's counts (NULL: the check could not come to its end, and the object says
 * so), and closes the report. To be called after findings_open in any case. */
FshStatus findings_close(ResizeFindings *findings, const ResizeCheckSummary *summary, FshError *error);

#endif
