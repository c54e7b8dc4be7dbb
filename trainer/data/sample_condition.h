/* sample_condition.h - a condition on samples, as ftrain --where has it: reads it, and says whether it holds.
 *
 *   class in dogs.txt and not (key ~ '*_sketch*' or key in bad.txt)
 *
 *   condition:  test | not condition | condition and condition | condition or condition | ( condition )
 *   test:       class = NAME   class ~ 'GLOB'   class in FILE      or their opposites: != !~ not in
 *               key …          the same of the sample's key
 *               split …        the same of the name of its split
 *
 * `not` binds closest, then `and`, then `or`. A name without blanks, quotes, parentheses and = ~ ! needs no
 * quotes; else it stands in '…' or "…", as it is. In a GLOB * is any text, / included, ? any character,
 * [a-c] one of these, [!a-c] none of them. A FILE has a name on each line (name_list.h); a name for keys may
 * have one extension more than the key: that of the file which was packed.
 *
 * Threads: one; the answers for a split may be asked for by any number of threads. */
#ifndef FSHARD_TRAINER_DATA_SAMPLE_CONDITION_H
#define FSHARD_TRAINER_DATA_SAMPLE_CONDITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

typedef struct SampleCondition SampleCondition;

/* Reads a condition; *condition_ret is the caller's, NULL on failure. Its files are not read yet.
 * FSH_ERR_USAGE: the message says what was expected, and shows the place. FSH_ERR_MEMORY. */
FshStatus sample_condition_parse(SampleCondition **condition_ret, const char *text, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void sample_condition_free(SampleCondition **condition);

/* Reads the files that the condition names, and answers its tests of classes once for all: to be called
 * once, before an answer is asked for. FSH_ERR_USAGE: names[0..count), the classes, are none, and it tests
 * them; a class that it names is none of them (the message names file and line), or no class matches a
 * GLOB. FSH_ERR_MISMATCH: a file names nothing. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus sample_condition_prepare(SampleCondition *condition, const char *const *names, size_t count,
                                   FshError *error);

/* Answers the tests of splits: what follows is asked of samples of this one. */
void sample_condition_take_split(SampleCondition *condition, const char *name);

typedef enum ConditionAnswer { CONDITION_NO, CONDITION_YES, CONDITION_BY_KEY } ConditionAnswer;

/* Returns whether the condition holds for all samples of a class (FSH_NO_LABEL: those without), for none of
 * them, or as their keys are. */
ConditionAnswer sample_condition_of_class(const SampleCondition *condition, int64_t class_index);
/* Returns whether the condition holds for a sample. */
bool sample_condition_holds(const SampleCondition *condition, int64_t class_index, const char *key,
                            size_t key_bytes);

/* Returns how many of the names in the condition's files of keys no sample has had that was asked for, and
 * sets *first_ret to the first of them, borrowed, and *file_ret to its file. */
uint64_t sample_condition_unmet(const SampleCondition *condition, const char **first_ret,
                                const char **file_ret);

/* Returns whether a text matches a GLOB, both without final NUL. */
bool sample_condition_matches(const char *glob, size_t glob_bytes, const char *text, size_t text_bytes);

#endif
