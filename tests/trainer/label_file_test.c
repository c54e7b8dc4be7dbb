/* Files of labels: the forms that are read, how records find their lines, and what is refused. */
#include "trainer/data/label_file.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

static FshStatus read_as(TestFolder *folder, const char *text, const LabelFileOptions *options,
                         LabelFile *file, FshError *error)
{
    const char *path = test_path(folder, "labels.csv");
    test_file_write_text(path, text);
    return label_file_read(file, path, options, error);
}

/* Writes what a settled file says, "kind: key=label|label …". Returns text. */
static const char *tell(const LabelFile *file, const LabelNames *names, char *text, size_t text_bytes)
{
    size_t length = (size_t)snprintf(text, text_bytes, "%s:", label_kind_names[file->kind]);
    for (uint64_t i = 0; i < file->row_count; i++) {
        const LabelRow *row = &file->rows[i];
        length += (size_t)snprintf(text + length, text_bytes - length, " %.*s=", (int)row->key_bytes,
                                   (const char *)file->text.bytes + row->key_at);
        for (uint32_t k = 0; k < row->count; k++) {
            const char *divider = k ? "|" : "";
            length += file->kind == LABELS_NUMBERS
                          ? (size_t)snprintf(text + length, text_bytes - length, "%s%g", divider,
                                             (double)file->numbers[row->first + k])
                          : (size_t)snprintf(text + length, text_bytes - length, "%s%s", divider,
                                             names->names[file->members[row->first + k]]);
        }
    }
    length += (size_t)snprintf(text + length, text_bytes - length, "; of");
    for (size_t i = 0; i < names->count; i++)
        length += (size_t)snprintf(text + length, text_bytes - length, " %s", names->names[i]);
    return text;
}

TEST_IN_FOLDER(test_forms_that_people_have_are_read, folder)
{
    static const struct {
        const char *text;
        int kind;
        const char *columns, *expected;
    } cases[] = {
        {"a,cat\nb,dog\n", -1, NULL, "single-label: a=cat b=dog; of cat dog"},
        {"a cat\nb dog\n", -1, NULL, "single-label: a=cat b=dog; of cat dog"},
        {"a\tgolden retriever\nb\tdog", -1, NULL,
         "single-label: a=golden retriever b=dog; of dog golden retriever"},
        {"\xEF\xBB\xBF"
         "file_name,label\r\n# a note\r\n\r\n./a.png, 10\r\nb.png,9\r\n",
         -1, NULL, "single-label: a.png=10 b.png=9; of 9 10"},
        {"Image Index,label,source\na,cat,web\nb,dog,x\n", -1, "label",
         "single-label: a=cat b=dog; of cat dog"},
        {"a,\"c,a\"\"t\"\nb,dog\n", -1, NULL, "single-label: a=c,a\"t b=dog; of c,a\"t dog"},
        {"a,cat,dog\nb,dog\n", -1, NULL, "multi-label: a=cat|dog b=dog; of cat dog"},
        {"a,cat|dog|cat\nb,\n", -1, NULL, "multi-label: a=cat|dog b=; of cat dog"},
        {"a,cat;dog\nb,dog\n", 0, NULL, "single-label: a=cat;dog b=dog; of cat;dog dog"},
        {"id,tags\na,haze primary\nb,primary\n", 1, NULL,
         "multi-label: a=haze|primary b=primary; of haze primary"},
        {"key,dog,cat\na,1,0\nb,1,1\nc,0,\n", -1, NULL, "multi-label: a=dog b=dog|cat c=; of dog cat"},
        {"key,dog,cat\na,1,-1\nb,-1,-1\n", -1, NULL, "multi-label: a=dog b=; of dog cat"},
        {"key,age,height\na,3,1e2\nb,-4.5,0\n", 2, NULL, "regression: a=3|100 b=-4.5|0; of age height"},
        {"key,age,height\na,3,1e2\nb,-4.5,0\n", 2, "height", "regression: a=100 b=0; of height"},
        {"a,3\nb,4\n", 2, NULL, "regression: a=3 b=4; of target"},
        {"{\"file_name\": \"a\\u0041\", \"label\": 3}\n{\"label\": 20, \"key\": \"b\"}\n", -1, NULL,
         "single-label: aA=3 b=20; of 3 20"},
        {"{\"key\":\"a\",\"labels\":[\"x\", \"y\\\"\"]}\n{\"key\":\"b\",\"labels\":[]}\n", -1, NULL,
         "multi-label: a=x|y\" b=; of x y\""},
        {"{\"key\":\"a\",\"targets\":[1, 2.5]}\n{\"key\":\"b\",\"targets\":[-3,4]}\n", -1, NULL,
         "regression: a=1|2.5 b=-3|4; of targets0 targets1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const LabelFileOptions options = {.kind = cases[i].kind, .columns = cases[i].columns};
        FshError error = {0};
        LabelFile file;
        LabelNames names = {0};
        char text[400];
        assert_ok(read_as(folder, cases[i].text, &options, &file, &error), &error);
        assert_ok(label_files_settle(&file, 1, NULL, &names, &error), &error);
        assert_string_equal(tell(&file, &names, text, sizeof text), cases[i].expected);
        label_names_free(&names);
        label_file_free(&file);
    }
}

TEST_IN_FOLDER(test_lines_that_cannot_be_read_are_named, folder)
{
    static const struct {
        const char *text;
        int kind;
        const char *columns, *message;
    } cases[] = {
        {"", -1, NULL, "labels.csv: has no labels"},
        {"a,cat\nb\n", -1, NULL, "labels.csv:2: has a key alone, and no label"},
        {"a,cat\nb,\n", -1, NULL, "labels.csv:2: has no label"},
        {"a,cat\n,dog\n", -1, NULL, "labels.csv:2: has no key"},
        {"a,cat\n\na,cat\n", -1, NULL, "labels.csv:3: the key 'a' came in line 1 before"},
        {"a,cat\nb,\"dog\n", -1, NULL, "labels.csv:2: a quote is not closed"},
        {"a,cat\nb,\"dog\"x\n", -1, NULL, "labels.csv:2: text after a closing quote"},
        {"a,cat\nb,\xFF\n", -1, NULL, "labels.csv:2: a label that is not UTF-8"},
        {"a,cat\nb,cat,dog\n", 0, NULL, "labels.csv:2: has 2 labels; with --problem-type single-label"},
        {"key,cat,dog\na,1,0\nb,1\n", -1, NULL, "labels.csv:3: has 2 columns, and the header 3"},
        {"key,cat,dog\na,1,2\n", -1, NULL, "labels.csv:2: column 'dog' has '2', not 0 or 1; --label-columns"},
        {"key,cat,dog\na,1,0\nb,-1,1\n", -1, NULL, "labels.csv:3: flags are 0 and 1, or -1 and 1"},
        {"key,cat,cat\na,1,0\n", -1, NULL, "labels.csv:1: two columns are called 'cat'"},
        {"key,cat,dog\na,1,0\n", 0, NULL, "labels.csv: its header has 2 columns beside that of the keys"},
        {"key,cat\na,x\n", -1, "dog", "labels.csv: its header has no column 'dog'"},
        {"a,x\n", -1, "dog", "--label-columns: "},
        {"a,1\nb,x\n", 2, NULL, "labels.csv:2: target is 'x', not a number"},
        {"a,1,2\nb,1\n", 2, NULL, "labels.csv:2: has 2 columns, and the lines before 3"},
        {"a,inf\n", 2, NULL, "labels.csv:1: target is 'inf', not a number"},
        {"{\"key\":\"a\",\"label\":1}\nb,2\n", -1, NULL, "labels.csv:2: is no JSON object"},
        {"{\"key\":\"a\"}\n", -1, NULL, "labels.csv:1: has no label: a member called label"},
        {"{\"label\":\"a\"}\n", -1, NULL, "labels.csv:1: has no key: a member called key"},
        {"{\"key\":\"a\",\"label\":null}\n", -1, NULL, "labels.csv:1: 'label' has 'null', which is no label"},
        {"{\"key\":\"a\",\"target\":[1,2]}\n{\"key\":\"b\",\"target\":[1]}\n", -1, NULL,
         "labels.csv:2: has 1 numbers, and the lines before 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const LabelFileOptions options = {.kind = cases[i].kind, .columns = cases[i].columns};
        FshError error = {0};
        LabelFile file;
        assert_true(read_as(folder, cases[i].text, &options, &file, &error) != FSH_OK);
        assert_contains(error.message, cases[i].message);
        assert_null(file.rows);
    }
}

static void expect_line(const LabelFile *file, const char *split, const char *key, uint64_t line)
{
    const LabelRow *row = label_file_find(file, NULL, split, key, strlen(key));
    if ((row ? row->line : 0) != line)
        fail_msg("%s/%s: line %d, not %d", split, key, row ? (int)row->line : 0, (int)line);
}

TEST_IN_FOLDER(test_records_find_their_lines, folder)
{
    FshError error = {0};
    LabelFile file;
    assert_ok(
        read_as(folder,
                "cat/1.png,a\ntrain/cat/2.jpg,b\nval/cat/2.jpg,c\n3.jpeg,d\ncat/4,e\nx/5.jpg,f\nx/5.png,g\n"
                "v1.5,h\n",
                &(LabelFileOptions){.kind = -1}, &file, &error),
        &error);
    expect_line(&file, "train", "cat/1", 1);
    expect_line(&file, "val", "cat/1.png", 1);
    expect_line(&file, "train", "cat/2", 2);
    expect_line(&file, "val", "cat/2", 3);
    expect_line(&file, "test", "cat/2", 0);
    expect_line(&file, "train", "dog/3", 4);
    expect_line(&file, "train", "cat/4.webp", 5);
    expect_line(&file, "train", "x/5", 0); /* one of two */
    expect_line(&file, "train", "x/5.png", 7);
    expect_line(&file, "train", "v1.5", 8);
    expect_line(&file, "train", "v1", 0);
    expect_line(&file, "train", "cat/10", 0);
    label_file_free(&file);
}

TEST_IN_FOLDER(test_a_set_before_a_key_tells_sets_apart, folder)
{
    static const struct {
        const char *set, *split, *key;
        uint64_t line; /* 0: it has none */
    } cases[] = {
        {"a", "train", "cat/1", 1},    {"b", "train", "cat/1", 2},      {"b", "val", "cat/1", 2},
        {"a", "train", "cat/2", 3},    {"b", "train", "cat/2", 4},      {"b", "val", "cat/2", 5},
        {"a", "train", "dog/3", 6},    {"c", "train", "dog/3", 7},      {"data/b", "test", "cat/4", 8},
        {"b", "val", "cat/4", 9},      {NULL, "val", "cat/4", 9},       {NULL, "train", "b/cat/1", 2},
        {"train", "val", "cat/5", 11}, {"train", "train", "cat/5", 10},
    };
    FshError error = {0};
    LabelFile file;
    assert_ok(read_as(folder,
                      "cat/1.png,a\nb/cat/1.png,b\na/cat/2,c\nb/train/cat/2.jpg,d\nb/val/cat/2.jpg,e\na/3,f\n"
                      "3,g\ndata/b/cat/4,h\nval/cat/4,i\ntrain/cat/5,j\nval/cat/5,k\n",
                      &(LabelFileOptions){.kind = -1}, &file, &error),
              &error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const LabelRow *row =
            label_file_find(&file, cases[i].set, cases[i].split, cases[i].key, strlen(cases[i].key));
        if ((row ? row->line : 0) != cases[i].line)
            fail_msg("%s: %s/%s: line %d, not %d", cases[i].set ? cases[i].set : "-", cases[i].split,
                     cases[i].key, row ? (int)row->line : 0, (int)cases[i].line);
    }
    assert_true(label_file_has_folder(&file, "b"));
    assert_true(label_file_has_folder(&file, "data/b"));
    assert_false(label_file_has_folder(&file, "ca"));
    label_file_free(&file);
}

TEST_IN_FOLDER(test_files_that_are_used_together_share_their_classes, folder)
{
    FshError error = {0};
    LabelFile files[2];
    LabelNames names = {0};
    const LabelFileOptions options = {.kind = -1};
    const char *list = test_path(folder, "names.txt");
    test_file_write_text(test_path(folder, "other.csv"), "c,cat\nd,ant|dog\n");
    assert_ok(read_as(folder, "a,dog\nb,cat\n", &options, &files[0], &error), &error);
    assert_ok(label_file_read(&files[1], test_path(folder, "other.csv"), &options, &error), &error);
    assert_ok(label_files_settle(files, 2, NULL, &names, &error), &error);
    assert_int_equal(files[0].kind, LABELS_MANY);
    assert_int_equal(names.count, 3);
    assert_string_equal(names.names[files[0].members[0]], "dog");
    assert_string_equal(names.names[files[1].members[1]], "ant");
    label_names_free(&names);
    label_file_free(&files[1]);
    label_file_free(&files[0]);
    assert_ok(read_as(folder, "a,dog\nb,cat\n", &options, &files[0], &error), &error);
    test_file_write_text(list, "dog\nbird\n\ncat\n");
    assert_ok(label_files_settle(files, 1, list, &names, &error), &error);
    assert_int_equal(names.count, 3);
    assert_int_equal(files[0].members[1], 2);
    label_names_free(&names);
    label_file_free(&files[0]);
    assert_ok(read_as(folder, "a,dog\nb,cat\n", &options, &files[0], &error), &error);
    test_file_write_text(list, "dog\nbird\n");
    assert_int_equal(label_files_settle(files, 1, list, &names, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "labels.csv: the class 'cat' is not in ");
    label_file_free(&files[0]);
}
