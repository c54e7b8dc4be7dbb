/* prediction_table.h - a table of predictions that grows row by row, and continues after a run was stopped.
 *
 *   prediction_table_open(&table, "out/predictions.csv", &options, &error);
 *   if (!prediction_table_has(table, "cat/1.jpg")) …                       // no row of an earlier run
 *   prediction_table_write(table, row, row_bytes, &error);
 *   prediction_table_finish(table, &error);                                // now it has its name
 *   prediction_table_close(&table);
 *
 * Until it is finished it has a hidden name in the same folder, ".predictions.csv.HASH.part". The hash covers
 * everything that the rows depend on: a run with other weights or sizes begins a table of its own. A row that
 * was cut off when a run was killed is dropped. Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_PREDICTION_TABLE_H
#define FSHARD_TRAINER_INFERENCE_PREDICTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct PredictionTableOptions {
    bool force;           /* replace an existing table, and begin anew */
    const char *identity; /* a text of everything that the rows depend on */
    const char *head;     /* the header line, with its line end; "": none */
    bool json; /* rows are JSON objects with a member "file"; else CSV whose first column is the file */
} PredictionTableOptions;

typedef struct PredictionTable PredictionTable;

/* Opens the table and makes the folders above it. FSH_ERR_EXISTS: the table exists, or another run is writing
 * it; FSH_ERR_SYSTEM, FSH_ERR_NO_SPACE, FSH_ERR_MEMORY. On failure *table is NULL. */
FshStatus prediction_table_open(PredictionTable **table, const char *path,
                                const PredictionTableOptions *options, FshError *error);
/* Returns whether an earlier run has written the row of this file. */
bool prediction_table_has(const PredictionTable *table, const char *file);
/* Appends complete rows in one write: after a kill all of them are there, or a part that the next run
 * drops. */
FshStatus prediction_table_write(PredictionTable *table, const void *rows, size_t bytes, FshError *error);
/* Flushes the table to disk and renames it to its name. */
FshStatus prediction_table_finish(PredictionTable *table, FshError *error);
/* Frees and sets to NULL. An unfinished table stays for the next run, unless it has no rows. NULL is fine. */
void prediction_table_close(PredictionTable **table);

#endif
