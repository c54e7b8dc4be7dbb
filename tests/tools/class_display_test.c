/* --class-names, --set-class-names and $FSHARD_CLASS_NAMES: what people call classes, beside their ids. */
#include <stdlib.h>
#include <string.h>

#include "tests/tools/sources.h"

static const char words[] = "n01440764\ttench, Tinca tinca\nn02002724\tblack stork\nn00001740\tentity\n";

static const char *make_sources(TestFolder *folder)
{
    source_class(test_path(folder, "photos"), "n01440764", 3);
    source_class(test_path(folder, "photos"), "n02002724", 2);
    test_file_write_text(test_path(folder, "words.txt"), words);
    return test_path(folder, "photos");
}

/* Asserts the display names in the dataset's manifest, a comma between them; "none": it has none. */
static void assert_manifest_names(const char *packed, const char *expected)
{
    char text[256] = "";
    FshDataset *dataset = packed_open(packed);
    const FshManifest *manifest = fsh_manifest(dataset);
    for (size_t i = 0; manifest->class_display_names && i < manifest->class_count; i++) {
        (void)strncat(text, i ? "|" : "", sizeof text - strlen(text) - 1);
        (void)strncat(text, manifest->class_display_names[i], sizeof text - strlen(text) - 1);
    }
    assert_string_equal(manifest->class_display_names ? text : "none", expected);
    fsh_close(&dataset);
}

TEST_IN_FOLDER(test_names_are_stored_beside_ids_and_shown, folder)
{
    const char *photos = make_sources(folder), *packed = test_path(folder, "packed");
    run_ok("fpack", "--class-names", test_path(folder, "words.txt"), photos, packed, NULL);
    assert_manifest_names(packed, "tench, Tinca tinca|black stork");
    RunResult result = run_expecting(0, "fverify", "-v", packed, NULL);
    assert_contains(result.out, "  tench, Tinca tinca (n01440764) ");
    assert_contains(result.out, "  black stork (n02002724) ");
    run_result_free(&result);
    result = run_expecting(0, "fverify", "--json", packed, NULL);
    json_t *json = json_of(result.out);
    const json_t *dataset = json_array_get(json_object_get(json, "datasets"), 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(dataset, "class_names"), "n02002724")),
        "black stork");
    json_decref(json);
    run_result_free(&result);
    result = run_expecting(0, "fverify", "--list", packed, NULL);
    assert_contains(result.out, "\tn01440764\t"); /* scripts find ids there, as before */
    assert_contains_not(result.out, "tench");
    run_result_free(&result);
    run_ok("fverify", "--html", test_path(folder, "page.html"), packed, NULL);
    char *page = test_file_read(test_path(folder, "page.html"), NULL);
    assert_contains(page, "black stork (n02002724)");
    free(page);

    /* They stay with their classes when the dataset is packed again, with fewer classes or in parts. */
    test_file_write_text(test_path(folder, "chosen"), "n02002724\n");
    run_ok("fpack", "--classes", test_path(folder, "chosen"), packed, test_path(folder, "fewer"), NULL);
    assert_manifest_names(test_path(folder, "fewer"), "black stork");
    run_ok("fpack", "--part", "1/1", packed, test_path(folder, "parts"), NULL);
    run_ok("fpack", "--merge", test_path(folder, "parts"), NULL);
    assert_manifest_names(test_path(folder, "parts"), "tench, Tinca tinca|black stork");
}

TEST_IN_FOLDER(test_a_finished_dataset_gets_names_and_keeps_its_id, folder)
{
    const char *photos = make_sources(folder), *packed = test_path(folder, "packed");
    run_ok("fpack", photos, packed, NULL);
    assert_manifest_names(packed, "none");
    char *before = packed_id(packed);
    RunResult result =
        run_expecting(0, "fverify", "--set-class-names", test_path(folder, "words.txt"), packed, NULL);
    assert_contains(result.out, ": 2 of 2 classes have names\n");
    run_result_free(&result);
    assert_manifest_names(packed, "tench, Tinca tinca|black stork");
    char *after = packed_id(packed);
    assert_string_equal(before, after);
    free(before);
    free(after);
    run_ok("fverify", "--decode", packed, NULL);

    /* Others take their place; what is not told is said. A file that tells nothing changes nothing. */
    test_file_write_text(test_path(folder, "one"), "n02002724 stork\n");
    result = run_expecting(1, "fverify", "--set-class-names", test_path(folder, "one"),
                           test_path(folder, "packed/dataset.json"), NULL);
    assert_contains(result.out, ": 1 of 2 classes have names; none has, for example, n01440764\n");
    run_result_free(&result);
    assert_manifest_names(packed, "|stork");
    test_file_write_text(test_path(folder, "none"), "cat\n");
    result = run_expecting(1, "fverify", "--set-class-names", test_path(folder, "none"), packed, NULL);
    assert_contains(result.err, "names none of the classes (n01440764, n02002724)");
    run_result_free(&result);
    assert_manifest_names(packed, "|stork");

    source_jpeg(test_path(folder, "pairs/a/1.jpg"), 20, 15, 3, 1);
    source_jpeg(test_path(folder, "pairs/b/1.jpg"), 20, 15, 3, 2);
    run_ok("fpack", "--pairs", "a:b", test_path(folder, "pairs"), test_path(folder, "p"), NULL);
    result = run_expecting(1, "fverify", "--set-class-names", test_path(folder, "words.txt"),
                           test_path(folder, "p"), NULL);
    assert_contains(result.err, "holds pairs, which have no classes");
    run_result_free(&result);
    result = run_expecting(2, "fpack", "--pairs", "a:b", "--class-names", test_path(folder, "words.txt"),
                           test_path(folder, "pairs"), test_path(folder, "q"), NULL);
    assert_contains(result.err, "pairs have no classes");
    run_result_free(&result);
}

static RunResult pack_with(const char *variable, const char *photos, const char *packed)
{
    const char *const environment[] = {variable, NULL};
    return run_program(&(RunOptions){.environment = environment}, "fpack", photos, packed, NULL);
}

TEST_IN_FOLDER(test_the_environment_names_a_file_once_for_all, folder)
{
    const char *photos = make_sources(folder);
    const char *variable =
        test_path(folder, "FSHARD_CLASS_NAMES=%s/words.txt", folder->path) + strlen(folder->path) + 1;
    RunResult result = pack_with(variable, photos, test_path(folder, "known"));
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_manifest_names(test_path(folder, "known"), "tench, Tinca tinca|black stork");
    /* Other classes, even as many as lines, have nothing to do with it. */
    source_class(test_path(folder, "pets"), "cat", 1);
    source_class(test_path(folder, "pets"), "dog", 1);
    source_class(test_path(folder, "pets"), "emu", 1);
    result = pack_with(variable, test_path(folder, "pets"), test_path(folder, "others"));
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
    assert_manifest_names(test_path(folder, "others"), "none");
    result = pack_with("FSHARD_CLASS_NAMES=/nowhere", photos, test_path(folder, "x"));
    assert_int_equal(result.exit_status, 1);
    assert_contains(result.err, "$FSHARD_CLASS_NAMES: /nowhere: ");
    run_result_free(&result);
}

static RunResult verify_with(const char *variable, const char *page, const char *packed)
{
    const char *const environment[] = {variable, NULL};
    return run_program(&(RunOptions){.environment = environment}, "fverify", "--force", "--html", page,
                       packed, NULL);
}

TEST_IN_FOLDER(test_fverify_shows_the_names_of_the_environment, folder)
{
    const char *photos = make_sources(folder), *packed = test_path(folder, "packed");
    const char *page = test_path(folder, "page.html");
    const char *variable =
        test_path(folder, "FSHARD_CLASS_NAMES=%s/words.txt", folder->path) + strlen(folder->path) + 1;
    run_ok("fpack", photos, packed, NULL);
    for (int alone = 0; alone < 2; alone++) {
        RunResult result = verify_with(
            variable, page, alone ? test_path(folder, "packed/train-00000-of-00001.fshard") : packed);
        assert_int_equal(result.exit_status, 0);
        assert_contains(result.out, "  black stork (n02002724) ");
        run_result_free(&result);
        char *text = test_file_read(page, NULL);
        const char *first = strstr(text, "black stork (n02002724)");
        assert_non_null(first);
        assert_contains(first + 1, "<figcaption><b>black stork (n02002724)");
        free(text);
    }
    assert_manifest_names(packed, "none");
    for (int sheet = 0; sheet < 2; sheet++) {
        static const char *const environment[] = {"FSHARD_CLASS_NAMES=/nowhere", NULL};
        RunResult result =
            run_program(&(RunOptions){.environment = environment}, "fverify", sheet ? "--sheet" : "--html",
                        test_path(folder, sheet ? "x.jpg" : "x.html"), packed, NULL);
        assert_int_equal(result.exit_status, 1);
        assert_contains(result.err, "$FSHARD_CLASS_NAMES: /nowhere: ");
        run_result_free(&result);
    }
    /* Its own names are not looked up. */
    run_ok("fverify", "--set-class-names", test_path(folder, "words.txt"), packed, NULL);
    RunResult result = verify_with("FSHARD_CLASS_NAMES=/nowhere", page, packed);
    assert_int_equal(result.exit_status, 0);
    run_result_free(&result);
}

/* Writes over the first place of text in the manifest; both are of one length. */
static void change_manifest(const char *path, const char *text, const char *other)
{
    size_t bytes = 0;
    char *manifest = test_file_read(path, &bytes), *at = strstr(manifest, text);
    assert_non_null(at);
    for (size_t i = 0; other[i]; i++)
        at[i] = other[i];
    test_file_write(path, manifest, bytes);
    free(manifest);
}

/* Repairs the manifest and expects to hear, or not, that names of classes are gone, and what gives them
 * again. */
static void run_repair(const char *packed, bool names_lost)
{
    RunResult result = run_expecting(0, "fpack", "--repair-manifest", packed, NULL);
    if (names_lost)
        assert_contains(result.err, "are gone; fverify --set-class-names FILE ");
    else
        assert_contains_not(result.err, "--set-class-names");
    run_result_free(&result);
}

TEST_IN_FOLDER(test_a_repaired_manifest_keeps_names_that_nobody_changed, folder)
{
    const char *photos = make_sources(folder), *packed = test_path(folder, "packed");
    const char *path = test_path(folder, "packed/dataset.json");
    run_ok("fpack", "--class-names", test_path(folder, "words.txt"), photos, packed, NULL);
    change_manifest(path, "\"kind\": \"classes\"", "\"kind\": \"clashes\"");
    run_repair(packed, false);
    assert_manifest_names(packed, "tench, Tinca tinca|black stork");
    change_manifest(path, "black stork", "white stork");
    run_forget(run_expecting(1, "fverify", "--quick", packed, NULL));
    run_repair(packed, true);
    assert_manifest_names(packed, "none");
    run_repair(packed, false); /* it has none to lose */
    assert_int_equal(remove(path), 0);
    RunResult result = run_expecting(1, "fverify", packed, NULL);
    assert_contains(result.out, "fpack --repair-manifest makes it again");
    run_result_free(&result);
    run_repair(packed, true);
}

/* In the tables, the page and the JSON of a training; weights keep the ids. */
TEST_IN_FOLDER(test_training_shows_names, folder)
{
    (void)make_sources(folder);
    for (int val = 0; val < 2; val++) {
        const char *split = test_path(folder, val ? "set/val" : "set/train");
        source_class(split, "n01440764", 3);
        source_class(split, "n02002724", 3);
    }
    const char *packed = test_path(folder, "packed"), *run = test_path(folder, "run");
    run_ok("fpack", "--class-names", test_path(folder, "words.txt"), test_path(folder, "set"), packed, NULL);
    run_ok("ftrain", "--device", "cpu", "--model", "toynet", "--epochs", "1", "--train-crop-size", "28",
           packed, run, NULL);
    char *classes = test_file_read(test_path(folder, "run/per_class.csv"), NULL);
    assert_contains(classes, "\n0,\"tench, Tinca tinca (n01440764)\",3,");
    assert_contains(classes, "\n1,black stork (n02002724),3,");
    free(classes);
    char *page = test_file_read(test_path(folder, "run/report.html"), NULL);
    assert_contains(page, "black stork (n02002724)");
    free(page);
    const char *weights = test_path(folder, "run/last.safetensors"), *table = test_path(folder, "p.csv");
    run_ok("ftrain", "--device", "cpu", "--weights", weights, "--export", table, packed, NULL);
    char *predictions = test_file_read(table, NULL);
    assert_contains(predictions, "n02002724/0,black stork (n02002724),");
    free(predictions);
    char *bytes = test_file_read(weights, NULL); /* a NUL ends what is compared: the header comes first */
    assert_contains_not(bytes + 8, "stork");
    free(bytes);
    RunResult result = run_expecting(0, "ftrain", "--device", "cpu", "--evaluate", "--json", "--weights",
                                     weights, packed, NULL);
    assert_contains(result.out, "\"black stork (n02002724)\"");
    run_result_free(&result);
}
