/* label_file.h - reads a file of keys and labels that stands beside the images: CSV or JSON lines.
 *
 *   LabelFile file;
 *   label_file_read(&file, "labels.csv", &options, &error);
 *   label_files_settle(&file, 1, NULL, &names, &error);              // classes get their numbers
 *   const LabelRow *row = label_file_find(&file, NULL, "val", "cat/17", 6);
 *   label_file_free(&file);
 *
 * CSV (RFC 4180; tabs in place of commas, or blanks where there is neither). The first column is the key of a
 * record, the others say what it is:
 *
 *   key,label                     a header is a first line whose first column is called key, file_name,
 * image,
 *   cat/1,cat                     id, path, … (label_file_is_key_name)
 *   key,label,label               labels of one image, as many as it has; also "cat|dog" or "cat;dog"
 *   key,cat,dog                   a column of 0 and 1 (or -1 and 1) for each class
 *   key,age,height                numbers, for LABELS_NUMBERS
 *
 * JSON lines: an object a line, whose key is a member called as a key column is, and whose labels are in
 * "label", "labels", "class", "classes", "target" or "targets": a text, a number, or a list of them. Numbers
 * in "target" and "targets" are LABELS_NUMBERS.
 *
 * A key is a record's key, or the path of its file: "./" and an extension may be there, a split's folder, the
 * name of its set before that, or nothing but the name. Empty lines, and lines that begin with #, are passed
 * over. CRLF and a byte order mark are fine.
 *
 * Threads: constant once settled. */
#ifndef FSHARD_TRAINER_DATA_LABEL_FILE_H
#define FSHARD_TRAINER_DATA_LABEL_FILE_H

#include "common/file.h"

/* What an image is to be told by; Hugging Face's problem_type. */
typedef enum LabelKind {
    LABELS_ONE,     /* one class */
    LABELS_MANY,    /* any number of classes, none too */
    LABELS_NUMBERS, /* numbers: regression */
    LABEL_KIND_COUNT
} LabelKind;
extern const char *const label_kind_names[]; /* "single-label", "multi-label", "regression", NULL */

typedef struct LabelFileOptions {
    int kind;            /* LabelKind; negative: as the file has them */
    const char *columns; /* "label" or "age,height": the header's columns that count; NULL: all but the key */
} LabelFileOptions;

typedef struct LabelRow {
    uint64_t key_at; /* in text */
    uint64_t first;  /* in members, or the number of the row's first value in numbers */
    uint32_t key_bytes, count;
    uint64_t line;
} LabelRow;

typedef struct LabelNames {
    char **names; /* of the classes or, of LABELS_NUMBERS, of the columns; owned */
    size_t count;
} LabelNames;

typedef struct LabelFile {
    const char *path; /* borrowed */
    LabelKind kind;
    LabelRow *rows; /* owned, as all below */
    uint64_t row_count;
    uint32_t *members; /* classes of the rows; before label_files_settle places in own.names */
    uint64_t member_count;
    float *numbers;          /* [row_count][own.count] */
    LabelNames own;          /* in the order of their first mention, or of the columns */
    bool columns;            /* a column for each class or number: their order is the columns' */
    char digest[33];         /* XXH3-128 of the file, in hexadecimal digits */
    Buffer text;             /* the file, whose keys were cut up in place */
    struct LabelSlot *slots; /* a hash table of the keys */
    uint64_t slot_count;     /* a power of two */
} LabelFile;

/* Reads the file. Borrows path. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM, FSH_ERR_MEMORY, FSH_ERR_UNSUPPORTED: of
 * the file. FSH_ERR_CORRUPT: a line that cannot be read, or a key that came before; the message begins with
 * PATH:LINE. FSH_ERR_USAGE: a column that the header lacks. On failure nothing is held. */
FshStatus label_file_read(LabelFile *file, const char *path, const LabelFileOptions *options,
                          FshError *error);
/* Frees everything and zeroes the struct; a zeroed one is fine. */
void label_file_free(LabelFile *file);

/* Numbers the classes of `count` files that are used together, and sets *names_ret to them, the caller's to
 * free: in the order of a list of names (a line for each) if there is one, else of the columns, else as whole
 * numbers if all are, else in byte order, as the folders of ImageFolder. Files of numbers must have the same
 * columns. FSH_ERR_MISMATCH: the files are of different kinds or columns, a class that the list lacks, fewer
 * than one class. FSH_ERR_NOT_FOUND and such: of the list. FSH_ERR_MEMORY. */
FshStatus label_files_settle(LabelFile *files, size_t count, const char *list, LabelNames *names_ret,
                             FshError *error);
/* Frees the names and zeroes the struct; a zeroed one is fine. */
void label_names_free(LabelNames *names);

/* Returns the row of a record, NULL if there is none: that of key, else of split/key, else of the key's name
 * alone; of each the whole first, then without the extension, where only one row fits. set: the name of the
 * record's set, which may stand before all. Then set/split/key comes first, split/key, set/key, key, and
 * set/name before the name alone; NULL: no key has it. */
const LabelRow *label_file_find(const LabelFile *file, const char *set, const char *split, const char *key,
                                size_t key_bytes);

/* Returns whether a key of the file begins with folder/. */
bool label_file_has_folder(const LabelFile *file, const char *folder);

/* Returns whether a column or member of this name holds keys, in any case, blanks, _ and - aside. */
bool label_file_is_key_name(const char *name, size_t bytes);

#endif
