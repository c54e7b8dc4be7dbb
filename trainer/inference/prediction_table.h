/* prediction_table.h - a table of predictions that grows row by row, and goes on where a run was stopped.
 *
 *   prediction_table_open(&table, "out/predictions.csv", &options, &error);
 *   if (!prediction_table_has(table, "cat/1.jpg")) …                       // no row of an earlier run
 *   prediction_table_write(table, row, row_bytes, &error);
 *   prediction_table_finish(table, &error);                                // now it has its name
 *   prediction_table_close(&table);
 *
 * Until it is finished it lies beside that place under a hidden name, ".predictions.csv.HASH.part", in
 * which the hash is that of what the rows depend on: a run with other weights or sizes begins a table of
 * its own. What a kill has cut off of the last row is dropped. Threads: one. */
#ifndef FSHARD_TRAINER_INFERENCE_PREDICTION_TABLE_H
#define FSHARD_TRAINER_INFERENCE_PREDICTION_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct PredictionTableOptions {
    bool force;           /* replaces a table of this name, and begins anew */
    const char *identity; /* text of all that the rows depend on */
    const char *head;     /* the line above the rows, with its end; "": none */
    bool json; /* rows are JSON objects with a member "file"; else CSV whose first column that is */
} PredictionTableOptions;

typedef struct PredictionTable PredictionTable;

/* Makes the folders above path. FSH_ERR_EXISTS: there is a table already, or another run is writing this
 * one; FSH_ERR_SYSTEM, FSH_ERR_NO_SPACE, FSH_ERR_MEMORY. On failure *table is NULL. */
FshStatus prediction_table_open(PredictionTable **table, const char *path,
                                const PredictionTableOptions *options, FshError *error);
/* Returns whether an earlier run has written the row of this file. */
bool prediction_table_has(const PredictionTable *table, const char *file);
/* Appends whole rows: one write, so that a kill leaves all of them or a part that the next run drops. */
FshStatus prediction_table_write(PredictionTable *table, const void *rows, size_t bytes, FshError *error);
/* Waits for the disk, and gives the table its name. */
FshStatus prediction_table_finish(PredictionTable *table, FshError *error);
/* Frees and sets to NULL; what is not finished stays for the next run, unless it has no rows. NULL is fine.
 */
void prediction_table_close(PredictionTable **table);

#endif
