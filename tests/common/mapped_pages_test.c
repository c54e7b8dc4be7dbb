/* What is given back is pages of mapped files alone, and their bytes are there again when they are read. */
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/mapped_pages.h"
#include "tests/support/support.h"

enum { BYTES = 9 << 20, WINDOW_BYTES = 2 << 20 };

static bool is_filled(const uint8_t *bytes, uint8_t value)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, BYTES - 1) == 0;
}

/* Notes all of it, a window at a time, so that each note but the first gives back. */
static void note_all(const uint8_t *bytes)
{
    for (size_t at = 0; at < BYTES; at += WINDOW_BYTES / 2)
        mapped_pages_note(bytes + at, WINDOW_BYTES / 2);
}

TEST_IN_FOLDER(test_memory_that_is_of_no_file_stays_as_it_is, folder)
{
    FshError error = {0};
    FileMapping mapping;
    uint8_t *memory = malloc(BYTES);
    assert_non_null(memory);
    memset(memory, 'm', BYTES);
    test_file_write(test_path(folder, "file"), memory, BYTES);
    assert_ok(file_map(test_path(folder, "file"), &mapping, &error), &error);
    mapped_pages_bound(WINDOW_BYTES);
    for (int round = 0; round < 2; round++) {
        note_all(mapping.bytes);
        note_all(memory);
        assert_true(is_filled(mapping.bytes, 'm'));
        assert_true(is_filled(memory, 'm'));
    }
    /* What was noted of a file that is unmapped is no longer given back: other memory may lie there. */
    note_all(mapping.bytes);
    file_unmap(&mapping);
    uint8_t *later = malloc(BYTES);
    assert_non_null(later);
    memset(later, 'l', BYTES);
    note_all(memory);
    assert_true(is_filled(later, 'l'));
    mapped_pages_bound(0);
    free(later);
    free(memory);
}
