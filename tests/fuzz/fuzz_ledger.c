/* A row of fresize's list of what is done. The row is put into an LMDB by liblmdb: the file around it is not what is
 * fuzzed here (docs/fuzzing.md says why). */
#include <lmdb.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/resize/resize_ledger.h"

static const uint8_t recipe[LEDGER_RECIPE_BYTES] = {1, 2, 3};

/* The first byte chooses the key: an output's, or that of the tar's end. */
static bool put(const char *path, const uint8_t *bytes, size_t length)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi;
    char name[] = "a/b.jpg";
    MDB_val key = {bytes[0] & 1 ? 1 : sizeof name - 1, bytes[0] & 1 ? (void *)"\0" : name};
    MDB_val value = {length - 1, (void *)(bytes + 1)};
    MDB_val recipe_key = {2, (void *)"\0r"}, recipe_value = {sizeof recipe, (void *)recipe};
    int code = mdb_env_create(&env);
    if (!code)
        code = mdb_env_open(env, path, MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC, 0600);
    if (!code)
        code = mdb_txn_begin(env, NULL, 0, &txn);
    if (!code)
        code = mdb_dbi_open(txn, NULL, 0, &dbi);
    if (!code)
        code = mdb_put(txn, dbi, &key, &value, 0);
    if (!code)
        code = mdb_put(txn, dbi, &recipe_key, &recipe_value, 0);
    if (!code)
        code = mdb_txn_commit(txn);
    else if (txn)
        mdb_txn_abort(txn);
    mdb_env_close(env);
    return !code;
}

static FshStatus visit(const char *target, const char *source, const LedgerRow *row, void *context,
                       FshError *error)
{
    (void)context;
    (void)error;
    fuzz_touch(target, strlen(target));
    fuzz_touch(source, strlen(source));
    fuzz_touch(row, sizeof *row);
    return FSH_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    Ledger *ledger = NULL;
    LedgerRow row;
    FshError error = {0};
    bool found = false;
    uint64_t offset = 0;
    if (length < 1)
        return 0;
    FuzzFolder folder = fuzz_folder_open("ledger.lmdb", NULL, 0);
    if (put(folder.file, bytes, length)) {
        fuzz_expect_ok(ledger_open(&ledger, folder.file, recipe, true, &error), &error, "ledger_open");
        fuzz_expect_ok(ledger_find(ledger, "a/b.jpg", &found, &row, &error), &error, "ledger_find");
        fuzz_expect_ok(ledger_tar_offset(ledger, &offset, &error), &error, "ledger_tar_offset");
        fuzz_expect_ok(ledger_each(ledger, visit, NULL, &error), &error, "ledger_each");
        (void)ledger_count(ledger);
    }
    ledger_close(&ledger);
    fuzz_folder_close(&folder);
    return 0;
}
