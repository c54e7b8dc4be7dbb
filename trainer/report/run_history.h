/* run_history.h - reads metrics.jsonl back as columns of numbers: the whole run, with the parts before it was
 * resumed.
 *
 *   RunHistory history = {0};
 *   if (!run_history_read(&history, "out/metrics.jsonl", &error))
 *       accuracy = run_table_column(&history.epochs, "eval_top1");   // [history.epochs.row_count], or NULL
 *   run_history_free(&history);
 *
 * run_record.h writes the file and documents the names of the columns. Threads: after reading it is
 * constant. */
#ifndef FSHARD_TRAINER_REPORT_RUN_HISTORY_H
#define FSHARD_TRAINER_REPORT_RUN_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { RUN_COLUMNS_MAX = 256 };

typedef struct RunColumn {
    char *name;     /* owned */
    double *values; /* [capacity]; NaN in a row that has no such member, or null */
} RunColumn;

typedef struct RunTable {
    RunColumn columns[RUN_COLUMNS_MAX];
    size_t column_count, row_count, capacity;
} RunTable;

typedef struct RunHistory {
    RunTable epochs, steps; /* rows whose "event" is "epoch", rows whose "event" is "step" */
} RunHistory;

/* Reads the file. Skips rows that are no JSON (a last one that was cut off) and members that are no numbers.
 * FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY; nothing is held then. */
FshStatus run_history_read(RunHistory *history, const char *path, FshError *error);
void run_history_free(RunHistory *history);

/* Returns the column's values; NULL: no row has it. */
const double *run_table_column(const RunTable *table, const char *name);

#endif
