/* A file of keys and labels for training, and looking up each of its keys in it. */
#include "tests/fuzz/fuzz.h"
#include "trainer/data/label_file.h"

/* Checks that a row that was found is one of the file's. */
static void row_is_of(const LabelFile *file, const LabelRow *row)
{
    fuzz_expect(!row || (row >= file->rows && row < file->rows + file->row_count), "a row of the file");
}

static void look_at(const LabelFile *file, const LabelNames *names)
{
    fuzz_expect(!label_file_has_folder(file, "a/b") || file->row_count > 0, "a folder is that of a row");
    for (uint64_t i = 0; i < file->row_count; i++) {
        const LabelRow *row = &file->rows[i];
        const char *key = (const char *)file->text.bytes + row->key_at;
        fuzz_expect(row->key_bytes > 0 && row->key_at + row->key_bytes <= file->text.length,
                    "a key lies in the text");
        fuzz_touch(key, row->key_bytes);
        fuzz_expect(label_file_find(file, NULL, "train", key, row->key_bytes) == row,
                    "a whole key finds its row");
        row_is_of(file, label_file_find(file, "train", "val", key, row->key_bytes));
        fuzz_expect(file->kind != LABELS_ONE || row->count == 1, "a single label is one");
        for (uint32_t k = 0; k < row->count && file->kind != LABELS_NUMBERS; k++)
            fuzz_expect(file->members[row->first + k] < names->count, "a member is a class");
        if (file->kind == LABELS_NUMBERS) {
            fuzz_expect(row->count == names->count, "a number for each column");
            fuzz_touch(file->numbers + row->first, row->count * sizeof *file->numbers);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    FuzzFile file = fuzz_file_open(bytes, length);
    for (int kind = -1; kind < LABEL_KIND_COUNT; kind++) {
        const LabelFileOptions options = {.kind = kind};
        LabelFile labels;
        LabelNames names = {0};
        FshError error = {0};
        if (label_file_read(&labels, file.path, &options, &error) != FSH_OK)
            continue;
        fuzz_expect_ok(label_files_settle(&labels, 1, NULL, &names, &error), &error, "label_files_settle");
        look_at(&labels, &names);
        label_names_free(&names);
        label_file_free(&labels);
    }
    fuzz_file_close(&file);
    return 0;
}
