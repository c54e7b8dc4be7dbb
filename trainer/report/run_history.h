/* run_history.h - metrics.jsonl read back: the whole run, with the parts before it was resumed, as columns of
 * numbers.
 *
 *   RunHistory history = {0};
 *   if (!run_history_read(&history, "out/metrics.jsonl", &error))
 *       accuracy = run_table_column(&history.epochs, "eval_top1");   // [history.epochs.row_count], or NULL
 *   run_history_free(&history);
 *
 * What the columns are named is said by run_record.h, which writes them. Threads: after reading it is
 * constant. */
#ifndef FSHARD_TRAINER_REPORT_RUN_HISTORY_H
#define FSHARD_TRAINER_REPORT_RUN_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum { RUN_COLUMNS_MAX = 64 };

typedef struct RunColumn {
    char *name;     /* owned */
    double *values; /* [capacity]; NaN where a row does not have it, or has null */
} RunColumn;

typedef struct RunTable {
    RunColumn columns[RUN_COLUMNS_MAX];
    size_t column_count, row_count, capacity;
} RunTable;

typedef struct RunHistory {
    RunTable epochs, steps; /* of the rows whose "event" is "epoch", "step" */
} RunHistory;

/* Rows that are no JSON (a last one that was cut off) and members that are no numbers are passed over.
 * FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY; nothing is held then. */
FshStatus run_history_read(RunHistory *history, const char *path, FshError *error);
void run_history_free(RunHistory *history);

/* NULL: no row has it. */
const double *run_table_column(const RunTable *table, const char *name);

#endif
