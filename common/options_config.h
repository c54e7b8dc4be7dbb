/* options_config.h - the values of options from a file, and back.
 *
 *   # a comment
 *   model = "resnet50"
 *   batch-size = 256          # the names are the options'; "_" for "-" as on the command line
 *   nesterov = true
 *
 * Two languages, told apart by the first character that is no blank: a JSON object (RFC 8259), which begins
 * with "{", and otherwise TOML 1.0 as far as options need it: one "key = value" a line, keys bare or quoted,
 * basic and literal strings of one line, lists of them for options that may be given several times, integers
 * (with "_" between digits), floats, booleans, comments. A table or a date is refused by line. A JSON object
 * with a member "options" that is an object gives that: so the args.json of a run is such a file. Where it
 * has an array "given" beside it, only the options of those names are taken: the others were left open.
 *
 * One table is understood, the last part of a file: [recipe], facts about a set of values
 * (OptionTable.preset), in JSON a member "recipe" that is an object. It names no options, and whoever asks
 * for the set reads it. The options of such a file are a set of values; of an args.json only those in the
 * array "gives" of that member.
 *
 * A JSON null is an option left as it is. An option twice in one file, in whatever spelling, is refused.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_COMMON_OPTIONS_CONFIG_H
#define FSHARD_COMMON_OPTIONS_CONFIG_H

#include <jansson.h>

#include "common/options.h"

/* Reads path (at most a MiB) into a new object, *object_ret. FSH_ERR_USAGE: "run.toml:3: …". */
FshStatus options_config_read(const char *path, json_t **object_ret, FshError *error);

/* Reads the text of such a file. path names it in messages. FSH_ERR_USAGE. */
FshStatus options_config_parse(const char *path, const char *text, size_t length, json_t **object_ret,
                               FshError *error);

/* Stores every value into the table's options, as if it stood on the command line; the command line comes
 * later and wins. Texts point into object, which must live as long as the values. path names the file in
 * messages. FSH_ERR_USAGE: no such option, an option that no file may give (OPTION_NOT_IN_FILE), a
 * value it does not take. */
FshStatus options_config_apply(const OptionTable *table, const char *path, const json_t *object,
                               FshError *error);

/* Sets *preset_ret to a new object of the file's facts about a set of values, with a member "options": those
 * of the set, which it takes out of the file's object. NULL: the file has no such facts. FSH_ERR_MEMORY. */
FshStatus options_config_take_preset(json_t *object, json_t **preset_ret, FshError *error);
/* Gives the members of the preset's "options", which have been stored, the names of the options; drops nulls.
 * FSH_ERR_MEMORY. */
FshStatus options_config_rename(const OptionTable *table, json_t *preset, FshError *error);
/* Drops those of the preset's "options" that the object has too, in whatever spelling. NULL is fine. */
void options_config_replace(const OptionTable *table, const json_t *object, json_t *preset);

/* Writes an option's name as Python spells it, train_crop_size, to name. Returns name. */
const char *options_python_name(const char *option, char *name, size_t name_bytes);
/* Returns the values of all options, except those with one of the marks `without`, as such an object, by
 * names with "_" for "-" (as Python spells them), in table order. NULL: no memory. */
json_t *options_config_object(const OptionTable *table, unsigned without);
/* Returns the names of those that were given, on the command line or in a file (Option.given). NULL: no
 * memory. */
json_t *options_config_given(const OptionTable *table, unsigned without);
/* Prints the options as TOML with headings and each option's help above it: a file to begin from. Options
 * that are unset (NULL) or were not given are commented out, so that they are as open when read back, and
 * those of them that vary (OPTION_VARIES) have no value. preset: its facts follow as [recipe]; NULL: none. */
void options_config_print(const OptionTable *table, unsigned without, const json_t *preset, FILE *stream);

#endif
