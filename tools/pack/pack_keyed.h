/* pack_keyed.h - the second phase of a plan: the samples, each with a key, a label and the split it was found
 * in.
 *
 *   PackKeyed keyed;
 *   FshStatus status = pack_key(&found, &keyed, &error);
 *   pack_keyed_free(&keyed);                                          // after a failure, too
 *
 * Which part makes the samples depends on what was found: class folders (pack_classes.c), side folders
 * (pack_pairs.c), a list (pack_list.c) or a dataset (pack_dataset.c). Then, for all of them: keys that differ
 * (pack_keys.c), --classes (pack_chosen.c), what people call the classes, --dedupe (pack_dedupe.c). */
#ifndef FSHARD_PACK_KEYED_H
#define FSHARD_PACK_KEYED_H

#include "tools/pack/pack_found.h"
#include "tools/pack/pack_names.h"

typedef struct PackSample {
    const char *key; /* key_bytes long, not NUL-terminated; owned by what was found, or by PackKeyed */
    uint32_t key_bytes;
    int32_t label;         /* index into class_names, or -1 */
    uint32_t split;        /* PackSplitIndex */
    const uint64_t *items; /* of each field, in PackKeyed.items */
} PackSample;

/* All fields are written by pack_key; the samples move on to pack_split. */
typedef struct PackKeyed {
    const PackFound *found;
    PackSample *samples; /* owned; NULL after pack_split took them */
    uint64_t sample_count;
    uint64_t *items; /* what the samples' items point into; owned */
    uint64_t item_count;
    char **class_names; /* byte order, or that of --classes */
    size_t class_count;
    char **display_names; /* of the classes, as the manifest has them; NULL: none */
    char **mask_names;    /* of the values of masks; NULL: none */
    size_t mask_name_count;
    char *key_storage;                /* keys that are not part of a path */
    NameList made_keys;               /* keys that got a number */
    uint64_t duplicates[PACK_SPLITS]; /* samples that --dedupe left out of each split */
    uint64_t other_class_count;       /* images of classes that --classes does not name */
    char other_class_example[PATH_MAX];
    char pair_hint[320]; /* the --pair-suffix by which images without counterpart would pair up; "": none */
} PackKeyed;

/* Fills *keyed from what was found, which must stay where it is. FSH_ERR_NOT_FOUND: no image in the layout
 * that was looked for. FSH_ERR_MISMATCH: splits with different classes, or nothing left of one.
 * FSH_ERR_USAGE: options that contradict what was found. FSH_ERR_INTERRUPTED, FSH_ERR_MEMORY. */
FshStatus pack_key(const PackFound *found, PackKeyed *keyed, FshError *error);

/* Frees what pack_key took, and empties *keyed. */
void pack_keyed_free(PackKeyed *keyed);

/* Returns where a field of a sample comes from. */
PackSource sample_source(const PackFound *found, const PackSample *sample, size_t field);

/* Returns what messages call that source: its path or, where it has none, the sample's key. Written to
 * buffer, cut to PATH_MAX - 1 bytes. */
const char *sample_source_name(const PackFound *found, const PackSample *sample, size_t field,
                               char buffer[PATH_MAX]);

/* ---- for the parts of this phase ---- */

/* Makes room for count samples with all their items. FSH_ERR_MEMORY. */
FshStatus keyed_reserve(PackKeyed *keyed, uint64_t count, FshError *error);
/* Appends a sample and copies its items, one for each field. There is room. */
void keyed_add_sample(PackKeyed *keyed, const char *key, size_t key_bytes, int32_t label,
                      PackSplitIndex split, const uint64_t *items);

/* Fills samples and class_names; one function for each kind of source. */
FshStatus key_classes(PackKeyed *keyed, FshError *error);
FshStatus key_pairs(PackKeyed *keyed, FshError *error);
FshStatus key_list(PackKeyed *keyed, FshError *error);
FshStatus key_dataset(PackKeyed *keyed, FshError *error);

/* One image of one side. */
typedef struct SideImage {
    const char *key; /* key_bytes long */
    size_t key_bytes;
    uint64_t file;
    uint32_t split, field;
} SideImage;

/* Looks for two ends of names, one for each side, by which most of the count orphans would pair up. An orphan
 * is an image without counterpart; they come in order of split, key and field. Fills keyed->pair_hint if it
 * finds such ends. FSH_ERR_MEMORY. (pack_suffix.c) */
FshStatus key_hint_suffix(PackKeyed *keyed, const SideImage *orphans, size_t count, FshError *error);

/* Makes keys differ within each split: those of files by their extensions, those of a dataset by a number,
 * with a warning. */
FshStatus key_mend(PackKeyed *keyed, FshError *error);

/* Warns of a folder called as that of a split but for capitals, which is taken for a class, or belongs to no
 * split. small: what a split's is called. flat: it has no folders, which would be its classes.
 * FSH_ERR_MEMORY. */
FshStatus keyed_warn_capitals(PackKeyed *keyed, const char *name, const char *small, bool is_class, bool flat,
                              FshError *error);

/* Counts an image that is left out because its class is not one of --classes. */
void keyed_count_other_class(PackKeyed *keyed, const char *path);
/* Applies --classes. */
FshStatus key_choose_classes(PackKeyed *keyed, FshError *error);

/* Gives every sample the class that its text names, and *keyed its classes. Classes are the texts in byte
 * order. If all texts are numbers, class i has name i of the file of --classes or, without that file, the
 * name "i". what: the file that the texts come from, for messages. */
FshStatus key_label_by_texts(PackKeyed *keyed, const char *const *texts, const char *what, FshError *error);
/* Does so with texts that are names, also where all are numbers. */
FshStatus key_label_by_names(PackKeyed *keyed, const char *const *texts, FshError *error);
/* Gives the samples of a tar, none of which has a label, the classes and splits of the folders in their keys,
 * [SPLIT/]CLASS/NAME, below what folders all of them share, and cuts split and such folders off the keys.
 * *labelled_ret: whether they lie so; images directly in a split's folder do not. FSH_ERR_MISMATCH: a class
 * that train does not have, two folders of one split, or folders called as sides of pairs.
 * (pack_folder_keys.c) */
FshStatus key_label_by_folders(PackKeyed *keyed, bool *labelled_ret, FshError *error);

/* Applies --dedupe: fills keyed->duplicates and warns of classes that are empty now. FSH_ERR_MISMATCH: a
 * split is, so training or its measure would be of nothing. */
FshStatus key_dedupe(PackKeyed *keyed, FshError *error);

#endif
