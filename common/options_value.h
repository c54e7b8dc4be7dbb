/* options_value.h - the value of one option: a text is checked and stored by the option's kind, or answered
 * with what was probably meant. Internal to options.c; options.h has what programs call.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_COMMON_OPTIONS_VALUE_H
#define FSHARD_COMMON_OPTIONS_VALUE_H

#include "common/options.h"

enum { OPTIONS_WORD_MAX = 63 }; /* characters of a name or choice that is compared with others */

/* Returns the optimal string alignment distance: insert, delete, replace, swap two neighbours, each of cost
 * 1. Both texts have at most OPTIONS_WORD_MAX characters. */
unsigned options_distance(const char *a, const char *b);

/* Returns the i-th of some names; NULL after the last. */
typedef const char *OptionsNameAt(size_t i);

/* Writes the names that are nearest to what was typed to buffer, "resnet9 or resnet50", and returns it: those
 * of which at most a third of the letters and 3 of them are wrong, whatever their case; "" where none is. */
const char *options_names_near(const char *typed, OptionsNameAt *name_at, char *buffer, size_t buffer_bytes);

/* Returns what the option's hints say about a value, "" for a missing or unknown one; NULL: nothing. */
const char *options_hint(const Option *option, const char *text);

/* Stores the text in option->value; the option is no flag. FSH_ERR_USAGE: it is no value of this kind, or
 * out of range, with what is; FSH_ERR_MEMORY. */
FshStatus options_store_value(const Option *option, const char *text, FshError *error);

#endif
