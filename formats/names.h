/* names.h - names and how they are written: codecs, kinds, ids, hashes, splits, files; lists of names.
 *
 * Threads: any. */
#ifndef FSHARD_FORMATS_NAMES_H
#define FSHARD_FORMATS_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/fshard.h"

enum { FSH_ID_DIGITS = 32, FSH_HASH_TEXT_BYTES = 33, FSH_FILE_NAME_BYTES = 128 };

bool fsh_codec_known(unsigned codec);
/* Returns whether an id is 32 lower-case hexadecimal digits. */
bool fsh_id_valid(const char *id);
/* Returns whether a name consists of letters, digits, '_' and '-', the first a letter or digit, at most 64:
 * it becomes part of a file name. */
bool fsh_split_name_valid(const char *name);
/* Returns the name under which a folder would be that of a split, "train" of "Train" and "TRAIN"; NULL: it is
 * so as it is called, or is none in small letters either. */
const char *fsh_split_in_small_letters(const char *name);
/* Returns whether each name is that of a split's folder, in small letters or not, and there is one: then none
 * is a class. */
bool fsh_are_split_names(char *const *names, size_t count);
/* Returns the last part of path, slashes at its end left out: "b" of "a/b/"; *length_ret is its length. What
 * stands before it in path is its folder. */
const char *fsh_path_name(const char *path, size_t *length_ret);
/* Returns whether this is the name of a file in the manifest's own folder: no '/', not hidden, not empty, at
 * most 255 bytes. */
bool fsh_file_name_valid(const char *name);
const char *fsh_kind_name(FshKind kind);
/* Sets *kind_ret to the kind that text names. Returns false if text names none. */
bool fsh_kind_from_name(const char *text, FshKind *kind_ret);
/* Writes 32 digits and a NUL to text. */
void fsh_hash_format(const FshHash128 *hash, char text[FSH_HASH_TEXT_BYTES]);
bool fsh_hash_parse(const char *text, FshHash128 *hash_ret);
bool fsh_hash_equal(const FshHash128 *a, const FshHash128 *b);

/* ---- lists ---- */

/* Copies count strings. FSH_ERR_MEMORY. */
FshStatus fsh_names_copy(char ***copy_ret, const char *const *names, size_t count, FshError *error);
void fsh_names_free(char **names, size_t count);
bool fsh_names_equal(char *const *a, size_t a_count, char *const *b, size_t b_count);
/* Checks a list of names. FSH_ERR_USAGE, naming `what`, when a name is NULL, empty, not UTF-8 or there
 * twice. */
FshStatus fsh_names_check(const char *what, const char *const *names, size_t count, FshError *error);

#endif
