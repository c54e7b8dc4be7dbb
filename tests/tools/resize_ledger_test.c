/* What the ledger remembers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/support/support.h"
#include "tools/resize/resize_ledger.h"

static const uint8_t recipe[LEDGER_RECIPE_BYTES] = {1, 2, 3};

static Ledger *open_ledger(TestFolder *folder, bool read_only)
{
    Ledger *ledger = NULL;
    FshError error = {0};
    assert_ok(ledger_open(&ledger, test_path(folder, "outputs.ledger"), recipe, read_only, &error), &error);
    return ledger;
}

static LedgerRow row_of(uint64_t number)
{
    LedgerRow row = {.source_bytes = number, .source_modified_ns = -(int64_t)number, .bytes = number + 1};
    memset(row.hash, (int)number, sizeof row.hash);
    return row;
}

static bool has_row(Ledger *ledger, const char *target, uint64_t number)
{
    LedgerRow row, expected = row_of(number);
    bool found = false;
    char source[PATH_MAX];
    FshError error = {0};
    assert_ok(ledger_find(ledger, target, &found, &row, source, &error), &error);
    return found && row.source_bytes == expected.source_bytes &&
           row.source_modified_ns == expected.source_modified_ns && row.bytes == expected.bytes &&
           memcmp(row.hash, expected.hash, sizeof row.hash) == 0;
}

TEST_IN_FOLDER(test_committed_rows_are_found_by_a_later_run, folder)
{
    FshError error = {0};
    Ledger *ledger = open_ledger(folder, false);
    LedgerRow first = row_of(1), second = row_of(2), changed = row_of(3);
    assert_ok(ledger_add(ledger, "a/b.jpg", "a/b.png", &first, &error), &error);
    assert_ok(ledger_add(ledger, "c.jpg", "c.jpg", &second, &error), &error);
    assert_false(has_row(ledger, "a/b.jpg", 1)); /* not before the commit */
    assert_ok(ledger_commit(ledger, 0, &error), &error);
    assert_true(has_row(ledger, "a/b.jpg", 1));
    assert_ok(ledger_add(ledger, "c.jpg", "c.jpg", &changed, &error), &error);
    assert_ok(ledger_commit(ledger, 512, &error), &error);
    assert_ok(ledger_add(ledger, "lost.jpg", "lost.jpg", &first, &error), &error);
    ledger_close(&ledger);

    ledger = open_ledger(folder, true);
    assert_true(has_row(ledger, "a/b.jpg", 1));
    assert_true(has_row(ledger, "c.jpg", 3));
    assert_false(has_row(ledger, "lost.jpg", 1));
    assert_int_equal(ledger_count(ledger), 2);
    assert_int_equal(ledger_tar_offset(ledger), 512);
    ledger_close(&ledger);
}

TEST_IN_FOLDER(test_long_names_stay_apart, folder)
{
    enum { LENGTH = 2000 };
    char one[LENGTH + 1], other[LENGTH + 1];
    FshError error = {0};
    Ledger *ledger = open_ledger(folder, false);
    LedgerRow first = row_of(1), second = row_of(2);
    memset(one, 'x', LENGTH);
    one[LENGTH] = '\0';
    memcpy(other, one, sizeof one);
    other[LENGTH - 1] = 'y';
    assert_ok(ledger_add(ledger, one, "a", &first, &error), &error);
    assert_ok(ledger_add(ledger, other, "b", &second, &error), &error);
    assert_ok(ledger_commit(ledger, 0, &error), &error);
    assert_true(has_row(ledger, one, 1));
    assert_true(has_row(ledger, other, 2));
    ledger_close(&ledger);
}

typedef struct Seen {
    unsigned count;
    char text[256];
} Seen;

static FshStatus see(const char *target, const char *source, const LedgerRow *row, void *context,
                     FshError *error)
{
    Seen *seen = context;
    size_t length = strlen(seen->text);
    (void)error;
    (void)snprintf(seen->text + length, sizeof seen->text - length, "%s<%s=%d ", target, source,
                   (int)row->source_bytes);
    return ++seen->count == 3 ? FSH_ERR_MISMATCH : FSH_OK;
}

TEST_IN_FOLDER(test_rows_are_visited_in_order_until_a_visit_fails, folder)
{
    FshError error = {0};
    Ledger *ledger = open_ledger(folder, false);
    static const char *const names[] = {"d", "b", "a", "c"};
    for (unsigned i = 0; i < 4; i++) {
        LedgerRow row = row_of(i);
        assert_ok(ledger_add(ledger, names[i], "s", &row, &error), &error);
    }
    assert_ok(ledger_commit(ledger, 4096, &error), &error); /* the offset is no row */
    Seen seen = {0};
    assert_int_equal(ledger_each(ledger, see, &seen, &error), FSH_ERR_MISMATCH);
    assert_string_equal(seen.text, "a<s=2 b<s=1 c<s=3 ");
    assert_int_equal(ledger_count(ledger), 4);
    ledger_close(&ledger);
}

TEST_IN_FOLDER(test_a_file_that_is_no_ledger_is_refused_with_the_way_out, folder)
{
    Ledger *ledger = NULL;
    FshError error = {0};
    char *text = malloc(20000);
    memset(text, 'x', 20000);
    text[19999] = '\0';
    test_file_write_text(test_path(folder, "outputs.ledger"), text);
    free(text);
    assert_int_equal(ledger_open(&ledger, test_path(folder, "outputs.ledger"), recipe, false, &error),
                     FSH_ERR_CORRUPT);
    assert_non_null(strstr(error.message, "--force"));
    assert_null(ledger);
}

TEST_IN_FOLDER(test_a_ledger_that_was_never_written_is_empty, folder)
{
    test_file_write_text(test_path(folder, "outputs.ledger"), "");
    Ledger *ledger = open_ledger(folder, true);
    assert_false(has_row(ledger, "a", 0));
    assert_int_equal(ledger_count(ledger), 0);
    ledger_close(&ledger);
}

TEST_IN_FOLDER(test_rows_of_another_recipe_are_none, folder)
{
    static const uint8_t other[LEDGER_RECIPE_BYTES] = {1, 2, 4};
    FshError error = {0};
    Ledger *ledger = open_ledger(folder, false);
    LedgerRow row = row_of(1);
    assert_ok(ledger_add(ledger, "a", "s", &row, &error), &error);
    assert_ok(ledger_commit(ledger, 512, &error), &error);
    ledger_close(&ledger);
    assert_ok(ledger_open(&ledger, test_path(folder, "outputs.ledger"), other, true, &error), &error);
    assert_false(has_row(ledger, "a", 1));
    assert_int_equal(ledger_count(ledger), 0);
    ledger_close(&ledger);
    ledger = open_ledger(folder, true); /* a look has changed nothing */
    assert_true(has_row(ledger, "a", 1));
    ledger_close(&ledger);
    assert_ok(ledger_open(&ledger, test_path(folder, "outputs.ledger"), other, false, &error), &error);
    ledger_close(&ledger);
    ledger = open_ledger(folder, false);
    assert_false(has_row(ledger, "a", 1));
    assert_int_equal(ledger_tar_offset(ledger), 0);
    ledger_close(&ledger);
}

/* Writes three commits of ten rows. */
static void fill(TestFolder *folder, bool settled)
{
    Ledger *ledger = open_ledger(folder, false);
    FshError error = {0};
    for (unsigned i = 0; i < 30; i++) {
        char target[16];
        LedgerRow row = row_of(i);
        (void)snprintf(target, sizeof target, "%02u", 29 - i);
        assert_ok(ledger_add(ledger, target, "s", &row, &error), &error);
        if (i % 10 == 9)
            assert_ok(ledger_commit(ledger, 512 * (i + 1), &error), &error);
    }
    if (settled)
        assert_ok(ledger_settle(ledger, &error), &error);
    ledger_close(&ledger);
}

/* A run that was killed, or lost power, while it wrote: whole commits count, and the next run goes on after
 * them. */
TEST_IN_FOLDER(test_what_was_cut_short_is_done_again, folder)
{
    const char *path = test_path(folder, "outputs.ledger");
    fill(folder, false);
    const int64_t whole = (int64_t)test_file_size(path);
    uint64_t before = 30;
    for (int64_t cut = 0; cut < whole; cut += 7) {
        (void)unlink(path);
        fill(folder, false);
        test_file_truncate(path, whole - cut);
        Ledger *ledger = open_ledger(folder, cut % 2 == 0);
        const uint64_t count = ledger_count(ledger);
        assert_true(count <= before && count % 10 == 0 && (cut == 0 || count < 30));
        assert_int_equal(ledger_tar_offset(ledger), 512 * count);
        for (unsigned i = 0; i < 30; i++) {
            char target[16];
            (void)snprintf(target, sizeof target, "%02u", 29 - i);
            assert_int_equal(has_row(ledger, target, i), i < count);
        }
        before = count;
        ledger_close(&ledger);
        ledger = open_ledger(folder, false);
        LedgerRow row = row_of(77);
        FshError error = {0};
        assert_ok(ledger_add(ledger, "next", "s", &row, &error), &error);
        assert_ok(ledger_commit(ledger, 0, &error), &error);
        ledger_close(&ledger);
        ledger = open_ledger(folder, true);
        assert_true(has_row(ledger, "next", 77));
        assert_int_equal(ledger_count(ledger), count + 1);
        ledger_close(&ledger);
    }
    assert_int_equal(before, 0);
}

/* liblmdb, which kept the rows before, ended the program by a signal for one byte in twenty. */
TEST_IN_FOLDER(test_every_damaged_byte_is_told_or_costs_what_is_behind_it, folder)
{
    for (int settled = 0; settled <= 1; settled++) {
        const char *path = test_path(folder, "outputs.ledger");
        (void)unlink(path);
        fill(folder, settled);
        const int64_t length = (int64_t)test_file_size(path);
        for (int64_t at = 0; at < length; at++) {
            FshError error = {0};
            Ledger *ledger = NULL;
            test_file_flip_byte(path, at);
            const FshStatus status = ledger_open(&ledger, path, recipe, true, &error);
            if (status) {
                assert_int_equal(status, FSH_ERR_CORRUPT);
                assert_non_null(strstr(error.message, "--force"));
            } else { /* a commit that a power cut may have cut short, too */
                assert_false(settled);
                assert_int_equal(ledger_count(ledger), 20);
            }
            ledger_close(&ledger);
            test_file_flip_byte(path, at);
        }
        test_file_truncate(path, -1);
        FshError error = {0};
        Ledger *ledger = NULL;
        assert_int_equal(ledger_open(&ledger, path, recipe, true, &error),
                         settled ? FSH_ERR_CORRUPT : FSH_OK);
        ledger_close(&ledger);
    }
}

TEST_IN_FOLDER(test_settled_rows_do_not_tell_how_they_came, folder)
{
    Buffer one = {0}, other = {0};
    FshError error = {0};
    const char *path = test_path(folder, "outputs.ledger");
    fill(folder, true);
    assert_ok(file_read(path, &one, &error), &error);
    (void)unlink(path);
    Ledger *ledger = open_ledger(folder, false);
    for (unsigned i = 0; i < 40; i++) { /* the other way round, some of them twice, in one commit */
        char target[16];
        LedgerRow row = row_of(29 - i % 30);
        (void)snprintf(target, sizeof target, "%02u", i % 30);
        assert_ok(ledger_add(ledger, target, "s", &row, &error), &error);
    }
    assert_ok(ledger_commit(ledger, 512 * 30, &error), &error);
    assert_ok(ledger_settle(ledger, &error), &error);
    assert_int_equal(ledger_count(ledger), 30);
    assert_true(has_row(ledger, "05", 24));
    ledger_close(&ledger);
    assert_ok(file_read(path, &other, &error), &error);
    assert_int_equal(one.length, other.length);
    assert_memory_equal(one.bytes, other.bytes, one.length);
    buffer_free(&one);
    buffer_free(&other);
}
