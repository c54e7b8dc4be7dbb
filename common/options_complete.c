/* options_complete.c - the scripts by which bash, zsh and fish complete a program's options. */
#include "common/options.h"

#include <string.h>

enum { HELP_SHOWN = 100 };

/* What a shell offers for an option's value. */
typedef enum ValueKind {
    VALUE_NONE,    /* a flag takes none */
    VALUE_WORDS,   /* one of some words */
    VALUE_FOLDERS, /* names of folders */
    VALUE_FILES,   /* names of files and folders */
    VALUE_FREE,    /* a number, a name: nothing is offered */
} ValueKind;

static ValueKind kind_of_value(const Option *option)
{
    static const char *const files[] = {"FILE", "PATH", "SRC", "OUT"};
    if (option->kind == OPTION_FLAG)
        return VALUE_NONE;
    if (option->kind == OPTION_CHOICE || option->suggest)
        return VALUE_WORDS;
    if (option->argument && strcmp(option->argument, "DIR") == 0)
        return VALUE_FOLDERS;
    for (size_t i = 0; option->argument && i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(option->argument, files[i]) == 0)
            return VALUE_FILES;
    }
    return VALUE_FREE;
}

/* Returns whether --no-NAME is to be offered too. */
static bool can_be_turned_off(const Option *option)
{
    return option->kind == OPTION_FLAG && option->value && *(const bool *)option->value;
}

/* Prints the words of a VALUE_WORDS with blanks between them. */
static void print_words(const Option *option, FILE *stream)
{
    const char *word = NULL;
    if (option->suggest) {
        for (size_t i = 0; (word = option->suggest(i)); i++)
            (void)fprintf(stream, "%s%s", i ? " " : "", word);
        return;
    }
    const int first = options_first_choice(option);
    for (int i = first; (word = options_choice_text(option, i)); i++)
        (void)fprintf(stream, "%s%s", i > first ? " " : "", word);
}

/* Prints the first clause of the help, each character of special after a backslash, and an apostrophe as the
 * shell has it within a quoted word. */
static void print_help_text(const Option *option, const char *special, const char *apostrophe, FILE *stream)
{
    size_t length = strcspn(option->help, ";");
    if (length > HELP_SHOWN) {
        for (length = HELP_SHOWN; length > 1 && option->help[length] != ' '; length--)
            ;
    }
    for (size_t i = 0; i < length; i++) {
        const char letter = option->help[i];
        if (letter == '\'')
            (void)fputs(apostrophe, stream);
        else
            (void)fprintf(stream, "%s%c", strchr(special, letter) ? "\\" : "", letter);
    }
}

/* ---- bash ---- */

/* Prints an option's spellings as a pattern of `case`: "-j|--jobs". */
static void print_pattern(const Option *option, FILE *stream)
{
    if (option->letter)
        (void)fprintf(stream, "-%c|", option->letter);
    (void)fprintf(stream, "--%s", option->name);
}

static void print_bash_case(const Option *option, void *context)
{
    FILE *stream = context;
    const ValueKind kind = kind_of_value(option);
    if (kind == VALUE_NONE)
        return;
    (void)fputs("    ", stream);
    print_pattern(option, stream);
    (void)fputs(") ", stream);
    if (kind == VALUE_WORDS) {
        (void)fputs("mapfile -t COMPREPLY < <(compgen -W '", stream);
        print_words(option, stream);
        (void)fputs("' -- \"$word\"); ", stream);
    } else if (kind == VALUE_FOLDERS || kind == VALUE_FILES) {
        (void)fprintf(
            stream, "compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -%c -- \"$word\"); ",
            kind == VALUE_FOLDERS ? 'd' : 'f');
    }
    (void)fputs("return ;;\n", stream);
}

static void print_bash_names(const Option *option, void *context)
{
    FILE *stream = context;
    if (option->letter)
        (void)fprintf(stream, " -%c", option->letter);
    (void)fprintf(stream, " --%s", option->name);
    if (can_be_turned_off(option))
        (void)fprintf(stream, " --no-%s", option->name);
}

/* In bash "--name=v" is three words, since = is in COMP_WORDBREAKS. */
static void print_bash(const OptionTable *table, FILE *stream)
{
    (void)fprintf(stream,
                  "# bash completion for %s, printed by `%s --help-completion bash`\n"
                  "_%s() {\n"
                  "    local word=$2 before=$3\n"
                  "    COMPREPLY=()\n"
                  "    if [ \"$word\" = = ]; then word=; fi\n"
                  "    if [ \"$before\" = = ]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                  "    case $before in\n",
                  table->program, table->program, table->program);
    options_each(table, print_bash_case, stream);
    (void)fputs("    esac\n"
                "    case $word in\n"
                "    -*) mapfile -t COMPREPLY < <(compgen -W '",
                stream);
    options_each(table, print_bash_names, stream);
    (void)fprintf(
        stream,
        "' -- \"$word\") ;;\n"
        "    *) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
        "    esac\n"
        "}\n"
        "complete -F _%s %s\n",
        table->program, table->program);
}

/* ---- zsh ---- */

/* Prints the rest of a specification, "[help]:N:(a b)'", after the spelling. */
static void print_zsh_value(const Option *option, FILE *stream)
{
    const ValueKind kind = kind_of_value(option);
    (void)fputc('[', stream);
    print_help_text(option, "[]:\\", "'\\''", stream);
    (void)fputc(']', stream);
    if (kind != VALUE_NONE) {
        (void)fputc(':', stream);
        for (const char *at = option->argument ? option->argument : "value"; *at; at++)
            (void)fprintf(stream, "%s%c", *at == ':' ? "\\" : "", *at);
        (void)fputc(':', stream);
    }
    if (kind == VALUE_WORDS) {
        (void)fputc('(', stream);
        print_words(option, stream);
        (void)fputc(')', stream);
    } else if (kind == VALUE_FOLDERS || kind == VALUE_FILES) {
        (void)fputs(kind == VALUE_FOLDERS ? "_files -/" : "_files", stream);
    }
    (void)fputs("' \\\n", stream);
}

static void print_zsh_option(const Option *option, void *context)
{
    FILE *stream = context;
    const char *many = option->kind == OPTION_LIST ? "*" : "", *joined = kind_of_value(option) ? "=" : "";
    /* A spelling of an option rules the others out, unless it may be given again. */
    char others[256] = "";
    if (!many[0]) {
        size_t used = (size_t)snprintf(others, sizeof others, "(--%s", option->name);
        if (option->letter)
            used += (size_t)snprintf(others + used, sizeof others - used, " -%c", option->letter);
        if (can_be_turned_off(option))
            used += (size_t)snprintf(others + used, sizeof others - used, " --no-%s", option->name);
        (void)snprintf(others + used, sizeof others - used, ")");
    }
    if (option->letter) {
        (void)fprintf(stream, "    '%s%s-%c%s", others, many, option->letter, joined[0] ? "+" : "");
        print_zsh_value(option, stream);
    }
    (void)fprintf(stream, "    '%s%s--%s%s", others, many, option->name, joined);
    print_zsh_value(option, stream);
    if (can_be_turned_off(option)) {
        (void)fprintf(stream, "    '%s--no-%s", others, option->name);
        print_zsh_value(option, stream);
    }
}

static void print_zsh(const OptionTable *table, FILE *stream)
{
    (void)fprintf(stream,
                  "#compdef %s\n"
                  "# zsh completion for %s, printed by `%s --help-completion zsh`\n"
                  "_arguments -s \\\n",
                  table->program, table->program, table->program);
    options_each(table, print_zsh_option, stream);
    (void)fputs("    '*:path:_files'\n", stream);
}

/* ---- fish ---- */

typedef struct FishScript {
    const OptionTable *table;
    FILE *stream;
} FishScript;

static void print_fish_option(const Option *option, void *context)
{
    const FishScript *script = context;
    FILE *stream = script->stream;
    const ValueKind kind = kind_of_value(option);
    for (int off = 0; off <= can_be_turned_off(option); off++) {
        (void)fprintf(stream, "complete -c %s -l %s%s", script->table->program, off ? "no-" : "",
                      option->name);
        if (option->letter && !off)
            (void)fprintf(stream, " -s %c", option->letter);
        if (kind == VALUE_WORDS) {
            (void)fputs(" -x -a '", stream);
            print_words(option, stream);
            (void)fputc('\'', stream);
        } else if (kind == VALUE_FOLDERS) {
            (void)fputs(" -x -a '(__fish_complete_directories)'", stream);
        } else if (kind == VALUE_FILES) {
            (void)fputs(" -r -F", stream);
        } else if (kind == VALUE_FREE) {
            (void)fputs(" -x", stream);
        }
        (void)fputs(" -d '", stream);
        print_help_text(option, "\\", "\\'", stream);
        (void)fputs("'\n", stream);
    }
}

static void print_fish(const OptionTable *table, FILE *stream)
{
    FishScript script = {.table = table, .stream = stream};
    (void)fprintf(stream, "# fish completion for %s, printed by `%s --help-completion fish`\n",
                  table->program, table->program);
    options_each(table, print_fish_option, &script);
}

/* ---- all of them ---- */

bool options_print_completion(const OptionTable *table, const char *shell, FILE *stream)
{
    static const struct {
        const char *name;
        void (*print)(const OptionTable *table, FILE *stream);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(shell, shells[i].name) != 0)
            continue;
        shells[i].print(table, stream);
        return true;
    }
    return false;
}
