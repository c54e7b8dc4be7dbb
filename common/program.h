/* program.h - the common part of every program's main.
 *
 *   int main(int argc, char **argv) { return program_main(argc, argv, &table, &settings, versions, run); }
 *
 * It makes sure that no file takes the place of a closed standard stream, parses, handles --help and
 * --version, installs the interrupt flag, calls run, prints the error once as "fpack: MESSAGE" on stderr
 * (control characters of file names as "?"; wrong usage also gets "Try 'fpack --help'."), checks that stdout
 * could be written, and returns the exit status: 0 done; 1 finished, but inputs failed, or a failure; 2
 * usage; 128 + signal (130, 143) interrupted, or 75 where the program can go on later
 * (interrupt_install_requeue). `PROGRAM --help-options` prints one spelling of an option a line, for the test
 * of the man pages; `PROGRAM --help-completion SHELL` the script that cmake/completion.cmake installs. */
#ifndef FSHARD_COMMON_PROGRAM_H
#define FSHARD_COMMON_PROGRAM_H

#include "common/options.h"

/* Options of every program; embed them first in the program's settings. */
typedef struct ProgramOptions {
    int64_t jobs; /* -j; 0: cores available */
    bool dry_run; /* -n */
    bool quiet;   /* print errors, warnings and what was asked for; no progress, sums or advice */
    bool verbose; /* -v */
    bool json;    /* print the result on stdout as one JSON object */
} ProgramOptions;

/* Rows to splice into a table: PROGRAM_OPTIONS(&settings.program) does not end the table. */
/* clang-format off */
#define PROGRAM_OPTIONS(p)                                                                                   \
    {.name = "jobs", .letter = 'j', .kind = OPTION_INTEGER, .value = &(p)->jobs, .argument = "N",            \
     .help = "threads to use; 0: as many as this process may use", .maximum = 4096, .group = "General",      \
     .marks = OPTION_FREE},                                                                                  \
    {.name = "dry-run", .letter = 'n', .kind = OPTION_FLAG, .value = &(p)->dry_run,                          \
     .marks = OPTION_FREE | OPTION_NOT_IN_FILE, .help = "say what would be done, write nothing"},            \
    {.name = "quiet", .letter = 'q', .kind = OPTION_FLAG, .value = &(p)->quiet,                              \
     .marks = OPTION_FREE, .help = "print errors, warnings and results only"},                               \
    {.name = "verbose", .letter = 'v', .kind = OPTION_FLAG, .value = &(p)->verbose,                          \
     .marks = OPTION_FREE, .help = "print more"},                                                            \
    {.name = "json", .kind = OPTION_FLAG, .value = &(p)->json,                                               \
     .marks = OPTION_FREE, .help = "print the result as one JSON object on standard output"}

/* Rows that give SRC and DST by name, for programs that take them as arguments:
 * PROGRAM_PATHS(&settings.source, &settings.destination), each a const char *. program_take_paths combines
 * both ways. */
#define PROGRAM_PATHS(source, destination)                                                                   \
    {.name = "src", .kind = OPTION_TEXT, .value = (source), .argument = "PATH",                              \
     .help = "the same as SRC, for older scripts", .group = "Paths"},                                        \
    {.name = "dst", .kind = OPTION_TEXT, .value = (destination), .argument = "PATH",                         \
     .help = "the same as DST, for older scripts"}
/* clang-format on */

typedef struct ProgramContext {
    const OptionTable *table;
    void *settings; /* the program's own struct, filled */
    const OptionArguments *arguments;
} ProgramContext;

/* Fills *source and *destination, which hold what --src and --dst (PROGRAM_PATHS) gave, or NULL, from the
 * arguments in their order. FSH_ERR_USAGE. */
FshStatus program_take_paths(const ProgramContext *context, const char **source, const char **destination,
                             FshError *error);

/* Prints text with control characters (text_character) as "?". Names of files may be hostile: a terminal must
 * not obey them, nor show them in another order. Use it for all text for people that the program did not make
 * itself. */
void program_print_text(FILE *stream, const char *text);

/* Does the program's work. Returns FSH_OK with *partial_ret true if all is done but some inputs failed (exit
 * 1). */
typedef FshStatus (*ProgramRun)(const ProgramContext *context, bool *partial_ret, FshError *error);

/* Writes the linked libraries to buffer, "libjpeg-turbo 2.1.5, libdeflate 1.14, libvips 8.14.1", and returns
 * it. Called only for --version, since naming a library may load it. */
typedef const char *(*ProgramVersions)(char *buffer, size_t buffer_bytes);

/* Runs a program and returns its exit status. Closes stdout, so call it last. Frees the table's lists
 * (OPTION_LIST). versions: may be NULL. */
int program_main(int argc, char **argv, const OptionTable *table, void *settings, ProgramVersions versions,
                 ProgramRun run);

#endif
