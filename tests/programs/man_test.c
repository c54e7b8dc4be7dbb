/* Each man page lists exactly the options of its program's table, with a paragraph and every choice of each;
 * speaks of no option that is not there; and is clean under mandoc's lint. */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 256, NAME_BYTES = 64 };
#define WORD_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* A set of option names: "max-size" for --max-size, "j" for -j. */
typedef struct Names {
    char name[NAMES_MAX][NAME_BYTES];
    size_t count;
} Names;

static bool names_have(const Names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (!strcmp(names->name[i], name))
            return true;
    return false;
}

static void names_add(Names *names, const char *name, size_t length)
{
    assert_true(names->count < NAMES_MAX && length > 0 && length < NAME_BYTES);
    char *entry = names->name[names->count++];
    memcpy(entry, name, length);
    entry[length] = '\0';
}

/* Adds every word of the line that begins with a dash: "-j, --jobs N" gives j and jobs. */
static void add_dashed_words(Names *names, const char *line)
{
    for (const char *at = line; *at && *at != '\n'; at++) {
        if (*at != '-' || (at > line && at[-1] != ' '))
            continue;
        at += at[1] == '-' ? 2 : 1;
        size_t length = strcspn(at, " ,=\n");
        names_add(names, at, length);
        at += length - 1;
    }
}

/* Returns whether the line ends in what an option takes: "--jobs N". */
static bool takes_value(const char *line)
{
    const char *end = line + strcspn(line, "\n"), *word = end;
    while (word > line && word[-1] != ' ')
        word--;
    return *word != '-';
}

/* Returns the options of a program; where `valued`, those that take a value. */
static Names names_of_program(const char *program, bool valued)
{
    Names names = {.count = 0};
    RunResult result = run_program(NULL, program, "--help-options", NULL);
    assert_int_equal(result.exit_status, 0);
    for (const char *line = result.out; line && *line;) {
        if (!valued || takes_value(line))
            add_dashed_words(&names, line);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    run_result_free(&result);
    assert_true(names.count > 5);
    return names;
}

/* Returns the options of a page: of ".It Fl j , -jobs Ar N", where the first dash of "-jobs" is the long
 * option's second, and of ".It Fl j Ar N , Fl -jobs". */
static Names names_of_page(const char *page)
{
    Names names = {.count = 0};
    for (const char *line = page; line && *line;) {
        if (!strncmp(line, ".It Fl ", 7)) {
            bool flag = true;
            for (const char *word = line + 7; *word && *word != '\n';) {
                size_t length = strcspn(word, " \n");
                bool keyword = length == 2 && (!strncmp(word, "Fl", 2) || !strncmp(word, "Ar", 2) ||
                                               !strncmp(word, "Cm", 2) || !strncmp(word, "Ns", 2) ||
                                               !strncmp(word, "Oo", 2) || !strncmp(word, "Oc", 2));
                if (keyword)
                    flag = !strncmp(word, "Fl", 2);
                else if (flag && *word != ',' && *word != '|')
                    names_add(&names, *word == '-' ? word + 1 : word, length - (*word == '-' ? 1 : 0));
                word += length;
                word += strspn(word, " ");
            }
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return names;
}

static void check_program(const char *program)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/man/%s.1", getenv("FSHARD_SOURCE"), program);
    char *page = test_file_read(path, NULL);
    const Names in_program = names_of_program(program, false), in_page = names_of_page(page);
    free(page);
    size_t missing = 0;
    for (size_t i = 0; i < in_program.count; i++) {
        if (!names_have(&in_page, in_program.name[i])) {
            print_error("%s takes '%s', man/%s.1 does not list it\n", program, in_program.name[i], program);
            missing++;
        }
    }
    for (size_t i = 0; i < in_page.count; i++) {
        if (!names_have(&in_program, in_page.name[i])) {
            print_error("man/%s.1 lists '%s', %s does not take it\n", program, in_page.name[i], program);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

TEST(test_fresize_1_lists_the_options_of_fresize)
{
    check_program("fresize");
}

TEST(test_fpack_1_lists_the_options_of_fpack)
{
    check_program("fpack");
}

TEST(test_fverify_1_lists_the_options_of_fverify)
{
    check_program("fverify");
}

TEST(test_ftrain_1_lists_the_options_of_ftrain)
{
    check_program("ftrain");
}

/* ---- what a page says of each option ---- */

static const char *const programs[] = {"fresize", "fpack", "fverify", "ftrain"};
enum { PROGRAM_COUNT = sizeof programs / sizeof programs[0] };

static char *read_page(const char *page)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/man/%s", getenv("FSHARD_SOURCE"), page);
    return test_file_read(path, NULL);
}

static const char *next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

static bool is_item(const char *line)
{
    return strncmp(line, ".It Fl ", 7) == 0;
}

/* Finds the next item at or after `at`: a line ".It Fl …" and its paragraph. *body_ret is where that begins,
 * *end_ret where it ends, lists within it included. Returns the item; NULL where there is no more. */
static const char *next_item(const char *at, const char **body_ret, const char **end_ret)
{
    while (*at && !is_item(at))
        at = next_line(at);
    const char *line = *body_ret = next_line(at);
    for (int lists = 0; *line; line = next_line(line)) {
        if (!lists && (is_item(line) || !strncmp(line, ".El", 3)))
            break;
        lists += !strncmp(line, ".Bl", 3);
        lists -= !strncmp(line, ".El", 3);
    }
    *end_ret = line;
    return *at ? at : NULL;
}

TEST(test_each_option_has_a_paragraph)
{
    for (size_t i = 0; i < PROGRAM_COUNT; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "%s.1", programs[i]);
        char *page = read_page(name);
        const char *body, *end;
        for (const char *item = page; (item = next_item(item, &body, &end)); item = end)
            if (end - body < 10)
                fail_msg("%s says nothing of %.*s", name, (int)(body - item), item);
        free(page);
    }
}

/* A script whose caller appends to its options learns it from there. */
TEST(test_pages_say_that_an_option_given_twice_is_refused)
{
    for (size_t i = 0; i < PROGRAM_COUNT; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "%s.1", programs[i]);
        char *page = read_page(name);
        assert_contains(page, "n option that is given twice");
        free(page);
    }
}

/* Returns whether text has the word; letters, digits, _ and - make words. */
static bool has_word(const char *text, const char *end, const char *word, size_t length)
{
    for (const char *at = text; at + length < end; at++)
        if (!strncmp(at, word, length) && (at == text || !strchr(WORD_BYTES, at[-1])) &&
            !strchr(WORD_BYTES, at[length]))
            return true;
    return false;
}

/* Returns whether the item of the option ("-amp") names the choice, or an item that it refers to by ".Fl". */
static bool names_choice(const char *page, const char *option, const char *choice, size_t length, bool refers)
{
    const char *body, *end;
    for (const char *item = page; (item = next_item(item, &body, &end)); item = end) {
        if (!has_word(item, body, option, strlen(option)))
            continue;
        if (has_word(item, end, choice, length))
            return true;
        for (const char *line = body; refers && line < end; line = next_line(line)) {
            char other[NAME_BYTES];
            if (sscanf(line, ".Fl %63[a-z0-9-]", other) == 1 &&
                names_choice(page, other, choice, length, false))
                return true;
        }
    }
    return false;
}

/* A program that is given a choice that it does not have says which there are. */
TEST(test_each_choice_of_an_option_is_named)
{
    static const char words[] = " is not one of: ";
    size_t lists = 0, missing = 0;
    for (size_t i = 0; i < PROGRAM_COUNT; i++) {
        char name[40], option[NAME_BYTES + 2];
        (void)snprintf(name, sizeof name, "%s.1", programs[i]);
        char *page = read_page(name);
        const Names names = names_of_program(programs[i], true);
        for (size_t n = 0; n < names.count; n++) {
            (void)snprintf(option, sizeof option, "--%s", names.name[n]);
            if (strlen(option) < 4) /* a letter */
                continue;
            RunResult result = run_program(NULL, programs[i], option, "@", "a", "b", NULL);
            const char *choice = strstr(result.err, words);
            lists += choice != NULL;
            for (choice = choice ? choice + sizeof words - 1 : ""; *choice && !strchr(";\n", *choice);) {
                const size_t length = strcspn(choice, ",;\n");
                if (!names_choice(page, option + 1, choice, length, true)) {
                    print_error("man/%s does not name '%.*s' at %s\n", name, (int)length, choice, option);
                    missing++;
                }
                choice += length;
                choice += strspn(choice, ", ");
            }
            run_result_free(&result);
        }
        free(page);
    }
    assert_true(lists > 30);
    assert_int_equal(missing, 0);
}

static const char *const pages[] = {"fpack.1",   "fresize.1", "ftrain.1",
                                    "fverify.1", "fshard.5",  "ftrain-recipes.7"};
enum { PAGE_COUNT = sizeof pages / sizeof pages[0] };

/* Returns whether a program knows the option: by its own name, or by an older spelling of it. */
static bool is_known(const Names *names, const char *option)
{
    char dashed[NAME_BYTES + 2];
    for (size_t i = 0; i < PROGRAM_COUNT; i++)
        if (names_have(&names[i], option))
            return true;
    (void)snprintf(dashed, sizeof dashed, "--%s", option);
    RunResult result = run_program(NULL, "ftrain", dashed, NULL);
    const bool known = !strstr(result.err, "no such option");
    run_result_free(&result);
    return known;
}

TEST(test_options_that_pages_speak_of_are_there)
{
    Names names[PROGRAM_COUNT];
    size_t seen = 0;
    for (size_t i = 0; i < PROGRAM_COUNT; i++)
        names[i] = names_of_program(programs[i], false);
    for (size_t i = 0; i < PAGE_COUNT; i++) {
        char *page = read_page(pages[i]);
        for (const char *line = page; *line; line = next_line(line)) {
            const char *end = next_line(line);
            for (const char *at = line; *line == '.' && (at = strstr(at, "Fl -")) && at < end; at++) {
                char option[NAME_BYTES];
                if (sscanf(at, "Fl -%63[a-z0-9-]", option) != 1)
                    continue;
                seen++;
                if (!is_known(names, option))
                    fail_msg("%s speaks of --%s, which no program takes", pages[i], option);
            }
        }
        free(page);
    }
    assert_true(seen > 500);
}

/* Returns whether the line is a complaint about a reference to one of our pages. mandoc looks for the targets
 * of .Xr among the installed pages alone; ours lie beside the page. */
static bool is_reference_to_ours(const char *line)
{
    const char *at = strstr(line, "STYLE: referenced manual not found: Xr ");
    char name[32], section = 0, page[40];
    if (!at || sscanf(at, "STYLE: referenced manual not found: Xr %31s %c", name, &section) != 2)
        return false;
    (void)snprintf(page, sizeof page, "%s.%c", name, section);
    for (size_t i = 0; i < PAGE_COUNT; i++)
        if (!strcmp(pages[i], page))
            return true;
    return false;
}

/* A macro takes the quotes off an argument that begins with one; \(dq is one that is shown. */
TEST(test_quotes_in_macros_are_shown)
{
    static const char *const shown[] = {".Bl ", ".Sh ", ".Ss ", ".It ", NULL};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/man/%s", getenv("FSHARD_SOURCE"), pages[i]);
        char *text = test_file_read(path, NULL);
        for (char *rest = text, *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
            bool is_layout = line[0] != '.' || line[1] < 'A' || line[1] > 'Z';
            for (size_t name = 0; shown[name]; name++)
                is_layout = is_layout || strncmp(line, shown[name], 4) == 0;
            if (!is_layout && strstr(line, " \""))
                fail_msg("%s: quotes are lost: %s", pages[i], line);
        }
        free(text);
    }
}

/* Nobody finds anything in a list of forty. */
TEST(test_headings_of_help_keep_its_lists_short)
{
    enum { MOST = 24 };
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        RunResult result = run_program(NULL, programs[i], "--help", NULL);
        const char *heading = "";
        int count = 0;
        for (char *rest = result.out, *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
            const bool begins = *line && *line != ' ' && line[strlen(line) - 1] == ':';
            heading = begins ? line : heading;
            count = begins
                        ? 0
                        : count + (strncmp(line, "      --", 8) == 0 || (line[0] == ' ' && line[2] == '-'));
            if (count > MOST)
                fail_msg("%s --help: more than %d options under '%s'", programs[i], MOST, heading);
        }
        run_result_free(&result);
    }
}

/* Words and lines of --help are wrapped: it is asked for a few words that stand together. */
TEST(test_the_two_limits_are_told_apart)
{
    static const char *const told[][2] = {{"fpack", "--limit"}, {"ftrain", "--limit"}};
    for (size_t i = 0; i < 2; i++) {
        char other[32];
        (void)snprintf(other, sizeof other, "(%s %s", told[1 - i][0], told[1 - i][1]);
        RunResult result = run_program(NULL, told[i][0], "--help", NULL);
        for (char *at = result.out; (at = strchr(at, '\n')); at++)
            *at = ' ';
        char *words = result.out;
        for (const char *from = words; *from; from++) /* blanks at the beginning of a line */
            if (*from != ' ' || (words > result.out && words[-1] != ' '))
                *words++ = *from;
        *words = '\0';
        assert_contains(result.out, other);
        run_result_free(&result);
    }
}

TEST_IN_FOLDER(test_pages_are_clean_under_mandoc_lint, folder)
{
    size_t complaints = 0;
    for (size_t i = 0; i < PAGE_COUNT; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, "%s/man/%s", getenv("FSHARD_SOURCE"), pages[i]);
        RunResult result = run_program(NULL, "/usr/bin/mandoc", "-T", "lint", path, NULL);
        assert_int_equal(result.err_bytes, 0);
        for (char *rest = result.out, *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
            if (!*line || is_reference_to_ours(line))
                continue;
            print_error("%s\n", line);
            complaints++;
        }
        run_result_free(&result);
    }
    assert_int_equal(complaints, 0);
}
