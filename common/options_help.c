/* options_help.c - the printing side of options.h: --help, and the list that the test of the man pages
 * reads. */
#include "common/options.h"

#include <string.h>

enum { HELP_COLUMNS = 80, HELP_INDENT_MAX = 30, SPELLING_MAX = 128 };

/* Writes "-j, --jobs N" to buffer; "--flip, --no-flip" for a flag that is on by default. */
static void write_spelling(const Option *option, char *buffer, size_t buffer_bytes)
{
    char letter[8] = "";
    if (option->letter)
        (void)snprintf(letter, sizeof letter, "-%c, ", option->letter);
    bool on_by_default = option->kind == OPTION_FLAG && option->value && *(const bool *)option->value;
    if (on_by_default)
        (void)snprintf(buffer, buffer_bytes, "%s--%s, --no-%s", letter, option->name, option->name);
    else
        (void)snprintf(buffer, buffer_bytes, "%s--%s%s%s", letter, option->name, option->argument ? " " : "",
                       option->argument ? option->argument : "");
}

/* Writes words and breaks lines before HELP_COLUMNS. */
typedef struct Wrapper {
    FILE *stream;
    size_t indent, column;
} Wrapper;

/* Returns the columns of text: bytes that begin a UTF-8 character, which is right for the scripts we write
 * in. */
static size_t columns_of(const char *text, size_t length)
{
    size_t columns = 0;
    for (size_t i = 0; i < length; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

static void break_line(Wrapper *wrapper)
{
    (void)fprintf(wrapper->stream, "\n%*s", (int)wrapper->indent, "");
    wrapper->column = wrapper->indent;
}

/* Writes `length` bytes that stay together, after a blank or on a new line. */
static void wrap_unit(Wrapper *wrapper, const char *text, size_t length)
{
    size_t columns = columns_of(text, length);
    if (wrapper->column > wrapper->indent) {
        if (wrapper->column + 1 + columns > HELP_COLUMNS) {
            break_line(wrapper);
        } else {
            (void)fputc(' ', wrapper->stream);
            wrapper->column++;
        }
    }
    (void)fwrite(text, 1, length, wrapper->stream);
    wrapper->column += columns;
}

static void wrap_text(Wrapper *wrapper, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, " \n");
        if (length)
            wrap_unit(wrapper, text, length);
        if (text[length] == '\n')
            break_line(wrapper);
        text += length + (text[length] != '\0');
    }
}

/* Formats the value as one would type it. Returns false if there is none worth printing. */
static bool format_default(const Option *option, char *buffer, size_t buffer_bytes)
{
    if (!option->value || (option->marks & OPTION_VARIES))
        return false;
    const char *text = NULL;
    switch (option->kind) {
    case OPTION_FLAG:
        text = *(const bool *)option->value ? "on" : NULL;
        break;
    case OPTION_INTEGER:
        (void)snprintf(buffer, buffer_bytes, "%lld", (long long)*(const int64_t *)option->value);
        return true;
    case OPTION_SIZE:
        options_format_size(buffer, buffer_bytes, *(const uint64_t *)option->value);
        return true;
    case OPTION_REAL:
        (void)snprintf(buffer, buffer_bytes, "%.9g", *(const double *)option->value);
        return true;
    case OPTION_CHOICE:
        text = options_choice_text(option, *(const int *)option->value);
        break;
    case OPTION_TEXT:
        text = *(const char *const *)option->value;
        break;
    case OPTION_LIST:
        break;
    }
    if (text)
        (void)snprintf(buffer, buffer_bytes, "%s", text);
    return text != NULL;
}

typedef struct HelpPage {
    FILE *stream;
    const char *group; /* the heading printed last */
    size_t indent;     /* column of the help texts */
} HelpPage;

static size_t help_spelling(const Option *option, char *buffer, size_t buffer_bytes)
{
    char spelling[SPELLING_MAX];
    write_spelling(option, spelling, sizeof spelling);
    /* Long names are aligned, with or without a letter in front. */
    (void)snprintf(buffer, buffer_bytes, "  %s%s", option->letter ? "" : "    ", spelling);
    return columns_of(buffer, strlen(buffer));
}

static void widen_page(const Option *option, void *context)
{
    HelpPage *page = context;
    char spelling[SPELLING_MAX + 8];
    size_t columns = help_spelling(option, spelling, sizeof spelling) + 2;
    if (columns > page->indent && columns <= HELP_INDENT_MAX)
        page->indent = columns;
}

static void print_option(const Option *option, void *context)
{
    HelpPage *page = context;
    const char *group = option->group ? option->group : page->group ? page->group : "Options";
    if (!page->group || strcmp(group, page->group) != 0)
        (void)fprintf(page->stream, "\n%s:\n", group);
    page->group = group;

    char spelling[SPELLING_MAX + 8];
    size_t columns = help_spelling(option, spelling, sizeof spelling);
    (void)fprintf(page->stream, "%s", spelling);
    Wrapper wrapper = {.stream = page->stream, .indent = page->indent, .column = page->indent};
    if (columns + 2 > page->indent)
        break_line(&wrapper);
    else
        (void)fprintf(page->stream, "%*s", (int)(page->indent - columns), "");
    wrap_text(&wrapper, option->help);
    if (option->kind == OPTION_CHOICE) {
        wrap_text(&wrapper, "[one of:");
        const char *choice = NULL;
        for (int i = options_first_choice(option); (choice = options_choice_text(option, i)); i++) {
            char word[128];
            (void)snprintf(word, sizeof word, "%s%s", choice, options_choice_text(option, i + 1) ? "," : "]");
            wrap_text(&wrapper, word);
        }
    }
    if (option->kind == OPTION_LIST)
        wrap_text(&wrapper, "[may be given again]");
    char value[256], note[300];
    if (format_default(option, value, sizeof value)) {
        (void)snprintf(note, sizeof note, "[default: %s]", value);
        wrap_unit(&wrapper, note, strlen(note));
    }
    (void)fputc('\n', page->stream);
}

void options_print_help(const OptionTable *table, FILE *stream)
{
    Wrapper wrapper = {.stream = stream};
    wrap_text(&wrapper, table->summary);
    (void)fprintf(stream, "\n\nUsage: %s %s\n", table->program, table->usage);
    HelpPage page = {.stream = stream};
    options_each(table, widen_page, &page);
    options_each(table, print_option, &page);
    if (table->examples)
        (void)fprintf(stream, "\nExamples:\n%s%s", table->examples,
                      table->examples[0] && table->examples[strlen(table->examples) - 1] == '\n' ? "" : "\n");
}

static void print_spelling(const Option *option, void *context)
{
    char spelling[SPELLING_MAX];
    write_spelling(option, spelling, sizeof spelling);
    (void)fprintf(context, "%s\n", spelling);
}

void options_print_list(const OptionTable *table, FILE *stream)
{
    options_each(table, print_spelling, stream);
}
