/* options.h - a table of options, from which come parsing, --help, completion by shells, and the list for
 * the man page.
 *
 *   struct settings { int64_t max_size; bool force; } s = {.max_size = 256};
 *   const Option options[] = {
 *       {.name = "max-size", .kind = OPTION_INTEGER, .value = &s.max_size, .argument = "N",
 *        .help = "short edge at most N pixels", .minimum = 1, .maximum = 65500},
 *       {.name = "force", .letter = 'f', .kind = OPTION_FLAG, .value = &s.force, .help = "overwrite"},
 *       {0}};
 *   const OptionTable table = {.program = "fresize", .usage = "[OPTIONS] SRC DST", .options = options, …};
 *   FshStatus status = options_parse(&table, argc, argv, &arguments, &error);
 *
 * Rules, the same for every program (tested):
 * - Long options in kebab-case; `_` is accepted for `-`; `--name VALUE` and `--name=VALUE`; an unambiguous
 *   prefix is NOT accepted (scripts must not break when an option is added). One-letter options may be
 *   joined: -nv, -j4, -j 4.
 * - `--` ends the options; `-` alone is an argument.
 * - An option given twice is refused, unless its kind is OPTION_LIST. `--no-NAME` turns a flag off whose
 *   default is on.
 * - A value that begins with `--` must be joined to its option by `=`: `--dst --force` is a forgotten value.
 *   Empty texts and empty arguments are refused: they come from unset shell variables.
 * - Numbers are checked over their whole text and range; sizes take K, M, G, T (powers of 1024; KB, KiB too),
 *   other numbers no suffix. The error names the option, the text given, and what is expected; an unknown
 *   option names the nearest known one, if at most a third of its letters and 3 of them are wrong, or if it
 *   is the beginning of that one alone. An option that a peer has under another name (OptionTable.foreign)
 *   is named first. A choice in another spelling ("jpg", "4:2:0", "Lanczos") is refused, and the error gives
 *   ours.
 * - Values may come from a file too (OptionTable.config), and from a set of values that has a name
 *   (OptionTable.preset). The command line wins over the file, and the file over the set.
 * - -h, --help and --version are not in the table: every program has them, and a row may not take the h.
 *
 * Everything here works on the caller's memory; no globals. */
#ifndef FSHARD_COMMON_OPTIONS_H
#define FSHARD_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include <stdio.h>

#include "common/error.h"

typedef enum OptionKind {
    OPTION_FLAG,    /* value: bool *        */
    OPTION_INTEGER, /* value: int64_t *     minimum..maximum */
    OPTION_SIZE,    /* value: uint64_t *    bytes, with suffix; minimum..maximum */
    OPTION_REAL,    /* value: double *      minimum..maximum, finite; of a range in 0..1 "10%" is 0.1 */
    OPTION_TEXT,    /* value: const char ** points into argv */
    OPTION_CHOICE, /* value: int *         index of the matching entry of choices, exact match; OPTION_AUTO */
    OPTION_LIST,   /* value: OptionList *  repeatable text */
} OptionKind;

enum { OPTION_AUTO = -1 }; /* the value of a choice that is "auto" (Option.has_auto) */

typedef struct OptionList {
    const char **items; /* owned by the list, items point into argv; free with option_list_free */
    size_t count;
} OptionList;

typedef enum OptionMark {
    OPTION_NOT_IN_FILE = 1, /* only for the command line: a file that gives it is refused */
    OPTION_FREE = 2,        /* says how or where, not what comes out: may differ when a run resumes */
    OPTION_ALIKE = 4, /* is OPTION_FREE, but the same on all ranks of a run: they wait for each other by it */
    OPTION_VARIES = 8, /* unless given, other options or the dataset decide it: the help says how, and no more
                        * than that is said of its default */
} OptionMark;

/* What ftrain does in a call; it reads other options for each. */
typedef enum OptionUse {
    USE_TRAIN = 1,
    USE_DRY_RUN = 2, /* says what training would do */
    USE_EVALUATE = 4,
    USE_PREDICT = 8,  /* tells what the network makes of a dataset */
    USE_IMAGES = 16,  /* the same, of images that nobody has packed */
    USE_BENCH = 32,   /* times the loader of training */
    USE_COMPARE = 64, /* tells what runs have left */
    USE_LIST = 128,   /* lists networks or recipes */
    USE_ONNX = 256,   /* writes a network for other programs */
    USE_LEARN = USE_TRAIN | USE_DRY_RUN,
    USE_SAMPLES = USE_LEARN | USE_BENCH, /* training's samples are chosen and made */
    USE_PREDICTS = USE_PREDICT | USE_IMAGES,
    USE_DATASET = USE_SAMPLES | USE_EVALUATE | USE_PREDICT,
    USE_NETWORK = USE_LEARN | USE_EVALUATE | USE_PREDICTS,
    USE_ANY = USE_NETWORK | USE_BENCH, /* there is a dataset, or there are images */
} OptionUse;

typedef struct Option {
    const char *name; /* kebab-case, without dashes; NULL ends the table */
    char letter;      /* 0: none */
    bool has_auto;    /* OPTION_CHOICE: "auto" is a choice too, the first; stored as OPTION_AUTO */
    OptionKind kind;
    void *value;                /* holds the default before parsing, which --help prints, unless it varies */
    const char *argument;       /* "N", "DIR": the word in --help; NULL for flags */
    const char *help;           /* one sentence, lower case, no full stop; wrapped by --help */
    double minimum, maximum;    /* both 0: unchecked; maximum below minimum, or infinite: no upper bound */
    const char *const *choices; /* NULL-terminated, for OPTION_CHOICE: in the order of the caller's enum */
    /* Values of peers, each with a sentence of ours, and "" for a missing or unknown value: added to the
     * error. Ends with a NULL name; may be NULL. */
    const struct OptionForeign *hints;
    /* OPTION_TEXT: returns the index-th of the values that a shell is to offer, NULL after the last. NULL:
     * none are known. */
    const char *(*suggest)(size_t index);
    const char *alias; /* an older spelling that is accepted ("src"), or NULL; not listed */
    const char *group; /* heading in --help; NULL: as the row before */
    bool *given;       /* set to true if the option was on the command line or in a file; may be NULL */
    bool *typed;       /* the same, on the command line alone */
    unsigned marks;    /* OptionMark */
    unsigned uses;     /* OptionUse: those that read the option; 0: all */
} Option;

/* The name that another program of the field has for an option. */
typedef struct OptionForeign {
    const char *name; /* "num-workers"; NULL ends the table */
    const char *ours; /* "jobs" */
} OptionForeign;

typedef struct OptionTable {
    const char *program; /* "fresize" */
    /* in error messages: "ftrain: rank 1", one of several equal processes; NULL: program */
    const char *speaker;
    const char *summary; /* first lines of --help: what the program does, in one or two sentences */
    const char *usage;   /* "[OPTIONS] SRC DST" */
    const Option *options;
    const OptionForeign *foreign; /* foreign spellings, refused with ours in the message; NULL: none */
    const OptionForeign *answers; /* foreign options that we do not have, with a sentence of ours; NULL:
                                   * none */
    const char *examples;         /* printed verbatim at the end of --help; NULL: none */
    /* The OPTION_TEXT row that names a file of values (options_config.h), which is read before the command
     * line is stored. NULL: none. */
    const char *config;
    /* The OPTION_TEXT row that names a set of values, which are stored before those of the file, and what
     * finds the set: a new object with the values in its member "options", beside facts that only the caller
     * reads. The row is OPTION_NOT_IN_FILE. NULL: none. */
    const char *preset;
    FshStatus (*find_preset)(const char *name, json_t **preset_ret, FshError *error);
    size_t arguments_min, arguments_max;
} OptionTable;

typedef struct OptionArguments {
    const char **items; /* words that are no options; they point into argv; free with
                         * options_arguments_free */
    size_t count;
    bool help, version; /* --help or --version was given: the caller prints it and exits with 0 */
    json_t *config;     /* what options_config_read read, owned: texts of options point into it */
    /* the set of values in use, owned: its member "options" has those that neither file nor command line have
     * replaced, by the names of the options, which point into it; NULL: none */
    json_t *preset;
} OptionArguments;

/* Parses argv[1..]. On FSH_ERR_USAGE the message is complete ("--max-size: '0' is not a whole number from 1
 * to 65500"). With --help or --version nothing else is checked or stored. The number of arguments is checked
 * against the table. */
FshStatus options_parse(const OptionTable *table, int argc, char **argv, OptionArguments *arguments,
                        FshError *error);

/* Stores one value by the option's name or alias ("true" and "false" for flags), as the command line would,
 * except that a later value replaces an earlier one. text must live as long as the option's value.
 * FSH_ERR_USAGE. */
FshStatus options_store(const OptionTable *table, const char *name, const char *text, FshError *error);

void options_arguments_free(OptionArguments *arguments);
void option_list_free(OptionList *list);

/* Prints --help: summary, usage, options by group with defaults, examples, in 80 columns. Defaults are the
 * present values, so call it before anything is stored (options_parse stores nothing if it meets --help). */
void options_print_help(const OptionTable *table, FILE *stream);

/* Returns the text of a choice: choices[index], or "auto" for OPTION_AUTO if the option has it. NULL: there
 * is no such choice, which ends a loop that began at options_first_choice. */
const char *options_choice_text(const Option *option, int index);
/* Returns the index of the first choice of an OPTION_CHOICE: OPTION_AUTO or 0. */
int options_first_choice(const Option *option);
/* Finds the choice of this text and sets *index_ret to its index. Returns false, with *index_ret unchanged,
 * if there is none. */
bool options_find_choice(const Option *option, const char *text, int *index_ret);

/* Prints --help-options: one spelling a line, for the test that compares man pages with the table. */
void options_print_list(const OptionTable *table, FILE *stream);

/* Prints --help-completion SHELL: the script by which bash, zsh or fish completes options, choices and names
 * of files. Returns false, and prints nothing, for any other shell. */
bool options_print_completion(const OptionTable *table, const char *shell, FILE *stream);

/* Calls visit for each option in table order, --help and --version last. The test of the man pages uses
 * it. */
void options_each(const OptionTable *table, void (*visit)(const Option *option, void *context),
                  void *context);

/* Splits "A:B" or "a:b:c" into parts, which it copies into storage of the caller. Each part must be non-empty
 * and differ from the others. what: names the option in messages. FSH_ERR_USAGE: fewer than 2 or more than
 * `most` parts. */
FshStatus options_split_colon(const char *what, const char *text, char (*parts)[256], size_t most,
                              size_t *count_ret, FshError *error);

/* Reads "12.5%" as strtod reads 12.5e-2: the same number as 0.125, to the last bit. Returns false if the
 * whole text is no percentage. */
bool options_parse_percent(const char *text, double *value_ret);
/* Reads a whole text such as "160M", "4GiB", "1024". Returns false if it is no size or overflows. */
bool options_parse_size(const char *text, uint64_t *bytes_ret);
/* Writes the shortest exact form that options_parse_size reads back: "64M", "1000". */
void options_format_size(char *buffer, size_t buffer_bytes, uint64_t bytes);

#endif
