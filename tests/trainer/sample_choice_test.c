#include "trainer/data/sample_choice.h"

#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "trainer/data/class_draw.h"

/* 4 classes of 10 and of 3 samples. Keys are "class/N". */
static const DatasetSpec spec = {.codec = FSH_CODEC_RAW,
                                 .width = 8,
                                 .height = 8,
                                 .channels = 3,
                                 .class_count = 4,
                                 .train_count = 40,
                                 .val_count = 12,
                                 .shard_count = 2};

typedef struct Chosen {
    FshDataset *dataset;
    const FshSplit *train, *val;
    SampleChoice choice;
    FshStatus status;
    FshError error;
} Chosen;

static Chosen choose_with_seed(TestFolder *folder, const ChoiceOptions *options, uint64_t seed, bool trains)
{
    Chosen chosen = {0};
    const char *path = test_path(folder, "set");
    if (!file_exists(path))
        dataset_make(path, &spec);
    assert_ok(fsh_open(&chosen.dataset, path, &chosen.error), &chosen.error);
    chosen.train = trains ? fsh_split(chosen.dataset, "train") : NULL;
    chosen.val = fsh_split(chosen.dataset, "val");
    chosen.status = sample_choice_make(&chosen.choice, options, seed, chosen.dataset, &chosen.train,
                                       &chosen.val, &chosen.error);
    return chosen;
}

static Chosen choose(TestFolder *folder, const ChoiceOptions *options)
{
    Chosen chosen = choose_with_seed(folder, options, 7, true);
    assert_ok(chosen.status, &chosen.error);
    return chosen;
}

/* Returns the name of the class, in the dataset as it was packed. */
static const char *class_name(TestFolder *folder, size_t index, char *name, size_t name_bytes)
{
    Chosen all = choose(folder, &(ChoiceOptions){0});
    (void)snprintf(name, name_bytes, "%s", fsh_manifest(all.dataset)->class_names[index]);
    assert_false(all.choice.made);
    fsh_close(&all.dataset);
    return name;
}

TEST_IN_FOLDER(test_a_condition_chooses_of_both_splits_and_leaves_classes_out, folder)
{
    char one[64], three[64], where[200];
    (void)snprintf(where, sizeof where, "class = '%s' or class = '%s'",
                   class_name(folder, 1, one, sizeof one), class_name(folder, 3, three, sizeof three));
    Chosen chosen = choose(folder, &(ChoiceOptions){.where = where});
    assert_int_equal(chosen.train->sample_count, 20);
    assert_int_equal(chosen.val->sample_count, 6);
    assert_int_equal(fsh_manifest(chosen.dataset)->class_count, 2);
    assert_string_equal(fsh_manifest(chosen.dataset)->class_names[1], three);
    assert_int_equal(chosen.choice.class_of, 4);
    assert_contains(chosen.choice.left_out, "', '");
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(fsh_sample_label(chosen.train, i), i % 2);
    fsh_close(&chosen.dataset);

    /* Where nothing is trained, the classes stay. */
    chosen = choose_with_seed(folder, &(ChoiceOptions){.where = where}, 7, false);
    assert_ok(chosen.status, &chosen.error);
    assert_int_equal(fsh_manifest(chosen.dataset)->class_count, 4);
    assert_int_equal(chosen.val->sample_count, 6);
    assert_int_equal(fsh_sample_label(chosen.val, 1), 3);
    fsh_close(&chosen.dataset);
}

TEST_IN_FOLDER(test_a_file_of_classes_says_their_order, folder)
{
    char one[64], three[64], text[200], where[200];
    const char *file = test_path(folder, "classes.txt");
    (void)snprintf(text, sizeof text, "%s\n%s\n", class_name(folder, 3, three, sizeof three),
                   class_name(folder, 1, one, sizeof one));
    test_file_write_text(file, text);
    Chosen chosen = choose(folder, &(ChoiceOptions){.classes = file});
    assert_int_equal(chosen.train->sample_count, 20);
    assert_string_equal(fsh_manifest(chosen.dataset)->class_names[0], three);
    assert_int_equal(fsh_sample_label(chosen.train, 0), 1);
    assert_int_equal(fsh_sample_label(chosen.train, 1), 0);
    assert_int_equal(chosen.train->info->class_counts[0], 10);
    fsh_close(&chosen.dataset);

    /* A class that it names stays, whatever a condition leaves of it. */
    (void)snprintf(where, sizeof where, "class = '%s'", one);
    chosen = choose(folder, &(ChoiceOptions){.classes = file, .where = where});
    assert_int_equal(chosen.train->sample_count, 10);
    assert_int_equal(fsh_manifest(chosen.dataset)->class_count, 2);
    assert_contains(chosen.choice.empty, three);
    assert_string_equal(chosen.choice.left_out, "");
    fsh_close(&chosen.dataset);
}

/* What a smaller limit takes is among what a larger one takes, of each class as much; evaluation is whole. */
TEST_IN_FOLDER(test_limits_take_of_each_class_and_lie_in_each_other, folder)
{
    static const char *const limits[] = {"1", "20%", "45%", "7", "100%"};
    static const uint64_t counts[] = {1, 2, 5, 7, 10};
    bool before[40] = {false};
    for (size_t i = 0; i < 5; i++) {
        Chosen all = choose(folder, &(ChoiceOptions){0});
        Chosen chosen = choose(folder, &(ChoiceOptions){.limit = limits[i]});
        bool now[40] = {false};
        assert_int_equal(chosen.train->sample_count, 4 * counts[i]);
        assert_int_equal(chosen.val->sample_count, 12);
        assert_string_equal(chosen.choice.evaluation_digest, "");
        for (size_t c = 0; c < 4; c++)
            assert_int_equal(chosen.train->info->class_counts[c], counts[i]);
        for (uint64_t s = 0, at = 0; s < 40 && at < chosen.train->sample_count; s++) {
            FshSample a, b;
            assert_ok(fsh_sample_get(all.train, s, &a, NULL), &all.error);
            assert_ok(fsh_sample_get(chosen.train, at, &b, NULL), &all.error);
            now[s] = a.key_bytes == b.key_bytes && memcmp(a.key, b.key, a.key_bytes) == 0;
            at += now[s];
        }
        for (size_t s = 0; s < 40; s++)
            assert_true(now[s] || !before[s]);
        memcpy(before, now, sizeof now);
        fsh_close(&chosen.dataset);
        fsh_close(&all.dataset);
    }
}

TEST_IN_FOLDER(test_a_digest_tells_choices_apart, folder)
{
    static const ChoiceOptions options[] = {{.limit = "5"},
                                            {.limit = "50%"},
                                            {.limit = "4"},
                                            {.where = "split = val or key ~ '*[0-4]'"},
                                            {.where = "split = val or not key ~ '*[5-9]'"},
                                            {.where = "key ~ '*[0-4]'"}};
    static const size_t same_as[] = {0, 0, 2, 3, 3, 5};
    char digests[6][33];
    for (size_t i = 0; i < 6; i++) {
        Chosen chosen = choose(folder, &options[i]);
        (void)snprintf(digests[i], sizeof digests[i], "%s", chosen.choice.digest);
        for (size_t j = 0; j <= i; j++)
            assert_int_equal(strcmp(digests[i], digests[j]) == 0, same_as[i] == same_as[j]);
        fsh_close(&chosen.dataset);
    }
    Chosen other = choose_with_seed(folder, &options[0], 8, true);
    assert_ok(other.status, &other.error);
    assert_string_not_equal(other.choice.digest, digests[0]);
    fsh_close(&other.dataset);
}

TEST_IN_FOLDER(test_what_cannot_be_chosen_is_refused, folder)
{
    char name[64], one[128], twice[160];
    const char *unknown = test_path(folder, "unknown"), *again = test_path(folder, "again");
    (void)class_name(folder, 0, name, sizeof name);
    (void)snprintf(one, sizeof one, "class = '%s'", name);
    (void)snprintf(twice, sizeof twice, "%s\n%s\n", name, name);
    test_file_write_text(unknown, "\nnobody\n");
    test_file_write_text(again, twice);
    const struct {
        ChoiceOptions options;
        const char *part;
    } cases[] = {
        {{.where = "key = nobody"}, "--where: chooses none of the 40 samples of split 'train'"},
        {{.where = "split = train"}, "--where: chooses none of the 12 samples of split 'val'"},
        {{.where = "key ="}, "--where: a name is missing at its end: key =>>>"},
        {{.where = one}, "--where: leaves one class, "},
        {{.classes = unknown}, "unknown:2: 'nobody' is no class of"},
        {{.classes = again}, "' stands there twice"},
        {{.limit = "0"}, "--limit: '0' is neither a part of each class, as 10%, nor"},
        {{.limit = "0%"}, "--limit: "},
        {{.limit = "101%"}, "--limit: "},
        {{.limit = "1.5"}, "--limit: "},
        {{.limit = "-1"}, "--limit: "},
        {{.limit = "ten"}, "--limit: "},
        {{.limit = "10%%"}, "--limit: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Chosen chosen = choose_with_seed(folder, &cases[i].options, 7, true);
        assert_int_not_equal(chosen.status, FSH_OK);
        assert_contains(chosen.error.message, cases[i].part);
        fsh_close(&chosen.dataset);
    }
}

/* Every class has its share, whatever the others have, and each sample is as likely as another. */
TEST(test_draws_are_even)
{
    enum { COUNT = 100, SEEDS = 400 };
    int32_t labels[COUNT];
    uint64_t names[COUNT], taken[COUNT] = {0};
    bool keeps[COUNT];
    FshError error = {0};
    const ClassLimit limit = {.count = 20};
    for (size_t i = 0; i < COUNT; i++) {
        labels[i] = i < 10 ? 2 : 0;
        names[i] = i;
    }
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        size_t small = 0, large = 0;
        assert_ok(class_draw(&limit, seed, labels, names, COUNT, 3, keeps, &error), &error);
        for (size_t i = 0; i < COUNT; i++) {
            taken[i] += keeps[i];
            *(i < 10 ? &small : &large) += keeps[i];
        }
        assert_true(small == 10 && large == 20);
    }
    for (size_t i = 10; i < COUNT; i++) /* 89 of 400, deviation 8.3 */
        assert_true(taken[i] > 89 - 42 && taken[i] < 89 + 42);
}
