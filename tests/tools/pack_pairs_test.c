/* fpack --pairs and --fields: what belongs together, and what is left out rather than guessed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tools/sources.h"

/* Makes SIDE/… of a sample, both sides of width x height. */
static void make_pair(TestFolder *folder, const char *a, const char *b, uint32_t width, uint32_t height)
{
    source_jpeg(test_path(folder, "%s", a), width, height, 3, 1);
    source_jpeg(test_path(folder, "%s", b), width, height, 3, 2);
}

TEST_IN_FOLDER(test_pairs_match_by_path_at_any_depth, folder)
{
    const char *packed = test_path(folder, "shards");
    make_pair(folder, "src/train/blurry/seq01/x.jpg", "src/train/sharp/seq01/x.jpg", 40, 30);
    make_pair(folder, "src/train/seq02/blurry/y.jpeg", "src/train/seq02/sharp/y.jpg", 41, 30);
    make_pair(folder, "src/blurry/validation/z.jpg", "src/sharp/validation/z.jpg", 42, 30);
    make_pair(folder, "src/blurry/loose.jpg", "src/sharp/loose.jpg", 43, 30);
    run_ok("fpack", "--pairs", "blurry:sharp", test_path(folder, "src"), packed, NULL);
    char *train = packed_list(packed, "train"), *val = packed_list(packed, "val");
    assert_string_equal(train, "loose -1\nseq01/x -1\nseq02/y -1\n");
    assert_string_equal(val, "z -1\n");
    free(train);
    free(val);
    packed_assert_copies(packed, test_path(folder, "src"));

    FshDataset *dataset = packed_open(packed);
    const FshManifest *manifest = fsh_manifest(dataset);
    assert_int_equal(manifest->kind, FSH_KIND_PAIRS);
    assert_int_equal(manifest->field_count, 2);
    assert_string_equal(manifest->field_names[0], "blurry");
    assert_string_equal(manifest->field_names[1], "sharp");
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, NULL), NULL);
    assert_int_equal(sample.field_count, 2);
    const char source[] = "train/sharp/seq01/x.jpg";
    assert_int_equal(sample.fields[1].source_bytes, strlen(source));
    assert_memory_equal(sample.fields[1].source, source, strlen(source));
    assert_int_equal(sample.fields[0].width, 40);
    fsh_close(&dataset);
    run_ok("fverify", packed, NULL);
}

TEST_IN_FOLDER(test_raw_pairs_in_lmdb, folder)
{
    const char *packed = test_path(folder, "lmdb");
    make_pair(folder, "src/a/x.jpg", "src/b/x.jpg", 40, 30);
    make_pair(folder, "src/a/y.jpg", "src/b/y.jpg", 20, 50);
    run_ok("fpack", "--pairs", "b:a", "--store", "raw", "--format", "lmdb", test_path(folder, "src"), packed,
           NULL);
    FshDataset *dataset = packed_open(packed);
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 1, &sample, NULL), NULL);
    for (int field = 0; field < 2; field++) {
        assert_int_equal(sample.fields[field].codec, FSH_CODEC_RAW);
        assert_int_equal(sample.fields[field].bytes, 20 * 50 * 3);
    }
    assert_memory_equal(sample.fields[0].source, "b/y.jpg", 7);
    fsh_close(&dataset);
    run_ok("fverify", packed, NULL);
}

TEST_IN_FOLDER(test_orphans_and_unequal_pairs_are_listed_and_left_out, folder)
{
    const char *packed = test_path(folder, "shards");
    make_pair(folder, "src/a/good.jpg", "src/b/good.jpg", 40, 30);
    source_jpeg(test_path(folder, "src/a/only_a.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "src/b/only_b.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "src/a/unequal.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "src/b/unequal.jpg"), 40, 31, 3, 1);
    source_jpeg(test_path(folder, "src/a/wide.jpg"), 41, 30, 3, 1);
    source_jpeg(test_path(folder, "src/b/wide.jpg"), 40, 30, 3, 1);
    make_pair(folder, "src/a/broken.jpg", "src/b/broken.jpg", 40, 30);
    test_file_truncate(test_path(folder, "src/b/broken.jpg"), -200);
    RunResult result = run_expecting(1, "fpack", "--pairs", "a:b", test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "a/only_a.jpg: has no counterpart in 'b'; left out");
    assert_contains(result.err, "b/only_b.jpg: has no counterpart in 'a'; left out");
    assert_contains(result.err,
                    "a/unequal.jpg: sizes differ: a is 40x30, b (b/unequal.jpg) is 40x31; left out");
    assert_contains(result.err, "a/wide.jpg: sizes differ: a is 41x30, b (b/wide.jpg) is 40x30; left out");
    assert_contains(result.err, "b/broken.jpg: ");
    assert_contains(result.err, "5 left out");
    run_result_free(&result);
    char *list = packed_list(packed, "train");
    assert_string_equal(list, "good -1\n");
    free(list);
}

/* Super-resolution: the second side is larger by a factor that the option tells, and the dataset keeps. */
TEST_IN_FOLDER(test_sides_may_differ_by_a_factor, folder)
{
    const char *packed = test_path(folder, "shards"), *again = test_path(folder, "again");
    source_jpeg(test_path(folder, "src/LR/1.jpg"), 20, 15, 3, 1);
    source_jpeg(test_path(folder, "src/HR/1.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "src/LR/2.jpg"), 20, 15, 3, 1);
    source_jpeg(test_path(folder, "src/HR/2.jpg"), 60, 45, 3, 1);
    source_jpeg(test_path(folder, "src/LR/3.jpg"), 20, 15, 3, 1);
    source_jpeg(test_path(folder, "src/HR/3.jpg"), 40, 31, 3, 1);
    make_pair(folder, "src/LR/4.jpg", "src/HR/4.jpg", 40, 30);
    RunResult result = run_expecting(1, "fpack", "--pairs", "LR:HR", "--pair-scale", "2",
                                     test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "LR/2.jpg: sizes differ by another factor than --pair-scale: LR is 20x15, HR "
                                "(HR/2.jpg) is 60x45; --pair-scale 3 packs such pairs; left out");
    assert_contains(result.err, "LR/3.jpg: sizes differ by another factor");
    assert_contains(result.err, "LR/4.jpg: sizes differ by another factor");
    run_result_free(&result);
    FshDataset *dataset = packed_open(packed);
    assert_int_equal(fsh_manifest(dataset)->pair_scale, 2);
    assert_int_equal(fsh_split(dataset, "train")->sample_count, 1);
    fsh_close(&dataset);
    run_ok("fverify", "--decode", packed, NULL);
    run_ok("fverify", "--decode", test_path(folder, "shards/train-00000-of-00001.fshard"), NULL);

    run_ok("fpack", "--format", "lmdb", "--store", "raw", packed, again, NULL);
    dataset = packed_open(again);
    assert_int_equal(fsh_manifest(dataset)->pair_scale, 2);
    fsh_close(&dataset);
    run_ok("fverify", "--decode", again, NULL);
    run_ok("fpack", "--part", "1/1", packed, test_path(folder, "parts"), NULL);
    run_ok("fpack", "--merge", test_path(folder, "parts"), NULL);
    dataset = packed_open(test_path(folder, "parts"));
    assert_int_equal(fsh_manifest(dataset)->pair_scale, 2);
    fsh_close(&dataset);

    result = run_expecting(2, "fpack", "--max-size", "10", packed, test_path(folder, "x"), NULL);
    assert_contains(result.err, "differ by a factor of 2");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--pairs", "LR:HR", "--pair-scale", "2", "--max-size", "10",
                           test_path(folder, "src"), test_path(folder, "x"), NULL);
    assert_contains(result.err, "--pair-scale: --max-size makes");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--pair-scale", "2", test_path(folder, "src"), test_path(folder, "x"),
                           NULL);
    assert_contains(result.err, "--pair-scale: is of pairs");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_sizes_that_differ_by_a_factor_name_the_option, folder)
{
    source_jpeg(test_path(folder, "src/LR/1.jpg"), 160, 120, 3, 1);
    source_jpeg(test_path(folder, "src/HR/1.jpg"), 320, 240, 3, 1);
    source_jpeg(test_path(folder, "src/LR/2.jpg"), 100, 80, 3, 1);
    source_jpeg(test_path(folder, "src/HR/2.jpg"), 200, 161, 3, 1);
    RunResult result =
        run_expecting(1, "fpack", "--pairs", "LR:HR", test_path(folder, "src"), test_path(folder, "a"), NULL);
    assert_contains(result.err, "is 320x240; --pair-scale 2 packs such pairs; left out");
    assert_contains(result.err, "is 200x161; left out");
    run_result_free(&result);
    result =
        run_expecting(1, "fpack", "--pairs", "HR:LR", test_path(folder, "src"), test_path(folder, "b"), NULL);
    assert_contains(
        result.err,
        "is 160x120; --pair-scale 2 packs such pairs, with the smaller side named first; left out");
    run_result_free(&result);
    result = run_expecting(1, "fresize", "--max-size", "50", "--pairs", "LR:HR", test_path(folder, "src"),
                           test_path(folder, "c"), NULL);
    assert_contains(result.err,
                    "160 x 120; a pair must be of one size: pairs for super-resolution go into fpack "
                    "--pair-scale as they are");
    run_result_free(&result);
}

/* ---- folders anywhere, ends of names ---- */

static char *pairs_argument(TestFolder *folder, const char *lq, const char *gt)
{
    return (char *)test_path(folder, "lq=%s/%s:gt=%s/%s", folder->path, lq, folder->path, gt) +
           strlen(folder->path) + 1;
}

TEST_IN_FOLDER(test_sides_may_be_folders_anywhere, folder)
{
    const char *packed = test_path(folder, "packed");
    make_pair(folder, "one/LR/train/1.jpg", "two/deep/HR/train/1.png.jpg", 40, 30);
    make_pair(folder, "one/LR/train/2.jpg", "two/deep/HR/train/2.jpg", 40, 30);
    make_pair(folder, "one/LR/val/3.jpg", "two/deep/HR/val/3.jpg", 42, 30);
    source_jpeg(test_path(folder, "one/other/2.jpg"), 40, 30, 3, 3); /* below no side */
    const char *pairs = pairs_argument(folder, "one/LR", "two/deep/HR");
    RunResult result = run_expecting(1, "fpack", "--pairs", pairs, packed, NULL);
    assert_contains(result.err, "one/LR/train/1.jpg: has no counterpart in 'gt'; left out");
    assert_contains(result.err, "two/deep/HR/train/1.png.jpg: has no counterpart in 'lq'; left out");
    run_result_free(&result);
    char *train = packed_list(packed, "train"), *val = packed_list(packed, "val");
    assert_string_equal(train, "2 -1\n");
    assert_string_equal(val, "3 -1\n");
    free(train);
    free(val);
    packed_assert_copies(packed, folder->path);
    run_ok("fverify", "--decode", "--against", folder->path, packed, NULL);
    const FshDataset *dataset = packed_open(packed);
    assert_string_equal(fsh_manifest(dataset)->field_names[0], "lq");
    assert_string_equal(fsh_manifest(dataset)->field_names[1], "gt");
    fsh_close((FshDataset **)&dataset);

    /* Folders whose names begin alike are two: "pairs" is not above "pairs_gt". */
    make_pair(folder, "pairs/x/lq/1.jpg", "pairs_gt/gt/1.jpg", 40, 30);
    run_ok("fpack", "--pairs", pairs_argument(folder, "pairs/x/lq", "pairs_gt/gt"),
           test_path(folder, "alike"), NULL);
    run_ok("fpack", "--pairs", pairs_argument(folder, "pairs_gt/gt", "pairs/x/lq"),
           test_path(folder, "other"), NULL);
    packed_assert_copies(test_path(folder, "alike"), folder->path);

    /* The second side as an argument gives the same dataset, and so do parts. */
    char *equals = strchr(pairs, ':');
    *equals = '\0';
    result = run_expecting(1, "fpack", "--pairs", pairs, equals + 1, test_path(folder, "again"), NULL);
    run_result_free(&result);
    char *difference = test_tree_difference(packed, test_path(folder, "again"));
    assert_null(difference);
}

TEST_IN_FOLDER(test_folders_that_are_no_sides_are_refused, folder)
{
    make_pair(folder, "a/1.jpg", "a/b/1.jpg", 40, 30);
    make_pair(folder, "c/1.jpg", "d/1.jpg", 40, 30);
    const struct {
        const char *pairs, *suffix, *destination, *message;
    } cases[] = {
        {pairs_argument(folder, "a", "a/b"), "lq=x", "out", "the folder of 'gt' lies in that of 'lq'"},
        {pairs_argument(folder, "c", "c"), "lq=x:gt=x", "out",
         "'lq' and 'gt' are the same folder; --pair-suffix"},
        {pairs_argument(folder, "c", "nowhere"), "lq=x", "out", "nowhere: there is no such folder"},
        {pairs_argument(folder, "c", "d"), "lr=x", "out", "--pair-suffix: 'lr' is no side"},
        {pairs_argument(folder, "c", "d"), "lq", "out", "--pair-suffix: 'lq' is not SIDE=SUFFIX"},
        {pairs_argument(folder, "c", "d"), "lq=/", "out", "--pair-suffix: '/' is no end of a name"},
        {pairs_argument(folder, "c", "d"), "lq=x", "d/out", "lies in the folder of 'gt'"},
        {test_path(folder, "lq=%s/c", folder->path) + strlen(folder->path) + 1, "lq=x", "out",
         "'lq' is one side; pairs have two"},
        {test_path(folder, "lq=%s/c:lq=%s/d", folder->path, folder->path) + strlen(folder->path) + 1, "lq=x",
         "out", "'lq' is given twice"},
        {test_path(folder, "lq=%s/c:gt=", folder->path) + strlen(folder->path) + 1, "lq=x", "out",
         "'gt=' is not SIDE=FOLDER"},
        {"lq=/:gt=/tmp", "lq=x", "out", "/ is no side of pairs"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RunResult result =
            run_expecting(cases[i].pairs[3] == '/' && strstr(cases[i].message, "no such") ? 1 : 2, "fpack",
                          "--pairs", cases[i].pairs, "--pair-suffix", cases[i].suffix,
                          test_path(folder, "%s", cases[i].destination), NULL);
        assert_contains(result.err, cases[i].message);
        run_result_free(&result);
    }
    RunResult result = run_expecting(2, "fresize", "--pairs", pairs_argument(folder, "c", "d"),
                                     test_path(folder, "c"), test_path(folder, "out"), NULL);
    assert_contains(result.err, "pack both with fpack --pairs A=DST1:B=DST2");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_names_may_end_in_a_word_of_their_side, folder)
{
    const char *packed = test_path(folder, "packed");
    for (int i = 1; i <= 4; i++) {
        source_jpeg(test_path(folder, "src/LR/%04dx2.jpg", i), 20, 15, 3, (uint32_t)i);
        source_jpeg(test_path(folder, "src/HR/%04d.jpg", i), 40, 30, 3, (uint32_t)i);
    }
    source_jpeg(test_path(folder, "src/LR/0005.jpg"), 20, 15, 3, 5);
    source_jpeg(test_path(folder, "src/HR/0005.jpg"), 40, 30, 3, 5);
    /* Nothing is guessed, and the message names the rule: the pair that fits without it is packed. */
    RunResult result = run_expecting(1, "fpack", "--pairs", "LR:HR", "--pair-scale", "2",
                                     test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "LR/0001x2.jpg: has no counterpart in 'HR'; left out");
    assert_contains(result.err,
                    "--pair-suffix LR=x2 would pair 4 of 4 images of 'LR' that have no counterpart");
    run_result_free(&result);
    result = run_expecting(1, "fpack", "--force", "--pairs", "LR:HR", "--pair-scale", "2", "--pair-suffix",
                           "LR=x2", test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "LR/0005.jpg: its name does not end as --pair-suffix says of its side: 'x2'");
    assert_contains(result.err, "HR/0005.jpg: has no counterpart in 'LR'; left out");
    assert_contains_not(result.err, "would pair");
    run_result_free(&result);
    char *train = packed_list(packed, "train");
    assert_string_equal(train, "0001 -1\n0002 -1\n0003 -1\n0004 -1\n");
    free(train);
    packed_assert_copies(packed, test_path(folder, "src"));
}

TEST_IN_FOLDER(test_both_sides_may_end_in_words_and_lie_in_one_folder, folder)
{
    for (int i = 1; i <= 4; i++)
        make_pair(folder, test_path(folder, "o/%02d_outdoor_hazy.jpg", i) + strlen(folder->path) + 1,
                  test_path(folder, "o/%02d_outdoor_GT.jpg", i) + strlen(folder->path) + 1, 40, 30);
    for (int i = 1; i <= 4; i++)
        make_pair(folder, test_path(folder, "p/hazy/%02d_outdoor_hazy.jpg", i) + strlen(folder->path) + 1,
                  test_path(folder, "p/GT/%02d_outdoor_GT.jpg", i) + strlen(folder->path) + 1, 40, 30);
    RunResult result = run_expecting(1, "fpack", "--pairs", "hazy:GT", test_path(folder, "p"),
                                     test_path(folder, "packed"), NULL);
    assert_contains(result.err, "--pair-suffix hazy=_hazy:GT=_GT would pair 4 of 4 images of 'hazy'");
    run_result_free(&result);
    run_ok("fpack", "--pairs", "hazy:GT", "--pair-suffix", "hazy=_hazy:GT=_GT", test_path(folder, "p"),
           test_path(folder, "packed"), NULL);
    run_ok("fpack", "--pairs", pairs_argument(folder, "o", "o"), "--pair-suffix", "lq=_hazy:gt=_GT",
           test_path(folder, "one"), NULL);
    char *one = packed_list(test_path(folder, "one"), "train");
    char *two = packed_list(test_path(folder, "packed"), "train");
    assert_string_equal(one, "01_outdoor -1\n02_outdoor -1\n03_outdoor -1\n04_outdoor -1\n");
    assert_string_equal(one, two);
    free(one);
    free(two);
    packed_assert_copies(test_path(folder, "one"), folder->path);
}

/* Names that have nothing to do with each other suggest nothing. */
TEST_IN_FOLDER(test_no_rule_is_named_where_none_fits, folder)
{
    static const char *const names[] = {"cat", "dog", "fish", "bird", "toad"};
    for (size_t i = 0; i < 5; i++) {
        source_jpeg(test_path(folder, "src/a/%s.jpg", names[i]), 20, 15, 3, (uint32_t)i);
        source_jpeg(test_path(folder, "src/b/%zu.jpg", i), 20, 15, 3, (uint32_t)i);
    }
    RunResult result =
        run_expecting(1, "fpack", "--pairs", "a:b", test_path(folder, "src"), test_path(folder, "x"), NULL);
    assert_contains(result.err, "see what was left out");
    assert_contains_not(result.err, "--pair-suffix");
    run_result_free(&result);
}

/* Before anything is written, with what to do instead. */
TEST_IN_FOLDER(test_pixels_do_not_go_to_basicsr, folder)
{
    const char *packed = test_path(folder, "raw"), *out = test_path(folder, "out");
    make_pair(folder, "src/lq/1.jpg", "src/gt/1.jpg", 40, 30);
    run_ok("fpack", "--pairs", "basicsr", "--store", "raw", test_path(folder, "src"), packed, NULL);
    RunResult result = run_expecting(1, "fpack", "--layout", "basicsr", packed, out, NULL);
    assert_contains(result.err,
                    "holds raw pixels (lq/1.jpg), and BasicSR reads image files; give --store jpeg, or "
                    "use --format lmdb, with --store zstd");
    assert_int_equal(access(out, F_OK), -1);
    run_result_free(&result);
    run_ok("fpack", "--layout", "basicsr", "--store", "jpeg", packed, out, NULL);
    const char *planes = test_path(folder, "planes");
    run_ok("fpack", "--pairs", "basicsr", "--store", "yuv420", test_path(folder, "src"), planes, NULL);
    result = run_expecting(1, "fpack", "--layout", "basicsr", planes, test_path(folder, "none"), NULL);
    assert_contains(result.err, "holds planes (lq/1.jpg), and BasicSR reads image files; give --store jpeg");
    run_result_free(&result);
    run_ok("fpack", "--layout", "basicsr", "--store", "jpeg", planes, test_path(folder, "of_planes"), NULL);
    result = run_expecting(2, "fpack", "--layout", "basicsr", "--store", "zstd", packed, out, NULL);
    assert_contains(result.err, "pixels go into --format lmdb, with --store raw or zstd");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--shard-size", "10Q", packed, out, NULL);
    assert_contains(result.err,
                    "--shard-size: '10Q' is not a size in bytes (suffixes K, M, G, T) from 4K to 1024T");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_ambiguous_matches_are_listed_and_left_out, folder)
{
    const char *packed = test_path(folder, "shards");
    make_pair(folder, "src/a/good.jpg", "src/b/good.jpg", 40, 30);
    make_pair(folder, "src/a/x.jpg", "src/b/x.jpg", 40, 30);
    source_jpeg(test_path(folder, "src/b/x.jpeg"), 40, 30, 3, 9);       /* which x? */
    source_jpeg(test_path(folder, "src/a/deep/b/y.jpg"), 40, 30, 3, 9); /* which side? */
    source_jpeg(test_path(folder, "src/c/outside.jpg"), 40, 30, 3, 9);
    RunResult result = run_expecting(1, "fpack", "--pairs", "a:b", test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "a/x.jpg: 'b' has 2 images for 'x'");
    assert_contains(result.err, "b/x.jpeg: 'b' has 2 images for 'x'");
    assert_contains(result.err, "b/x.jpg: 'b' has 2 images for 'x'");
    assert_contains(result.err, "a/deep/b/y.jpg: lies below more than one side folder");
    assert_contains(result.err, "warning: c/outside.jpg: below no side folder, as 1 image in all");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "train"), 1);
}

TEST_IN_FOLDER(test_more_than_two_fields, folder)
{
    const char *packed = test_path(folder, "shards");
    make_pair(folder, "src/left/1.jpg", "src/right/1.jpg", 40, 30);
    source_jpeg(test_path(folder, "src/depth/1.jpg"), 40, 30, 1, 3);
    make_pair(folder, "src/left/2.jpg", "src/right/2.jpg", 40, 30);
    RunResult result =
        run_expecting(1, "fpack", "--fields", "left:right:depth", test_path(folder, "src"), packed, NULL);
    assert_contains(result.err, "left/2.jpg: has no counterpart in 'depth'");
    run_result_free(&result);
    FshDataset *dataset = packed_open(packed);
    FshSample sample;
    assert_ok(fsh_sample_get(fsh_split(dataset, "train"), 0, &sample, NULL), NULL);
    assert_int_equal(sample.field_count, 3);
    assert_int_equal(sample.fields[2].channels, 1);
    fsh_close(&dataset);
    run_ok("fverify", packed, NULL);
}

TEST_IN_FOLDER(test_no_pairs_at_all_is_explained, folder)
{
    source_jpeg(test_path(folder, "src/blur/1.jpg"), 40, 30, 3, 1);
    source_jpeg(test_path(folder, "src/sharp/2.jpg"), 40, 30, 3, 1);
    RunResult result = run_expecting(1, "fpack", "--pairs", "blur:sharp", test_path(folder, "src"),
                                     test_path(folder, "shards"), NULL);
    assert_contains(result.err, "'blur' and 'sharp'");
    run_result_free(&result);
    assert_false(access(test_path(folder, "shards"), F_OK) == 0);
}

TEST_IN_FOLDER(test_a_side_that_is_nowhere_is_one_error, folder)
{
    make_pair(folder, "src/train/seq01/blurry/1.jpg", "src/train/seq01/sharp/1.jpg", 40, 30);
    make_pair(folder, "src/train/seq02/blurry/2.jpg", "src/train/seq02/sharp/2.jpg", 40, 30);
    make_pair(folder, "src/train/seq03/blurry/3.jpg", "src/train/seq03/sharp/3.jpg", 40, 30);
    RunResult result = run_expecting(1, "fpack", "--pairs", "blur:sharp", test_path(folder, "src"),
                                     test_path(folder, "shards"), NULL);
    assert_contains(result.err, "src: no folder named 'blur' holds an image; folders that do: blurry, sharp, "
                                "seq01, seq02, seq03\n");
    assert_contains_not(result.err, "counterpart");
    run_result_free(&result);
    assert_false(access(test_path(folder, "shards"), F_OK) == 0);
}

TEST_IN_FOLDER(test_films_of_pairs_packed_as_classes_are_warned_about, folder)
{
    const char *source = test_path(folder, "src");
    for (unsigned i = 0; i < 3; i++) {
        char blurry[64], sharp[64];
        (void)snprintf(blurry, sizeof blurry, "src/train/film%u/blur/1.jpg", i);
        (void)snprintf(sharp, sizeof sharp, "src/train/film%u/sharp/1.jpg", i);
        make_pair(folder, blurry, sharp, 40, 30);
    }
    RunResult result =
        run_expecting(0, "fpack", test_path(folder, "src/train"), test_path(folder, "films"), NULL);
    assert_contains(result.err, "for image pairs use --pairs blur:sharp");
    run_result_free(&result);
    make_pair(folder, "src/test/film9/blur/1.jpg", "src/test/film9/sharp/1.jpg", 40, 30);
    result = run_expecting(1, "fpack", source, test_path(folder, "never"), NULL);
    assert_contains(result.err, "class 'film9' of test is missing from train");
    assert_contains(result.err, "; for image pairs use --pairs blur:sharp\n");
    run_result_free(&result);
    result = run_expecting(0, "fpack", "--pairs", "gopro", source, test_path(folder, "pairs"), NULL);
    assert_contains_not(result.err, "use --pairs");
    run_result_free(&result);
    /* Names like these are no folders of sides. */
    source_jpeg(test_path(folder, "classes/deblur/x.jpg"), 20, 10, 3, 1);
    source_jpeg(test_path(folder, "classes/unsharp/x.jpg"), 20, 10, 3, 2);
    source_jpeg(test_path(folder, "classes/blur.jpg/sharp.jpg"), 20, 10, 3, 3);
    result = run_expecting(0, "fpack", test_path(folder, "classes"), test_path(folder, "other"), NULL);
    assert_contains_not(result.err, "use --pairs");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_pairs_packed_as_classes_are_warned_about, folder)
{
    const char *source = test_path(folder, "src"), *packed = test_path(folder, "shards");
    make_pair(folder, "src/blurry/seq01/1.jpg", "src/sharp/seq01/1.jpg", 40, 30);
    make_pair(folder, "src/blurry/seq01/2.jpg", "src/sharp/seq01/2.jpeg", 40, 30);
    source_jpeg(test_path(folder, "src/sharp/seq02/1.jpg"), 40, 30, 3, 1);
    RunResult result = run_expecting(0, "fpack", source, packed, NULL);
    assert_contains(result.err, "the classes 'blurry' and 'sharp' hold files of the same names; for image "
                                "pairs use --pairs blurry:sharp");
    run_result_free(&result);
    source_jpeg(test_path(folder, "src/sharp/seq02/2.jpg"), 40, 30, 3, 1); /* two of four: not most */
    result = run_expecting(0, "fpack", "--force", source, packed, NULL);
    assert_contains_not(result.err, "--pairs");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_split_of_pairs, folder)
{
    const char *packed = test_path(folder, "shards");
    for (int i = 0; i < 10; i++)
        make_pair(folder, test_path(folder, "src/a/%d.jpg", i) + strlen(folder->path) + 1,
                  test_path(folder, "src/b/%d.jpg", i) + strlen(folder->path) + 1, 20, 20);
    run_ok("fpack", "--pairs", "a:b", "--split", "0.3", test_path(folder, "src"), packed, NULL);
    assert_int_equal(packed_count(packed, "train"), 7);
    assert_int_equal(packed_count(packed, "val"), 3);
}

/* Which of two words is a side would be a guess; that they are sides is plain. */
TEST_IN_FOLDER(test_a_flat_folder_of_numbered_pairs_is_explained, folder)
{
    static const char *const names[][4] = {
        {"1_blur.jpg", "1_sharp.jpg", "2_blur.jpg", "2_sharp.jpg"},
        {"1.jpg", "1_gt.jpg", "2.jpg", "2_gt.jpg"},
        {"blur_1.jpg", "sharp_1.jpg", "blur_2.jpg", "sharp_2.jpg"},
    };
    static const char *const hints[] = {"/train --pair-suffix A=blur:B=sharp packs them",
                                        "/train --pair-suffix B=_gt packs them", "with --pairs A:B"};
    for (size_t i = 0; i < 3; i++) {
        const char *source = test_path(folder, "flat%zu", i);
        for (size_t n = 0; n < 4; n++)
            source_jpeg(test_path(folder, "flat%zu/train/%s", i, names[i][n]), 20, 10, 3, (uint32_t)n);
        RunResult result = run_expecting(1, "fpack", source, test_path(folder, "out"), NULL);
        assert_contains(result.err, test_path(folder, "'train/%s' and 'train/%s' look like a pair",
                                              names[i][0], names[i][1]) +
                                        strlen(folder->path) + 1);
        assert_contains(result.err, hints[i]);
        run_result_free(&result);
        result = run_expecting(1, "fpack", "--pairs", "blur:sharp", source, test_path(folder, "out"), NULL);
        assert_contains(result.err, "look like a pair");
        run_result_free(&result);
    }
    /* Numbers alone are no sides. */
    for (uint32_t n = 0; n < 4; n++)
        source_jpeg(test_path(folder, "plain/%04u.jpg", n), 20, 10, 3, n);
    RunResult result = run_expecting(1, "fpack", test_path(folder, "plain"), test_path(folder, "out"), NULL);
    assert_contains_not(result.err, "look like a pair");
    run_result_free(&result);
}

/* LMDB takes keys of 511 bytes: a pair that lies too deep is left out, and the others are packed. */
TEST_IN_FOLDER(test_a_key_too_long_for_the_container_is_left_out, folder)
{
    char deep[701];
    for (size_t i = 0; i < sizeof deep; i++)
        deep[i] = i % 100 == 99 ? '/' : 'd';
    deep[600] = '\0';
    for (uint32_t side = 0; side < 2; side++) {
        source_jpeg(test_path(folder, "pairs/%s/a.jpg", side ? "gt" : "lq"), 40, 30, 3, side);
        source_jpeg(test_path(folder, "pairs/%s/%sx.jpg", side ? "gt" : "lq", deep), 40, 30, 3, side);
    }
    const char *packed = test_path(folder, "packed");
    RunResult result = run_expecting(1, "fpack", "--pairs", "basicsr", "--layout", "basicsr",
                                     test_path(folder, "pairs"), packed, NULL);
    assert_contains(result.err, "x.jpg: key of 601 bytes; an LMDB takes 511; left out");
    run_result_free(&result);
    assert_int_equal(packed_count(packed, "train"), 1);
    run_ok("fverify", packed, NULL);
    run_ok("fpack", "--force", "--pairs", "basicsr", "--format", "tar", test_path(folder, "pairs"), packed,
           NULL);
    assert_int_equal(packed_count(packed, "train"), 2);
}
