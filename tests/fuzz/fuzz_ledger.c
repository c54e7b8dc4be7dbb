/* The list of fresize's outputs: the whole file, with checksums mended, or hardly more than the header would
 * be looked at. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/fuzz/fuzz.h"
#include "tools/resize/resize_ledger.h"

static const uint8_t recipe[LEDGER_RECIPE_BYTES] = {1, 2, 3};

static FshStatus visit(const char *target, const char *source, const LedgerRow *row, void *context,
                       FshError *error)
{
    Ledger *ledger = context;
    LedgerRow found_row;
    char found_source[PATH_MAX];
    bool found = false;
    fuzz_touch(target, strlen(target));
    fuzz_touch(source, strlen(source));
    fuzz_touch(row, sizeof *row);
    fuzz_expect_ok(ledger_find(ledger, target, &found, &found_row, found_source, error), error,
                   "ledger_find");
    fuzz_expect(found, "a row that is visited is found");
    return FSH_OK;
}

static void seal(uint8_t *checksum, const uint8_t *bytes, size_t length)
{
    const uint64_t hash = XXH3_64bits(bytes, length);
    for (int i = 0; i < 8; i++)
        checksum[i] = (uint8_t)(hash >> (8 * i));
}

/* Renews the header's checksum and those of the records that `choice` picks. As resize_ledger.h says, the
 * header's checksum stands at its end; a record begins with its checksum, then its length. */
void fuzz_mend(uint8_t *bytes, size_t length, uint32_t choice)
{
    enum { HEADER_BYTES = 8 + LEDGER_RECIPE_BYTES + 16, RECORD_HEAD_BYTES = 16 };
    if (length < HEADER_BYTES)
        return;
    seal(bytes + HEADER_BYTES - 8, bytes, HEADER_BYTES - 8);
    for (size_t at = HEADER_BYTES; length - at >= RECORD_HEAD_BYTES && choice; choice >>= 1) {
        const size_t record = bytes[at + 8] | (size_t)bytes[at + 9] << 8 | (size_t)bytes[at + 10] << 16;
        if (record < RECORD_HEAD_BYTES || record > length - at)
            return;
        if (choice & 1)
            seal(bytes + at, bytes + at + 8, record - 8);
        at += record;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Ledger *ledger = NULL;
    FshError error = {0};
    FuzzFolder folder = fuzz_folder_open("outputs.ledger", bytes, length);
    (void)ledger_is_blank(folder.file);
    for (int writes = 0; writes <= 1; writes++) {
        if (ledger_open(&ledger, folder.file, recipe, !writes, &error) == FSH_OK) {
            fuzz_expect_ok(ledger_each(ledger, visit, ledger, &error), &error, "ledger_each");
            (void)ledger_count(ledger);
            (void)ledger_tar_offset(ledger);
        }
        ledger_close(&ledger);
        error = (FshError){0};
    }
    fuzz_folder_close(&folder);
    return 0;
}
