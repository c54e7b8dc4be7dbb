/* pack_report.h - what fpack tells: summaries for people and machines, and the list of what was left out. */
#ifndef FSHARD_PACK_PACK_REPORT_H
#define FSHARD_PACK_PACK_REPORT_H

#include <stdio.h>

#include "tools/pack/pack_update.h"

/* Checks that a report may be written to path: to a new file or over an older report; over any other only
 * with force. FSH_ERR_EXISTS; FSH_ERR_NOT_FOUND: no folder to write it into. */
FshStatus report_check_path(const char *path, bool force, FshError *error);

/* Writes one JSON object a line for everything left out, {"kind", "path", "reason"}, the plan's first.
 * Replaces an older report. */
FshStatus report_write_left_out(const char *path, const NoteList *planned, const NoteList *worked,
                                FshError *error);

/* What came of a run. */
typedef struct Report {
    const char *destination;
    const PackResult *result;
    const NoteList *planned_left_out; /* NULL: none; the result has what the work left out */
    uint64_t other_file_count;        /* files of the source that are no images */
    Part part;                        /* {0, 0}: all of it */
    bool dry_run, merged;
    const uint64_t *duplicates; /* that --dedupe left out, for each split; NULL: it was not given */
    const UpdateCounts *update; /* of --update and --append; else NULL */
    const PackChosen *chosen;   /* by --store auto, for the whole dataset; NULL: nothing was chosen */
} Report;

/* Prints the summary: a few lines for people; when quiet, only what it warns of, and of a dry
 * run the plan. */
void report_print(FILE *stream, const Report *report, bool quiet);

/* Prints the summary as one JSON object on a line. FSH_ERR_MEMORY. */
FshStatus report_print_json(FILE *stream, const Report *report, FshError *error);

#endif
