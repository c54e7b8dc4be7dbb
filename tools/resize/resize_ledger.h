/* resize_ledger.h - which outputs are there, and from what they were made: one row each, in a file that grows
 * at its end.
 *
 * A row is added after its output has its name, so a row without an output is a file that somebody removed,
 * and an output without a row is made again. Rows are kept back for about a second and then written together,
 * with a commit after them, and synced: a kill costs what was done in that second.
 *
 * The file, little endian: a header (magic, recipe, length that was settled, checksum), then records, each
 * with its checksum (XXH3-64 of what follows it), length and kind. A row is LedgerRow, then the source's path
 * and the output's, each with its NUL; the last row of an output counts. A commit says where its rows begin;
 * rows without one do not count. The header's recipe is the hash of that by which all outputs were made: a
 * ledger of another recipe is as good as none. What a power cut leaves after the last commit is dropped; what
 * cannot be read before it is damage, and told.
 *
 * Memory: 24 to 48 bytes for each output. ledger_each and ledger_settle take the file's length besides.
 * Threads: ledger_find from any thread, at any time; the others from one thread at a time. */
#ifndef FSHARD_RESIZE_LEDGER_H
#define FSHARD_RESIZE_LEDGER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct LedgerRow {
    uint64_t source_bytes;
    int64_t source_modified_ns; /* as file_time_ns gives it */
    uint64_t bytes;             /* of the output */
    uint8_t hash[16];           /* XXH3-128 of the output, canonical */
} LedgerRow;

typedef struct Ledger Ledger;

/* Writes to hash the XXH3-128 of the bytes, canonical, as LedgerRow has it. */
void ledger_hash(const void *bytes, size_t length, uint8_t hash[16]);

enum { LEDGER_RECIPE_BYTES = 16 };

#define LEDGER_ENDING ".ledger" /* of its name */

/* Opens the file of this name, made where it is not there unless read_only. Rows of another recipe are
 * dropped, or with read_only not seen. That no other process writes it meanwhile is the caller's care
 * (resize_state.h). FSH_ERR_CORRUPT: the file is no ledger, or damaged; with the way out. */
FshStatus ledger_open(Ledger **ledger, const char *path, const uint8_t recipe[LEDGER_RECIPE_BYTES],
                      bool read_only, FshError *error);

/* Returns whether the file of this name is not there, or no run, by whichever recipe, has noted an output in
 * it; false where that cannot be found out. */
bool ledger_is_blank(const char *path);

/* Finds a committed row (rows of this run need not be found) and the path of its source. *found_ret: whether
 * there is one; *row is as it was where there is none. FSH_ERR_CORRUPT: what was read at ledger_open has
 * changed since. */
FshStatus ledger_find(Ledger *ledger, const char *target, bool *found_ret, LedgerRow *row,
                      char source[PATH_MAX], FshError *error);

/* Adds a row, which waits for the next commit. FSH_ERR_MEMORY. */
FshStatus ledger_add(Ledger *ledger, const char *target, const char *source, const LedgerRow *row,
                     FshError *error);
/* Returns whether a second's worth of rows waits for ledger_commit. */
bool ledger_is_due(const Ledger *ledger);
/* Writes the rows that wait, and syncs them. tar_offset: where the next entry of the output's tar begins,
 * when all before it is on disk; 0: no tar. */
FshStatus ledger_commit(Ledger *ledger, uint64_t tar_offset, FshError *error);
uint64_t ledger_tar_offset(const Ledger *ledger);

uint64_t ledger_count(const Ledger *ledger); /* rows committed */

/* Calls visit for each committed row, in byte order of the outputs' paths; stops when it fails. */
typedef FshStatus (*LedgerVisit)(const char *target, const char *source, const LedgerRow *row, void *context,
                                 FshError *error);
FshStatus ledger_each(Ledger *ledger, LedgerVisit visit, void *context, FshError *error);

/* Writes the same rows, after the last commit, into a file that depends on nothing but them, so that two
 * destinations with the same outputs are the same to the byte, state included, whatever interrupted the runs.
 */
FshStatus ledger_settle(Ledger *ledger, FshError *error);

/* Frees the ledger and sets it to NULL; NULL is fine. Rows not committed are lost. */
void ledger_close(Ledger **ledger);

#endif
