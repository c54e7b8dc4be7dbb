#include "common/options.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

static const OptionForeign filter_hints[] = {
    {"hamming", "bicubic is nearest"}, {"", "take box for speed"}, {0}};
static const OptionForeign answers[] = {{"resume", "the same command goes on"}, {0}};
static const OptionForeign foreign[] = {{"workers", "seed"}, {"num-workers", "seed"}, {0}};
static const char *const filters[] = {"box", "bicubic", "lanczos3", NULL};

typedef struct Settings {
    int64_t max_size, seed;
    uint64_t shard_size;
    double rate;
    bool force, verbose, flip, max_size_given;
    const char *source;
    int filter;
    OptionList pairs;
} Settings;

static const Settings defaults = {
    .max_size = 256, .shard_size = UINT64_C(64) << 20, .rate = 0.1, .flip = true, .filter = 2};

/* A table over one Settings, and what options_parse made of a line. */
typedef struct Fixture {
    Settings settings;
    Option options[16];
    OptionTable table;
    OptionArguments arguments;
    FshError error;
    char words[512], *argv[32];
} Fixture;

static void set_up(Fixture *fixture)
{
    *fixture = (Fixture){.settings = defaults};
    Settings *s = &fixture->settings;
    const Option options[] = {
        {.name = "max-size",
         .kind = OPTION_INTEGER,
         .value = &s->max_size,
         .argument = "N",
         .help = "short edge at most N pixels",
         .minimum = 1,
         .maximum = 65500,
         .given = &s->max_size_given},
        {.name = "seed",
         .letter = 's',
         .kind = OPTION_INTEGER,
         .value = &s->seed,
         .argument = "N",
         .help = "any"},
        {.name = "shard-size",
         .kind = OPTION_SIZE,
         .value = &s->shard_size,
         .argument = "BYTES",
         .help = "bytes in a shard",
         .minimum = 1024},
        {.name = "rate",
         .kind = OPTION_REAL,
         .value = &s->rate,
         .argument = "X",
         .help = "learning rate",
         .maximum = 10,
         .group = "Training"},
        {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &s->force, .help = "overwrite"},
        {.name = "verbose", .letter = 'v', .kind = OPTION_FLAG, .value = &s->verbose, .help = "print more"},
        {.name = "flip", .kind = OPTION_FLAG, .value = &s->flip, .help = "mirror half of the images"},
        {.name = "filter",
         .kind = OPTION_CHOICE,
         .value = &s->filter,
         .argument = "NAME",
         .choices = filters,
         .hints = filter_hints,
         .help = "what every pixel of the result is made from, and this text is long enough to need a second "
                 "line"},
        {.name = "source",
         .kind = OPTION_TEXT,
         .value = &s->source,
         .argument = "DIR",
         .alias = "src",
         .help = "where the images are"},
        {.name = "pairs",
         .letter = 'p',
         .kind = OPTION_LIST,
         .value = &s->pairs,
         .argument = "A:B",
         .help = "two folders"},
    };
    memcpy(fixture->options, options, sizeof options);
    fixture->table = (OptionTable){.program = "fresize",
                                   .summary = "Makes images smaller. Max size is the short edge.",
                                   .usage = "[OPTIONS] SRC DST",
                                   .options = fixture->options,
                                   .foreign = foreign,
                                   .answers = answers,
                                   .examples = "  fresize a b\n",
                                   .arguments_max = 2};
}

static void tear_down(Fixture *fixture)
{
    options_arguments_free(&fixture->arguments);
    option_list_free(&fixture->settings.pairs);
}

/* Parses the words of the line, parted by single blanks; '~' stands for an empty word. */
static FshStatus parse_into(Fixture *fixture, const char *line)
{
    int count = 0;
    (void)snprintf(fixture->words, sizeof fixture->words, "%s", line);
    fixture->argv[count++] = (char *)"fresize";
    for (char *word = strtok(fixture->words, " "); word; word = strtok(NULL, " "))
        fixture->argv[count++] = strcmp(word, "~") == 0 ? (char *)"" : word;
    fixture->argv[count] = NULL;
    return options_parse(&fixture->table, count, fixture->argv, &fixture->arguments, &fixture->error);
}

static void parse(Fixture *fixture, const char *line)
{
    set_up(fixture);
    FshStatus status = parse_into(fixture, line);
    assert_ok(status, &fixture->error);
}

static void assert_refused(const char *line, const char *message)
{
    Fixture fixture;
    set_up(&fixture);
    assert_int_equal(parse_into(&fixture, line), FSH_ERR_USAGE);
    assert_string_equal(fixture.error.message, message);
    assert_null(fixture.arguments.items);
    tear_down(&fixture);
}

TEST(test_auto_is_a_choice_before_the_others_where_the_option_has_it)
{
    int filter = OPTION_AUTO, index = 7;
    FshError error = {0};
    const Option options[] = {{.name = "filter",
                               .kind = OPTION_CHOICE,
                               .value = &filter,
                               .argument = "NAME",
                               .choices = filters,
                               .has_auto = true,
                               .help = "how"},
                              {0}};
    const OptionTable table = {.program = "t", .usage = "", .options = options};
    assert_string_equal(options_choice_text(&options[0], filter), "auto");
    assert_string_equal(options_choice_text(&options[0], 2), "lanczos3");
    assert_null(options_choice_text(&options[0], 3));
    assert_ok(options_store(&table, "filter", "bicubic", &error), &error);
    assert_int_equal(filter, 1);
    assert_ok(options_store(&table, "filter", "auto", &error), &error);
    assert_int_equal(filter, OPTION_AUTO);
    assert_int_equal(options_store(&table, "filter", "sinc", &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, "--filter: 'sinc' is not one of: auto, box, bicubic, lanczos3");
    assert_false(options_find_choice(&options[0], "Box", &index));
    assert_int_equal(index, 7);
    const Option without = {.choices = filters};
    assert_null(options_choice_text(&without, OPTION_AUTO));
    assert_false(options_find_choice(&without, "auto", &index));
}

TEST(test_every_kind_of_value_is_read)
{
    Fixture fixture;
    parse(
        &fixture,
        "--max-size 160 --shard-size=1G --rate 2.5e-1 --force --filter box --source photos --seed -5 in out");
    assert_int_equal(fixture.settings.max_size, 160);
    assert_true(fixture.settings.max_size_given);
    assert_int_equal(fixture.settings.shard_size, UINT64_C(1) << 30);
    assert_true(fixture.settings.rate == 0.25);
    assert_true(fixture.settings.force);
    assert_int_equal(fixture.settings.filter, 0);
    assert_string_equal(fixture.settings.source, "photos");
    assert_int_equal(fixture.settings.seed, -5);
    assert_int_equal(fixture.arguments.count, 2);
    assert_string_equal(fixture.arguments.items[0], "in");
    assert_string_equal(fixture.arguments.items[1], "out");
    tear_down(&fixture);
}

TEST(test_defaults_stay_when_nothing_is_given)
{
    Fixture fixture;
    parse(&fixture, "");
    assert_memory_equal(&fixture.settings, &defaults, sizeof defaults);
    assert_int_equal(fixture.arguments.count, 0);
    tear_down(&fixture);
}

TEST(test_underscores_and_older_spellings_are_accepted)
{
    Fixture fixture;
    parse(&fixture, "--max_size 99 --src=a=b --no_flip");
    assert_int_equal(fixture.settings.max_size, 99);
    assert_string_equal(fixture.settings.source, "a=b");
    assert_false(fixture.settings.flip);
    tear_down(&fixture);
}

TEST(test_letters_may_be_joined)
{
    static const char *const lines[] = {"-fvs4", "-fvs 4", "-f -v -s4", "-vfs=4"};
    for (size_t i = 0; i < 3; i++) {
        Fixture fixture;
        parse(&fixture, lines[i]);
        assert_true(fixture.settings.force);
        assert_true(fixture.settings.verbose);
        assert_int_equal(fixture.settings.seed, 4);
        tear_down(&fixture);
    }
    assert_refused(lines[3], "--seed: '=4' is not a whole number");
}

TEST(test_two_dashes_end_the_options)
{
    Fixture fixture;
    parse(&fixture, "-f -- --verbose -");
    assert_true(fixture.settings.force);
    assert_false(fixture.settings.verbose);
    assert_int_equal(fixture.arguments.count, 2);
    assert_string_equal(fixture.arguments.items[0], "--verbose");
    assert_string_equal(fixture.arguments.items[1], "-");
    tear_down(&fixture);
    parse(&fixture, "- -- --");
    assert_string_equal(fixture.arguments.items[0], "-");
    assert_string_equal(fixture.arguments.items[1], "--");
    tear_down(&fixture);
}

TEST(test_an_option_given_twice_is_refused)
{
    assert_refused("--max-size 3 --max_size=3", "--max-size: given twice");
    assert_refused("--src a --source b", "--source: given twice");
    assert_refused("-ff", "--force: given twice");
    assert_refused("-s1 --seed 2", "--seed: given twice");
    assert_refused("--flip --no-flip", "--flip: given twice");
    assert_refused("--no-flip --flip", "--flip: given twice");
    assert_refused("--no-flip --no-flip", "--flip: given twice");
}

TEST(test_a_list_collects)
{
    Fixture fixture;
    parse(&fixture, "--pairs a:b -p c:d -pe:f --pairs=a:b");
    assert_int_equal(fixture.settings.pairs.count, 4);
    static const char *const expected[] = {"a:b", "c:d", "e:f", "a:b"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(fixture.settings.pairs.items[i], expected[i]);
    tear_down(&fixture);
    assert_null(fixture.settings.pairs.items);
}

TEST(test_flags_turn_off_only_what_is_on)
{
    Fixture fixture;
    parse(&fixture, "--no-flip");
    assert_false(fixture.settings.flip);
    tear_down(&fixture);
    parse(&fixture, "--flip");
    assert_true(fixture.settings.flip);
    tear_down(&fixture);
    assert_refused("--no-force", "--no-force: no such option; --force is off unless it is given");
    assert_refused("--no-max-size", "--no-max-size: no such option; did you mean --max-size?");
    assert_refused("--no-help", "--no-help: no such option; did you mean --help?");
    assert_refused("--flip=yes", "--flip: takes no value, but got 'yes'");
}

TEST(test_numbers_are_checked_over_their_whole_text_and_range)
{
    static const char *const wrong_integers[] = {"0",    "65501", "-1", "12px", "1.5", "1e3",
                                                 "0x10", "+5",    "~",  "--1",  "٣",   "9223372036854775808"};
    for (size_t i = 0; i < sizeof wrong_integers / sizeof *wrong_integers; i++) {
        char line[80], message[160];
        const char *text = strcmp(wrong_integers[i], "~") == 0 ? "" : wrong_integers[i];
        (void)snprintf(line, sizeof line, "--max-size=%s", text);
        (void)snprintf(message, sizeof message, "--max-size: '%s' is not a whole number from 1 to 65500",
                       text);
        assert_refused(line, message);
    }
    static const char *const wrong_reals[] = {"nan",  "inf",  "0x1p2", "1,5", "ten",
                                              "-0.1", "10.1", "1e999", "-",   "1e"};
    for (size_t i = 0; i < sizeof wrong_reals / sizeof *wrong_reals; i++) {
        char line[80], message[160];
        (void)snprintf(line, sizeof line, "--rate=%s", wrong_reals[i]);
        (void)snprintf(message, sizeof message, "--rate: '%s' is not a number from 0 to 10", wrong_reals[i]);
        assert_refused(line, message);
    }
    assert_refused("--rate 10%", "--rate: '10%' is not a number from 0 to 10"); /* is no share */
    assert_refused("--seed 9223372036854775808", "--seed: '9223372036854775808' is not a whole number");
    assert_refused("--shard-size 1023",
                   "--shard-size: '1023' is not a size in bytes (suffixes K, M, G, T) of at least 1K");
    Fixture fixture;
    set_up(&fixture);
    fixture.options[3].maximum = 0; /* --rate without a range: finite still */
    assert_int_equal(parse_into(&fixture, "--rate 1e999"), FSH_ERR_USAGE);
    assert_string_equal(fixture.error.message, "--rate: '1e999' is not a number");
    tear_down(&fixture);
    parse(&fixture, "--max-size 1 --seed -9223372036854775808 --rate 10");
    assert_int_equal(fixture.settings.max_size, 1);
    assert_int_equal(fixture.settings.seed, INT64_MIN);
    tear_down(&fixture);
    parse(&fixture, "--max-size 65500 --shard-size 1K");
    assert_int_equal(fixture.settings.max_size, 65500);
    tear_down(&fixture);
}

TEST(test_a_share_may_be_a_percentage)
{
    static const struct {
        const char *text;
        double value;
    } right[] = {{"10%", 0.1},     {"12.5%", 0.125}, {"0%", 0},     {"100%", 1},
                 {"99.9%", 0.999}, {"7%", 0.07},     {".5%", 0.005}};
    static const char *const wrong[] = {"110%", "-5%", "10%%", "%", "1e1%", "%10", "100.1%", "-%"};
    Fixture fixture;
    char line[80], message[160];
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        set_up(&fixture);
        fixture.options[3].maximum = 1;
        (void)snprintf(line, sizeof line, "--rate %s", right[i].text);
        assert_int_equal(parse_into(&fixture, line), FSH_OK);
        assert_true(fixture.settings.rate == right[i].value);
        tear_down(&fixture);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        set_up(&fixture);
        fixture.options[3].maximum = 1;
        (void)snprintf(line, sizeof line, "--rate=%s", wrong[i]);
        (void)snprintf(message, sizeof message,
                       "--rate: '%s' is not a percentage from 0%% to 100%%, nor a number from 0 to 1",
                       wrong[i]);
        assert_int_equal(parse_into(&fixture, line), FSH_ERR_USAGE);
        assert_string_equal(fixture.error.message, message);
        tear_down(&fixture);
    }
}

TEST(test_sizes_take_suffixes_and_refuse_overflow)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {
        {"0", 0},
        {"1023", 1023},
        {"1K", 1024},
        {"2k", 2048},
        {"3KB", 3072},
        {"3KiB", 3072},
        {"160M", 160 << 20},
        {"4GiB", UINT64_C(4) << 30},
        {"1T", UINT64_C(1) << 40},
        {"16777215T", UINT64_C(16777215) << 40},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        uint64_t bytes = 1;
        assert_true(options_parse_size(right[i].text, &bytes));
        assert_int_equal(bytes, right[i].bytes);
        char text[32];
        options_format_size(text, sizeof text, bytes);
        uint64_t again = 1;
        assert_true(options_parse_size(text, &again));
        assert_int_equal(again, bytes);
    }
    static const char *const wrong[] = {
        "", "K", "-1", " 1", "1 K", "1.5G", "1X", "1KiX", "1Kb", "16777216T", "18446744073709551616"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint64_t bytes = 77;
        assert_false(options_parse_size(wrong[i], &bytes));
        assert_int_equal(bytes, 77);
    }
    char text[32];
    options_format_size(text, sizeof text, UINT64_C(64) << 20);
    assert_string_equal(text, "64M");
    options_format_size(text, sizeof text, 1000);
    assert_string_equal(text, "1000");
}

TEST(test_unknown_options_name_the_nearest)
{
    assert_refused("--mxa-size 3", "--mxa-size: no such option; did you mean --max-size?");
    assert_refused("-max-size 3", "-max-size: no such option; did you mean --max-size?");
    assert_refused("-max-size=3", "-max-size: no such option; did you mean --max-size?");
    assert_refused("-help", "-help: no such option; did you mean --help?");
    assert_refused("-zh", "-z: no such option (in '-zh')");
    assert_refused("--MAX_SZIE=3", "--MAX_SZIE: no such option");
    assert_refused("--max_szie=3", "--max_szie: no such option; did you mean --max-size?");
    assert_refused("--fitler box", "--fitler: no such option; did you mean --filter?");
    assert_refused("--evrbsoe",
                   "--evrbsoe: no such option; did you mean --verbose?"); /* two swaps cost 2, not 4 */
    assert_refused("--esde 1", "--esde: no such option");                 /* 2 letters of 4 are wrong */
    assert_refused("--hepl", "--hepl: no such option; did you mean --help?");
    assert_refused("--completely-different", "--completely-different: no such option");
    assert_refused("-fx", "-x: no such option (in '-fx')");
}

TEST(test_names_of_other_programs_are_translated)
{
    assert_refused("--workers 4", "--workers: no such option; fresize calls it --seed");
    assert_refused("--num_workers=4", "--num_workers: no such option; fresize calls it --seed");
    assert_refused("--num_worker=4", "--num_worker: no such option");
    assert_refused("--resume", "--resume: no such option; the same command goes on");
}

TEST(test_a_prefix_is_not_an_option)
{
    assert_refused("--max 3", "--max: no such option");
    assert_refused("--verbos", "--verbos: no such option; did you mean --verbose?");
    assert_refused("--max-s 3",
                   "--max-s: no such option; did you mean --max-size?"); /* nothing else begins so */
    assert_refused("--verb", "--verb: no such option; did you mean --verbose?");
}

TEST(test_a_missing_value_is_named)
{
    assert_refused("--max-size", "--max-size: a value is missing: --max-size N");
    assert_refused("-fs", "--seed: a value is missing: --seed N");
    assert_refused("--src --force",
                   "--source: a value is missing before '--force'; if that is the value: --source=--force");
    assert_refused("--src=", "--source: the value is empty");
    assert_refused("--src ~", "--source: the value is empty");
    assert_refused("--pairs=", "--pairs: the value is empty");
    Fixture fixture;
    parse(&fixture, "--src=--force");
    assert_string_equal(fixture.settings.source, "--force");
    assert_false(fixture.settings.force);
    tear_down(&fixture);
}

TEST(test_choices_are_exact)
{
    assert_refused("--filter Box",
                   "--filter: 'Box' is not one of: box, bicubic, lanczos3; did you mean box?");
    assert_refused("--filter bo", "--filter: 'bo' is not one of: box, bicubic, lanczos3; did you mean box?");
    assert_refused("--filter LANCZOS:3",
                   "--filter: 'LANCZOS:3' is not one of: box, bicubic, lanczos3; did you mean lanczos3?");
    assert_refused("--filter lanczos",
                   "--filter: 'lanczos' is not one of: box, bicubic, lanczos3; did you mean lanczos3?");
    assert_refused("--filter sinc",
                   "--filter: 'sinc' is not one of: box, bicubic, lanczos3; take box for speed");
    assert_refused("--filter Hamming",
                   "--filter: 'Hamming' is not one of: box, bicubic, lanczos3; bicubic is nearest");
    assert_refused("--filter --force", "--filter: a value is missing: --filter NAME; take box for speed");
    assert_refused("--filter", "--filter: a value is missing: --filter NAME; take box for speed");
    assert_refused("--filter :", "--filter: ':' is not one of: box, bicubic, lanczos3; take box for speed");
}

TEST(test_arguments_are_counted)
{
    assert_refused("a b c", "'c': one argument too many: fresize [OPTIONS] SRC DST");
    assert_refused("a ~", "argument 2 is empty: fresize [OPTIONS] SRC DST");
    Fixture fixture;
    set_up(&fixture);
    fixture.table.arguments_min = 2;
    assert_int_equal(parse_into(&fixture, "a"), FSH_ERR_USAGE);
    assert_string_equal(fixture.error.message, "an argument is missing: fresize [OPTIONS] SRC DST");
    assert_int_equal(parse_into(&fixture, ""), FSH_ERR_USAGE);
    assert_string_equal(fixture.error.message,
                        "more than one argument is missing: fresize [OPTIONS] SRC DST");
    tear_down(&fixture);
}

TEST(test_help_wins_over_all_else_and_stores_nothing)
{
    static const char *const lines[] = {
        "--max-size 3 --help",     "-f -h",      "-fh",
        "--bogus --help",          "a b c d -h", "--max-size 0 --max-size --help",
        "--no-flip --force --help"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        Fixture fixture;
        parse(&fixture, lines[i]);
        assert_true(fixture.arguments.help);
        assert_false(fixture.arguments.version);
        assert_memory_equal(&fixture.settings, &defaults, sizeof defaults);
        tear_down(&fixture);
    }
    Fixture fixture;
    parse(&fixture, "--version x y z");
    assert_true(fixture.arguments.version);
    tear_down(&fixture);
    parse(&fixture, "-- --help");
    assert_false(fixture.arguments.help);
    tear_down(&fixture);
}

/* Returns the text that `print` writes about the table; the caller frees it. */
static char *printed(void (*print)(const OptionTable *table, FILE *stream), const OptionTable *table)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    assert_non_null(stream);
    print(table, stream);
    assert_int_equal(fclose(stream), 0);
    return text;
}

TEST(test_help_lists_options_by_group_with_defaults_in_80_columns)
{
    Fixture fixture;
    set_up(&fixture);
    char *help = printed(options_print_help, &fixture.table);
    assert_string_equal(help,
                        "Makes images smaller. Max size is the short edge.\n"
                        "\n"
                        "Usage: fresize [OPTIONS] SRC DST\n"
                        "\n"
                        "Options:\n"
                        "      --max-size N        short edge at most N pixels [default: 256]\n"
                        "  -s, --seed N            any [default: 0]\n"
                        "      --shard-size BYTES  bytes in a shard [default: 64M]\n"
                        "\n"
                        "Training:\n"
                        "      --rate X            learning rate [default: 0.1]\n"
                        "  -f, --force             overwrite\n"
                        "  -v, --verbose           print more\n"
                        "      --flip, --no-flip   mirror half of the images [default: on]\n"
                        "      --filter NAME       what every pixel of the result is made from, and this\n"
                        "                          text is long enough to need a second line [one of:\n"
                        "                          box, bicubic, lanczos3] [default: lanczos3]\n"
                        "      --source DIR        where the images are\n"
                        "  -p, --pairs A:B         two folders [may be given again]\n"
                        "\n"
                        "General:\n"
                        "  -h, --help              print this help and exit\n"
                        "      --version           print the versions of program and libraries and exit\n"
                        "\n"
                        "Examples:\n"
                        "  fresize a b\n");
    for (const char *line = help; *line; line += strcspn(line, "\n") + 1) {
        size_t columns = strcspn(line, "\n");
        assert_in_range(columns, 0, 80);
        assert_true(columns == 0 || line[columns - 1] != ' ');
    }
    free(help);
    tear_down(&fixture);
}

TEST(test_the_list_has_one_spelling_a_line)
{
    Fixture fixture;
    set_up(&fixture);
    char *list = printed(options_print_list, &fixture.table);
    assert_string_equal(
        list, "--max-size N\n-s, --seed N\n--shard-size BYTES\n--rate X\n-f, --force\n-v, --verbose\n"
              "--flip, --no-flip\n--filter NAME\n--source DIR\n-p, --pairs A:B\n-h, --help\n--version\n");
    free(list);
    tear_down(&fixture);
}

static void assert_split_refused(const char *text, const char *message)
{
    char parts[2][256];
    size_t count = 0;
    FshError error = {0};
    assert_int_equal(options_split_colon("--pairs", text, parts, 2, &count, &error), FSH_ERR_USAGE);
    assert_string_equal(error.message, message);
}

TEST(test_colons_part_names)
{
    char parts[3][256], two[2][256];
    size_t count = 0;
    FshError error = {0};
    assert_ok(options_split_colon("--pairs", "blurry:sharp:mask", parts, 3, &count, &error), &error);
    assert_int_equal(count, 3);
    assert_string_equal(parts[0], "blurry");
    assert_string_equal(parts[1], "sharp");
    assert_string_equal(parts[2], "mask");
    assert_ok(options_split_colon("--pairs", "a:b", two, 2, &count, &error), &error);
    assert_int_equal(count, 2);

    assert_split_refused("a", "--pairs: 'a' has no colon; write A:B");
    assert_split_refused("", "--pairs: '' has an empty part; write A:B");
    assert_split_refused("a:", "--pairs: 'a:' has an empty part; write A:B");
    assert_split_refused(":b", "--pairs: ':b' has an empty part; write A:B");
    assert_split_refused("a:a", "--pairs: 'a:a' names 'a' twice");
    assert_split_refused("a:b:c", "--pairs: 'a:b:c' has more than 2 parts");

    char text[300];
    memset(text, 'x', sizeof text);
    memcpy(text + 256, ":b", 3);
    assert_int_equal(options_split_colon("--pairs", text, two, 2, &count, &error), FSH_ERR_USAGE);
    memcpy(text + 255, ":b", 3);
    assert_ok(options_split_colon("--pairs", text, two, 2, &count, &error), &error);
    assert_int_equal(strlen(two[0]), 255);
}
