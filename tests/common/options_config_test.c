/* Options from a file: TOML and JSON read the same, the command line wins, and what is printed reads back. */
#include <stdio.h>
#include <string.h>

#include "common/options_config.h"
#include "tests/support/support.h"

typedef struct Settings {
    int64_t size;
    double rate;
    bool flip, force, size_given;
    const char *model, *config, *preset;
    int mode;
    uint64_t bytes;
    OptionList list;
} Settings;

enum { MODE_FAST, MODE_SLOW };
static const char *const modes[] = {"fast", "slow", NULL};

typedef struct Fixture {
    Settings settings;
    Option rows[16];
    OptionTable table;
    OptionArguments arguments;
    FshError error;
} Fixture;

/* The one set of values, "steady". */
static FshStatus find_preset(const char *name, json_t **preset_ret, FshError *error)
{
    if (strcmp(name, "steady") != 0)
        return fsh_error_set(error, FSH_ERR_USAGE, "there is no '%s'", name);
    *preset_ret = json_pack("{s:s, s:{s:i, s:f, s:s, s:s}}", "name", "steady", "options", "size", 30, "lr",
                            0.125, "mode", "slow", "model", "of the set");
    return FSH_OK;
}

static void begin(Fixture *f)
{
    *f = (Fixture){.settings = {.size = 7, .rate = 0.5, .flip = true, .mode = MODE_FAST}};
    Settings *s = &f->settings;
    const Option rows[] = {
        {.name = "size",
         .kind = OPTION_INTEGER,
         .value = &s->size,
         .argument = "N",
         .help = "edge",
         .minimum = 1,
         .maximum = 100,
         .given = &s->size_given,
         .group = "Images"},
        {.name = "learning-rate",
         .kind = OPTION_REAL,
         .value = &s->rate,
         .argument = "X",
         .help = "rate",
         .alias = "lr"},
        {.name = "flip", .kind = OPTION_FLAG, .value = &s->flip, .help = "mirror"},
        {.name = "force",
         .kind = OPTION_FLAG,
         .value = &s->force,
         .help = "replace",
         .alias = "overwrite",
         .marks = OPTION_NOT_IN_FILE,
         .group = "Network"},
        {.name = "model", .kind = OPTION_TEXT, .value = &s->model, .argument = "NAME", .help = "network"},
        {.name = "mode",
         .kind = OPTION_CHOICE,
         .value = &s->mode,
         .argument = "HOW",
         .help = "speed",
         .choices = modes},
        {.name = "bytes", .kind = OPTION_SIZE, .value = &s->bytes, .argument = "SIZE", .help = "bytes"},
        {.name = "list", .kind = OPTION_LIST, .value = &s->list, .argument = "DIR", .help = "folders"},
        {.name = "config",
         .kind = OPTION_TEXT,
         .value = &s->config,
         .argument = "FILE",
         .help = "values",
         .marks = OPTION_NOT_IN_FILE},
        {.name = "preset",
         .kind = OPTION_TEXT,
         .value = &s->preset,
         .argument = "NAME",
         .help = "a set of values",
         .marks = OPTION_NOT_IN_FILE},
        {0}};
    memcpy(f->rows, rows, sizeof rows);
    f->table = (OptionTable){.program = "test",
                             .summary = "",
                             .usage = "",
                             .options = f->rows,
                             .config = "config",
                             .preset = "preset",
                             .find_preset = find_preset};
}

/* Parses `--config FILE`, a file that holds text, with up to two more words. */
static FshStatus parse(Fixture *f, TestFolder *folder, const char *text, const char *word, const char *second)
{
    char path[4096], program[] = "test", option[] = "--config", first[64] = "", next[64] = "";
    (void)snprintf(path, sizeof path, "%s", test_path(folder, "values"));
    test_file_write_text(path, text);
    (void)snprintf(first, sizeof first, "%s", word ? word : "");
    (void)snprintf(next, sizeof next, "%s", second ? second : "");
    char *argv[] = {program, option, path, word ? first : NULL, second ? next : NULL, NULL};
    begin(f);
    return options_parse(&f->table, 3 + !!word + !!second, argv, &f->arguments, &f->error);
}

TEST_IN_FOLDER(test_toml_and_json_read_the_same, folder)
{
    static const char *const texts[] = {
        "# a run\nsize = 4_2 # edge\r\nlearning_rate=1e-3\nflip = false\n\"model\" = \"a \\\"b\\\"\"\nmode = "
        "'slow'\nbytes = 4096",
        " {\"size\": 42, \"lr\": 0.001, \"flip\": false, \"model\": \"a \\\"b\\\"\", \"mode\": \"slow\", "
        "\"bytes\": \"4K\"}",
        "{\"version\": 3, \"options\": {\"size\": 42, \"learning-rate\": 1e-3, \"flip\": false, \"model\": "
        "\"a \\\"b\\\"\", "
        "\"mode\": \"slow\", \"bytes\": 4096}}",
        "\xEF\xBB\xBF"
        "size = 42\nlr = 0.001\nflip = false\nmodel = 'a \"b\"'\nmode = 'slow'\nbytes = '4K'",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Fixture f;
        assert_int_equal(parse(&f, folder, texts[i], NULL, NULL), FSH_OK);
        assert_int_equal(f.settings.size, 42);
        assert_true(f.settings.size_given);
        assert_true(f.settings.rate == 1e-3);
        assert_false(f.settings.flip);
        assert_string_equal(f.settings.model, "a \"b\"");
        assert_int_equal(f.settings.mode, MODE_SLOW);
        assert_int_equal(f.settings.bytes, 4096);
        options_arguments_free(&f.arguments);
    }
}

TEST_IN_FOLDER(test_the_command_line_wins, folder)
{
    Fixture f;
    assert_int_equal(parse(&f, folder, "size = 42\nflip = false\n", "--flip", "--size=9"), FSH_OK);
    assert_int_equal(f.settings.size, 9);
    assert_true(f.settings.flip);
    options_arguments_free(&f.arguments);
}

TEST_IN_FOLDER(test_lists_are_read_and_printed, folder)
{
    static const char *const texts[] = {"list = [ \"a/\", 'b c' ] # two\n", "{\"list\": [\"a/\", \"b c\"]}"};
    char printed[4096] = "";
    for (size_t i = 0; i < 3; i++) {
        Fixture f;
        assert_int_equal(parse(&f, folder, i < 2 ? texts[i] : printed, NULL, NULL), FSH_OK);
        assert_int_equal(f.settings.list.count, 2);
        assert_string_equal(f.settings.list.items[0], "a/");
        assert_string_equal(f.settings.list.items[1], "b c");
        FILE *file = fmemopen(printed, sizeof printed, "w");
        assert_non_null(file);
        options_config_print(&f.table, OPTION_NOT_IN_FILE, NULL, file);
        assert_int_equal(fclose(file), 0);
        option_list_free(&f.settings.list);
        options_arguments_free(&f.arguments);
    }
    /* What the command line has replaces it. */
    Fixture f;
    assert_int_equal(parse(&f, folder, texts[0], "--list=c", "--list=d"), FSH_OK);
    assert_int_equal(f.settings.list.count, 2);
    assert_string_equal(f.settings.list.items[0], "c");
    option_list_free(&f.settings.list);
    options_arguments_free(&f.arguments);
}

TEST_IN_FOLDER(test_null_leaves_an_option, folder)
{
    Fixture f;
    assert_int_equal(parse(&f, folder, "{\"model\": null, \"size\": null}", NULL, NULL), FSH_OK);
    assert_null(f.settings.model);
    assert_int_equal(f.settings.size, 7);
    assert_false(f.settings.size_given);
    options_arguments_free(&f.arguments);
}

TEST_IN_FOLDER(test_what_is_wrong_is_told_by_line, folder)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"model = 5\n", "values: --model: is a text; write it in quotes: model = \"NAME\""},
        {"size = 4\n[table]\n", "values:2: tables"},
        {"size 4\n", "values:1: expected \"=\""},
        {"size =\n", "values:1: the value is missing"},
        {"size = 4 5\n", "values:1: there is something behind"},
        {"size = 4\nsize = 5\n", "values:2: this name stands above"},
        {"model = \"open\n", "values:1: a text has no closing quote"},
        {"model = \"a\\x\"\n", "values:1: after a backslash"},
        {"size = 1979-05-27\n", "values:1: the value is neither"},
        {"learning-rate = nan\n", "values:1: the value is neither"},
        {"learning-rate = 10%\n", "values:1: a percentage goes in quotes"},
        {"learning-rate = %\n", "values:1: the value is neither"},
        {"size = _4\n", "values:1: the value is neither"},
        {"= 4\n", "values:1: expected: name = value"},
        {"{\"size\": 4,}", "values:1: "},
        {"{\"size\": 4, \"size\": 5}", "duplicate"},
        {"{\"size\": [4]}", "no value of an option"},
        {"sise = 4\n", "did you mean --size?"},
        {"size = 400\n", "--size: '400' is not a whole number from 1 to 100"},
        {"size = 4.5\n", "--size: '4.5' is not a whole number"},
        {"flip = 3\n", "--flip: '3' is neither true nor false"},
        {"force = true\n", "--force is for the command line alone"},
        {"overwrite = true\n", "--overwrite is for the command line alone"},
        {"learning_rate = 1\nlr = 2\n", "learning_rate and lr are the same option"},
        {"{\"learning-rate\": 1, \"learning_rate\": 2}", "are the same option"},
        {"config = \"x\"\n", "--config is for the command line alone"},
        {"model = \"\"\n", "--model: the value is empty"},
        {"list = [\"a\", 5]\n", "values:1: a list is of texts"},
        {"list = []\n", "values:1: a list is of texts"},
        {"list = [\"a\"\n", "values:1: a list has no closing bracket"},
        {"list = [\"a\"] 5\n", "values:1: there is something behind"},
        {"list = [\"\"]\n", "--list: the value is empty"},
        {"list = 5\n", "--list: is a text; write it in quotes"},
        {"{\"list\": [[\"a\"]]}", "list: a list in a list"},
        {"model = [\"a\"]\n", "--model: is a text; write it in quotes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Fixture f;
        assert_int_equal(parse(&f, folder, cases[i].text, NULL, NULL), FSH_ERR_USAGE);
        if (!strstr(f.error.message, cases[i].message))
            fail_msg("'%s' does not say '%s'", f.error.message, cases[i].message);
        assert_non_null(strstr(f.error.message, "values"));
    }
}

TEST_IN_FOLDER(test_a_file_that_is_not_there_is_told, folder)
{
    Fixture f;
    char program[] = "test", option[] = "--config=/nonexistent/values";
    char *argv[] = {program, option, NULL};
    begin(&f);
    assert_int_equal(options_parse(&f.table, 2, argv, &f.arguments, &f.error), FSH_ERR_NOT_FOUND);
    assert_non_null(strstr(f.error.message, "/nonexistent/values"));
}

TEST_IN_FOLDER(test_what_is_printed_reads_back, folder)
{
    char text[4096] = "";
    Fixture f, again;
    begin(&f);
    f.settings.model = "weiß \"1\"\\";
    f.settings.rate = 1.0 / 3;
    f.settings.flip = false;
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    options_config_print(&f.table, OPTION_NOT_IN_FILE, NULL, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, "\n# Network\n# network\nmodel = "));
    assert_null(strstr(text, "force"));
    assert_int_equal(parse(&again, folder, text, NULL, NULL), FSH_OK);
    assert_string_equal(again.settings.model, f.settings.model);
    assert_true(again.settings.rate - f.settings.rate < 1e-15 &&
                f.settings.rate - again.settings.rate < 1e-15);
    assert_false(again.settings.flip);
    assert_int_equal(again.settings.bytes, 0);
    options_arguments_free(&again.arguments);
}

/* size says whether it was given, the others do not. */
TEST_IN_FOLDER(test_what_was_left_open_stays_open, folder)
{
    char text[4096] = "";
    Fixture f, again;
    assert_int_equal(parse(&f, folder, "rate = 1", NULL, NULL), FSH_ERR_USAGE);
    options_arguments_free(&f.arguments);
    begin(&f);
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    options_config_print(&f.table, OPTION_NOT_IN_FILE, NULL, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, "\n# size = 7\n"));
    assert_int_equal(parse(&again, folder, text, NULL, NULL), FSH_OK);
    assert_false(again.settings.size_given);
    options_arguments_free(&again.arguments);

    f.rows[0].marks = OPTION_VARIES; /* 7 may not be what counts */
    file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    options_config_print(&f.table, OPTION_NOT_IN_FILE, NULL, file);
    options_print_help(&f.table, file);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, "\n# size =\n"));
    assert_null(strstr(text, "[default: 7]"));
    assert_non_null(strstr(text, "[default: 0.5]"));

    json_t *given = options_config_given(&f.table, OPTION_NOT_IN_FILE);
    assert_int_equal(json_array_size(given), 0);
    json_decref(given);
    f.settings.size_given = true;
    given = options_config_given(&f.table, OPTION_NOT_IN_FILE);
    assert_int_equal(json_array_size(given), 1);
    assert_string_equal(json_string_value(json_array_get(given, 0)), "size");
    json_decref(given);

    assert_int_equal(parse(&f, folder,
                           "{\"options\": {\"size\": 42, \"learning_rate\": 0.25}, \"given\": "
                           "[\"learning_rate\"]}",
                           NULL, NULL),
                     FSH_OK);
    assert_int_equal(f.settings.size, 7);
    assert_false(f.settings.size_given);
    assert_true(f.settings.rate == 0.25);
    options_arguments_free(&f.arguments);
}

/* ---- sets of values ---- */

/* Asserts which of the set's values are still in use: their names, joined. */
static void assert_in_use(const Fixture *f, const char *names)
{
    char text[256] = "";
    size_t length = 0;
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(f->arguments.preset, "options"), name, value)
    {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s", length ? " " : "", name);
        assert_in_range(length, 1, sizeof text - 1);
    }
    assert_string_equal(text, names);
}

TEST_IN_FOLDER(test_a_file_wins_over_a_set_and_the_command_line_over_both, folder)
{
    Fixture f;
    char program[] = "test", preset[] = "--preset=steady", size[] = "--size=9", path[4096];
    char *argv[] = {program, preset, size, path, NULL};
    (void)snprintf(path, sizeof path, "--config=%s", test_path(folder, "values"));
    test_file_write_text(test_path(folder, "values"), "mode = \"fast\"\nsize = 8\n");
    begin(&f);
    assert_int_equal(options_parse(&f.table, 4, argv, &f.arguments, &f.error), FSH_OK);
    assert_int_equal(f.settings.size, 9);
    assert_int_equal(f.settings.mode, MODE_FAST);
    assert_true(f.settings.rate == 0.125);
    assert_string_equal(f.settings.model, "of the set");
    assert_in_use(&f, "learning-rate model");
    options_arguments_free(&f.arguments);
}

TEST_IN_FOLDER(test_a_set_that_is_not_there_is_told, folder)
{
    Fixture f;
    char program[] = "test", preset[] = "--preset=wild";
    char *argv[] = {program, preset, NULL};
    (void)folder;
    begin(&f);
    assert_int_equal(options_parse(&f.table, 2, argv, &f.arguments, &f.error), FSH_ERR_USAGE);
    assert_string_equal(f.error.message, "there is no 'wild'");
}

/* A file that says what it is holds a set; an args.json of a run says which of its options came from one. */
TEST_IN_FOLDER(test_a_file_can_hold_a_set, folder)
{
    char text[4096] = "";
    Fixture f, again;
    assert_int_equal(parse(&f, folder,
                           "size = 8\nmode = 'slow'\n\n[recipe] # what it is\nsource = 'a paper'\n",
                           "--size=9", NULL),
                     FSH_OK);
    assert_in_use(&f, "mode");
    assert_string_equal(json_string_value(json_object_get(f.arguments.preset, "source")), "a paper");
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    options_config_print(&f.table, OPTION_NOT_IN_FILE, f.arguments.preset, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(parse(&again, folder, text, NULL, NULL), FSH_OK);
    assert_string_equal(json_string_value(json_object_get(again.arguments.preset, "source")), "a paper");
    assert_int_equal(again.settings.size, 9);
    options_arguments_free(&again.arguments);
    options_arguments_free(&f.arguments);

    assert_int_equal(parse(&f, folder,
                           "{\"options\": {\"size\": 8, \"learning_rate\": 0.25, \"mode\": \"slow\"}, "
                           "\"given\": [\"size\", \"learning_rate\"], "
                           "\"recipe\": {\"name\": \"steady\", \"gives\": [\"learning_rate\"]}}",
                           NULL, NULL),
                     FSH_OK);
    assert_int_equal(f.settings.size, 8);
    assert_true(f.settings.rate == 0.25);
    assert_int_equal(f.settings.mode, MODE_FAST);
    assert_in_use(&f, "learning-rate");
    options_arguments_free(&f.arguments);
}
