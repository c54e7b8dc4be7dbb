#include "tools/job/labels.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static Labels *load(TestFolder *folder, const char *text)
{
    const char *path = test_path(folder, "labels");
    test_file_write_text(path, text);
    Labels *labels = NULL;
    FshError error = {0};
    assert_ok(labels_load(&labels, path, &error), &error);
    assert_non_null(labels);
    return labels;
}

static void assert_label(const Labels *labels, const char *path, const char *expected)
{
    const char *label = labels_find(labels, path);
    if (!expected && label)
        fail_msg("%s has the label %s", path, label);
    if (expected && (!label || strcmp(label, expected) != 0))
        fail_msg("%s has the label %s instead of %s", path, label ? label : "(none)", expected);
}

/* Each line is one that people have on their disks. */
TEST_IN_FOLDER(test_every_form_of_the_field_is_read, folder)
{
    static const char *const files[] = {
        "ILSVRC2012_val_00000001.JPEG n01751748\nILSVRC2012_val_00000002.JPEG n09193705\n",
        "# ours\n\nILSVRC2012_val_00000001.JPEG  n01751748 \r\n\r\n  ILSVRC2012_val_00000002.JPEG n09193705",
        "ILSVRC2012_val_00000002.JPEG\tn09193705\t0\t32\t44\t62\nILSVRC2012_val_00000001."
        "JPEG\tn01751748\t1\t2\t3\t4\n",
        "ImageId,PredictionString\nILSVRC2012_val_00000001,n01751748 111 108 431 202 \n"
        "ILSVRC2012_val_00000002,n09193705 85 1 499 272 n09193705 131 0 499 254 \n",
        "\xEF\xBB\xBF"
        "filename,label,note\r\nILSVRC2012_val_00000001.JPEG,n01751748,x\r\n"
        "\"ILSVRC2012_val_00000002.JPEG\",\"n09193705\"\r\n",
        "n01751748\nn09193705\n",
        "# WordNet\nn01751748\n# another\nn09193705\n\n",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Labels *labels = load(folder, files[i]);
        assert_label(labels, "ILSVRC2012_val_00000001.JPEG", "n01751748");
        assert_label(labels, "./val/ILSVRC2012_val_00000002.JPEG", "n09193705");
        assert_label(labels, "ILSVRC2012_val_00000003.JPEG", NULL);
        assert_label(labels, "ILSVRC2012_val_0000000", NULL);
        assert_label(labels, "", NULL);
        labels_free(&labels);
        assert_null(labels);
        labels_free(&labels);
    }
}

TEST_IN_FOLDER(test_the_whole_path_is_looked_for_before_the_name, folder)
{
    Labels *labels =
        load(folder, "a/x.jpg left\nx.jpg both\n./b/x.jpg right\ny stem\na/z stem2\na/x.jpg left\n");
    assert_label(labels, "a/x.jpg", "left");
    assert_label(labels, "b/x.jpg", "right");
    assert_label(labels, "c/x.jpg", "both");
    assert_label(labels, "x.jpg", "both");
    assert_label(labels, "deep/er/y.png", "stem");
    assert_label(labels, "a/z.jpg", "stem2");
    assert_label(labels, "z.jpg", NULL);
    assert_label(labels, "x.jpeg", NULL);
    labels_free(&labels);
}

TEST_IN_FOLDER(test_labels_without_names_go_by_the_number, folder)
{
    Labels *labels = load(folder, "490\n361\n171\n");
    assert_label(labels, "1.JPEG", "490");
    assert_label(labels, "2012_val_2", "361");
    assert_label(labels, "x/v2.0_0003.JPEG", "171");
    assert_label(labels, "0.JPEG", NULL);
    assert_label(labels, "4.JPEG", NULL);
    assert_label(labels, "3x.JPEG", NULL);
    assert_label(labels, "3/a.JPEG", NULL);
    assert_label(labels, "18446744073709551617.JPEG", NULL); /* 2^64 + 1 is not 1 */
    labels_free(&labels);
}

TEST_IN_FOLDER(test_columns_may_hold_spaces, folder)
{
    Labels *labels = load(folder, "my photo 1.jpg\tgolden retriever\nmy photo 2.jpg\tgolden eagle\n");
    assert_label(labels, "my photo 1.jpg", "golden retriever");
    assert_label(labels, "my photo 2.jpg", "golden eagle");
    labels_free(&labels);
    labels = load(folder, "id,breed\n\"a,b.jpg\",Cocker 2 Spaniel\n");
    assert_label(labels, "a,b.jpg", "Cocker 2 Spaniel"); /* two words after the first are no box */
    assert_label(labels, "id", NULL);
    labels_free(&labels);
}

TEST_IN_FOLDER(test_what_is_wrong_is_told_with_its_line, folder)
{
    char long_line[400] = "a ";
    memset(long_line + 2, 'x', 256);
    const struct {
        const char *text, *message;
    } cases[] = {
        {"", "holds no label"},
        {"\n# nothing\n", "holds no label"},
        {"ImageId,PredictionString\n", "holds no label"},
        {"a x\nb\n", "line 2 is not of the form NAME LABEL"},
        {"a x\n\nb c d\n", "line 3 is not of the form NAME LABEL, as the first line is (names with spaces"},
        {"a b c\n", "line 1 is not of the form NAME LABEL"},
        {"a\nb c\n", "line 2 is not of the form LABEL,"},
        {"a,x\nb x\n", "line 2 is not of the form NAME,LABEL"},
        {"a\tx\nb x\n", "line 2 is not of the form NAME<tab>LABEL"},
        {"\"a,x\n", "line 1 is not of the form NAME,LABEL"},
        {"\"a\"b,x\n", "line 1 is not of the form NAME,LABEL"},
        {"b x\na x\nb y\n", "line 3 gives b the label y, and line 1 the label x"},
        {"a,\n", "line 1: the label \"\" is empty"},
        {",x\n", "line 1: the name is empty"},
        {"./ x\n", "line 1: the name is empty"},
        {"a x\nb ..\n", "line 2: the label \"..\" begins with \".\""},
        {"a .x\n", "line 1: the label \".x\" begins with \".\""},
        {"a x/y\n", "line 1: the label \"x/y\" holds \"/\""},
        {"a x\033[2J\n", "holds a control character"},
        {"a x\x7F\n", "holds a control character"},
        {long_line, "is longer than a folder's name can be"},
        {"a,n1 1 2 3 4 n2 1 2 3 4\n", "line 1: boxes of different classes"},
        {"x\n\ny\n", "line 2 is empty, and labels without names"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = test_path(folder, "labels-%zu", i);
        test_file_write_text(path, cases[i].text);
        Labels *labels = (Labels *)folder;
        FshError error = {0};
        if (labels_load(&labels, path, &error) != FSH_ERR_CORRUPT)
            fail_msg("%s is taken", cases[i].text);
        assert_null(labels);
        assert_contains(error.message, path);
        assert_contains(error.message, cases[i].message);
    }
}

TEST_IN_FOLDER(test_what_is_no_text_is_refused, folder)
{
    Labels *labels = NULL;
    FshError error = {0};
    const char *path = test_path(folder, "binary");
    test_file_write(path, "a x\0b y\n", 8);
    assert_int_equal(labels_load(&labels, path, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "binary: is no text file");
    assert_int_equal(labels_load(&labels, folder->path, &error), FSH_ERR_UNSUPPORTED);
    assert_int_equal(labels_load(&labels, test_path(folder, "none"), &error), FSH_ERR_NOT_FOUND);
    assert_null(labels);
}

/* ImageNet's validation set: every image has its label, found among 50,000. */
TEST_IN_FOLDER(test_fifty_thousand_names_are_found, folder)
{
    enum { COUNT = 50000 };
    size_t capacity = (size_t)COUNT * 64, length = 0;
    char *text = malloc(capacity);
    assert_non_null(text);
    for (unsigned i = 0; i < COUNT; i++) { /* not in order: 7 and 50,000 have no factor in common */
        unsigned number = i * 7 % COUNT + 1;
        length += (size_t)snprintf(text + length, capacity - length, "ILSVRC2012_val_%08u.JPEG n%08u\n",
                                   number, number * 31 % 1000);
    }
    Labels *labels = load(folder, text);
    free(text);
    for (unsigned number = 1; number <= COUNT; number++) {
        char name[64], label[16];
        (void)snprintf(name, sizeof name, "ILSVRC2012_val_%08u.JPEG", number);
        (void)snprintf(label, sizeof label, "n%08u", number * 31 % 1000);
        assert_label(labels, name, label);
    }
    labels_free(&labels);
}
