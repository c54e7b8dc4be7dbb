/* resize_ledger_record.h - the bytes of a ledger (resize_ledger.h): its header, its rows, its commits.
 *
 * All numbers are 8 bytes, little endian:
 *   header  magic "fshldgr1", recipe (16 bytes), length that was settled, XXH3-64 of what precedes
 *   record  XXH3-64 of what follows, length | kind << 32, and
 *           row:     bytes and time of the source, bytes of the output, its XXH3-128, both paths and NULs
 *           commit:  where its rows begin, where the next entry of the output's tar begins
 *
 * The bytes are not trusted: a length is checked before it is used. */
#ifndef FSHARD_RESIZE_LEDGER_RECORD_H
#define FSHARD_RESIZE_LEDGER_RECORD_H

#include "tools/resize/resize_ledger.h"

enum {
    LEDGER_MAGIC_BYTES = 8,
    LEDGER_HEADER_BYTES = LEDGER_MAGIC_BYTES + LEDGER_RECIPE_BYTES + 2 * 8,
    LEDGER_RECORD_HEAD_BYTES = 16,
    LEDGER_ROW_BYTES = LEDGER_RECORD_HEAD_BYTES + 3 * 8 + 16, /* before the paths */
    LEDGER_COMMIT_BYTES = LEDGER_RECORD_HEAD_BYTES + 2 * 8,
    LEDGER_RECORD_BYTES_MAX = LEDGER_ROW_BYTES + 2 * PATH_MAX,
};

typedef enum LedgerKind { LEDGER_ROW = 1, LEDGER_COMMIT = 2 } LedgerKind;

typedef struct LedgerRecord {
    LedgerKind kind;
    size_t length;
    LedgerRow row; /* of a row, as are the two that point into the bytes */
    const char *source, *target;
    uint64_t begin, tar_offset; /* of a commit */
} LedgerRecord;

/* Fills *record with the one that begins at bytes. Returns false where none does, or it is not whole. */
bool ledger_record_read(const uint8_t *bytes, size_t length, LedgerRecord *record);

/* Returns whether the head of a commit stands at bytes, of which LEDGER_COMMIT_BYTES are there: a cheap test
 * before ledger_record_read. */
bool ledger_record_may_be_commit(const uint8_t *bytes);

/* Returns the length of a record; the second returns the target of a row. Both take what ledger_record_read
 * has accepted or ledger_record_make_row made. */
size_t ledger_record_length(const uint8_t *bytes);
const char *ledger_record_target(const uint8_t *bytes);

/* Writes a row to bytes. Returns its length, 0 where the paths are too long. */
size_t ledger_record_make_row(uint8_t bytes[LEDGER_RECORD_BYTES_MAX], const char *target, const char *source,
                              const LedgerRow *row);

/* Writes a commit of the rows from begin on. */
void ledger_record_make_commit(uint8_t bytes[LEDGER_COMMIT_BYTES], uint64_t begin, uint64_t tar_offset);

/* Writes a header. */
void ledger_header_make(uint8_t bytes[LEDGER_HEADER_BYTES], const uint8_t recipe[LEDGER_RECIPE_BYTES],
                        uint64_t settled_end);

/* Returns whether the header begins as a ledger's does; the second returns whether its checksum agrees. */
bool ledger_header_is_ours(const uint8_t bytes[LEDGER_HEADER_BYTES]);
bool ledger_header_is_whole(const uint8_t bytes[LEDGER_HEADER_BYTES]);

/* Returns the recipe that a whole header names; the second returns its settled_end. */
const uint8_t *ledger_header_recipe(const uint8_t bytes[LEDGER_HEADER_BYTES]);
uint64_t ledger_header_settled_end(const uint8_t bytes[LEDGER_HEADER_BYTES]);

#endif
