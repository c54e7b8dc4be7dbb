/* memory_table.h - what a session takes of memory, before it is taken or while it is: in one place, for the
 * table of --dry-run, for the line at the start of a run, and for JSON.
 *
 * Plans and tables of a device's libraries, their code and its driver's share are not in it: what is free
 * then is told beside it. */
#ifndef FSHARD_TRAINER_SESSION_MEMORY_TABLE_H
#define FSHARD_TRAINER_SESSION_MEMORY_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "trainer/session/session.h"

/* A row for each thing, and their sum. */
void memory_table_print(const Session *session, FILE *stream);
/* Writes "1.2 GiB: weights and optimizer 195 MiB, gradients …" and returns buffer. The sum is that of the
 * table's last row. */
const char *memory_table_line(const Session *session, char *buffer, size_t buffer_bytes);
/* {"weights": bytes, "weight_copies": …, "total": of the device (the CPU: loader and decoded images too),
 * "pinned": …, "loader": …, with --cache pixels "decoded_images": …}; NULL: no memory. */
json_t *memory_table_json(const Session *session);

#endif
