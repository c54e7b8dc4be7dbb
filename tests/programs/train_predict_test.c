/* ftrain from outside: what a network makes of images, written down. */
#include "tests/programs/train_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"

#define CONV8 "--model", "conv8"

/* ---- tables ---- */

enum { CELLS_MOST = 64, CELL_BYTES = 128 };

/* A row of a CSV as RFC 4180 has it. */
typedef struct CsvRow {
    char cells[CELLS_MOST][CELL_BYTES];
    size_t count;
} CsvRow;

/* Reads the row at *text, which moves behind it. False at the end. */
static bool read_row(const char **text, CsvRow *row)
{
    const char *at = *text;
    *row = (CsvRow){0};
    if (!*at)
        return false;
    for (;;) {
        char *cell = row->cells[row->count++];
        const bool quoted = *at == '"';
        size_t length = 0;
        for (at += quoted; *at && (quoted ? *at != '"' || at[1] == '"' : *at != ',' && *at != '\n'); at++) {
            at += *at == '"';
            assert_true(length + 1 < CELL_BYTES);
            cell[length++] = *at;
        }
        at += quoted;
        if (*at != ',')
            break;
        at++;
        assert_true(row->count < CELLS_MOST);
    }
    assert_int_equal(*at, '\n');
    *text = at + 1;
    return true;
}

static void test_any_class_name_is_one_cell(void **state)
{
    static const char *const names[COLOURS] = {"=1+1", "he said \"no\"\nand left", "tench, Tinca tinca"};
    TestFolder *folder = *state;
    const char *shards = pack_named(folder, names, 8, 2), *csv = test_path(folder, "table.csv");
    const char *weights = test_path(folder, "a/last.safetensors");
    TRAINED(CONV8, "--epochs", "1", shards, test_path(folder, "a"));
    /* Three labels and nine likely classes, of which each name is a third; and two keys. */
    SAYS(0, "10 cells of the CSV begin with =, +, - or @", "--weights", weights, "--export", csv, shards);
    char *text = test_file_read(csv, NULL);
    const char *at = text;
    CsvRow row;
    assert_true(read_row(&at, &row));
    assert_int_equal(row.count, 2 + 2 * COLOURS);
    size_t rows = 0;
    for (; read_row(&at, &row); rows++) {
        bool seen[COLOURS] = {false};
        assert_int_equal(row.count, 2 + 2 * COLOURS);
        assert_string_equal(row.cells[1], names[rows / 2]);
        for (size_t i = 0; i < COLOURS; i++)
            for (size_t name = 0; name < COLOURS; name++)
                seen[name] = seen[name] || strcmp(row.cells[2 + 2 * i], names[name]) == 0;
        assert_true(seen[0] && seen[1] && seen[2]);
    }
    assert_int_equal(rows, 2 * COLOURS);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_any_class_name_is_one_cell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
