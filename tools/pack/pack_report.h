/* pack_report.h - what fpack tells: summaries for people and machines, and the list of what was left out. */
#ifndef FSHARD_PACK_PACK_REPORT_H
#define FSHARD_PACK_PACK_REPORT_H

#include <stdio.h>

#include "tools/pack/pack.h"

/* Whether a report may be written to path: to a new file or over an older report; over any other only with force.
 * FSH_ERR_EXISTS. */
FshStatus report_check_path(const char *path, bool force, FshError *error);

/* One JSON object a line for everything left out, {"path", "reason", "kind"}, the plan's first. Replaces an
 * older report. */
FshStatus report_write_left_out(const char *path, const NoteList *planned, const NoteList *worked,
                                FshError *error);

/* The summary of a finished packing: a few lines for people. */
void report_print(FILE *stream, const Plan *plan, const PackOptions *options, const PackResult *result);

/* What a dry run found. */
void report_print_plan(FILE *stream, const Plan *plan, const PackOptions *options);

/* The same as one JSON object on a line; result NULL: a dry run. FSH_ERR_MEMORY. */
FshStatus report_print_json(FILE *stream, const Plan *plan, const PackOptions *options,
                            const PackResult *result, FshError *error);

#endif
