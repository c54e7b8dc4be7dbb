/* Each man page lists exactly the options of its program's table, and is clean under mandoc's lint. */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 256, NAME_BYTES = 64 };

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

static Names names_of_program(const char *program)
{
    Names names = {.count = 0};
    RunResult result = run_program(NULL, program, "--help-options", NULL);
    assert_int_equal(result.exit_status, 0);
    for (const char *line = result.out; line && *line;) {
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
    const Names in_program = names_of_program(program), in_page = names_of_page(page);
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

static const char *const pages[] = {"fpack.1",   "fresize.1", "ftrain.1",
                                    "fverify.1", "fshard.5",  "ftrain-recipes.7"};
enum { PAGE_COUNT = sizeof pages / sizeof pages[0] };

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
