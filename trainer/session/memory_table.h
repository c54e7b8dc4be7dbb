/* memory_table.h - the memory that a session takes, computed before or after it is taken: for the table of
 * --dry-run, the line at the start of a run, and JSON.
 *
 * Not included: plans and tables of the device's libraries, their code, the driver's share. The table shows
 * the device's free memory beside the sum. */
#ifndef FSHARD_TRAINER_SESSION_MEMORY_TABLE_H
#define FSHARD_TRAINER_SESSION_MEMORY_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "trainer/session/session.h"

/* Prints a row for each kind of use, and their sum. */
void memory_table_print(const Session *session, FILE *stream);
/* Writes "1.2 GiB: weights and optimizer 195 MiB, gradients …" to buffer and returns it. The sum is that of
 * the table's last row. */
const char *memory_table_line(const Session *session, char *buffer, size_t buffer_bytes);
/* Returns {"weights": bytes, "weight_copies": …, "total": on the device (the CPU: loader and decoded images
 * too), "pinned": …, "loader": …, with --cache pixels "decoded_images": …}; NULL: no memory. */
json_t *memory_table_json(const Session *session);

#endif
