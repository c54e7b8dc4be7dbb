/* resize_source.h - where images come from, one after another, in an order that is the same each time.
 *
 *   a folder                every file below it, in byte order of the paths, found while the first ones are
 *                           worked on
 *   a folder and a list     the files that the list names, in its order (--files-from)
 *   a folder of pairs       each file of one side together with its partner (--pairs, --masks)
 *   a tar                   its files in its order, tars in it as folders (tar_read.h)
 *
 * Threads: one source belongs to one thread at a time. */
#ifndef FSHARD_RESIZE_SOURCE_H
#define FSHARD_RESIZE_SOURCE_H

#include <limits.h>
#include <stdbool.h>

#include "common/file.h"
#include "tools/job/labels.h"

enum { RESIZE_SIDE_BYTES = 256, RESIZE_REASON_BYTES = 256 };

typedef struct ResizeSourceOptions {
    const char *path;                 /* SRC: a folder or a tar */
    const char *name;                 /* what to call a tar that a server has; NULL: its path */
    const char *files_from;           /* a list of paths below SRC; "-": standard input; NULL: none */
    const char *avoided;              /* a folder that links are not followed into: DST; NULL: none */
    bool null_separated;              /* the list's paths end in NUL instead of newline */
    const Labels *labels;             /* images go to the folder of their label; NULL: none */
    char sides[2][RESIZE_SIDE_BYTES]; /* names of the two sides' folders; "": no pairs */
    bool masks;                       /* the second side holds masks: PNGs whose values are classes */
} ResizeSourceOptions;

/* One image, or one pair; kept by the caller and filled anew. */
typedef struct ResizeItem {
    char path[PATH_MAX]; /* in the source: what messages, report and parts call it */
    /* below the destination, extension as in path; usually path itself; "": it has no label, which matters if
     * it is an image */
    char name[PATH_MAX];
    char partner[PATH_MAX]; /* pairs: where the other side's image is if it has the same extension; else "" */
    /* of a pair that comes, or came, with its first: nothing to do if there is a first */
    bool is_second_side;
    bool is_unplaced; /* pairs: lies below no side; labels: has none */
    bool is_outside;  /* pairs: lies below no side, or several, as reason says; matters if it is an image */
    /* not "": there is nothing to read, and why; only path is set besides */
    char reason[RESIZE_REASON_BYTES];
    bool is_unread;      /* with reason: the system failed; another time it can be read */
    bool in_tar;         /* content has to be loaded; else SRC/path is a file to open */
    uint64_t bytes;      /* in_tar */
    int64_t modified_ns; /* in_tar */
    Buffer content;      /* in_tar, after resize_source_load; freed by the caller */
} ResizeItem;

typedef struct ResizeSource ResizeSource;

/* Returns whether SRC is a tar rather than a folder. */
bool resize_source_is_tar(const ResizeSourceOptions *options);

/* Opens a source. FSH_ERR_NOT_FOUND, FSH_ERR_SYSTEM; FSH_ERR_UNSUPPORTED: neither folder nor tar;
 * FSH_ERR_USAGE: pairs, or a list, of a tar. options stay the caller's and must live as long. */
FshStatus resize_source_open(ResizeSource **source, const ResizeSourceOptions *options, FshError *error);

/* Returns whether a path of this side, 0 or 1, is a mask's. */
bool resize_source_is_mask(const ResizeSourceOptions *options, size_t side);

/* Fills *item with the next image or pair; *end_ret: there is no more. Failures are the source's as a whole;
 * a file that cannot be read is an item with a reason. */
FshStatus resize_source_next(ResizeSource *source, ResizeItem *item, bool *end_ret, FshError *error);
/* Reads the content of the item that came last, in_tar only; most: bytes. On failure the item gets a reason,
 * and the source goes on; what is returned is a failure of memory or the like. */
FshStatus resize_source_load(ResizeSource *source, ResizeItem *item, uint64_t most, FshError *error);

/* Returns whether items can be found before their turn: not those of a tar, which are loaded in theirs, nor
 * those of a pipe, which may come one by one. */
bool resize_source_is_at_hand(const ResizeSource *source);
/* Returns whether paths come in byte order. */
bool resize_source_is_sorted(const ResizeSource *source);
/* Tells how far the source has come: *position_ret out of *extent_ret, which is 0 where it is not known. */
void resize_source_position(const ResizeSource *source, uint64_t *position_ret, uint64_t *extent_ret);
/* Returns how many names were passed over so far because they begin with ".". */
uint64_t resize_source_hidden_count(const ResizeSource *source);

/* Returns how many tars came to their end so far without an end marker, as tar_reader_unmarked does. */
uint64_t resize_source_unmarked(const ResizeSource *source, const char **first_ret);

/* Finds the partner of an item of pairs, below root: the file item->partner names, else the one image in that
 * folder whose name is the same but for the extension. FSH_ERR_NOT_FOUND: there is none; FSH_ERR_MISMATCH:
 * there are several. */
FshStatus resize_source_partner(const char *root, const ResizeItem *item, char partner[PATH_MAX],
                                FshError *error);

/* Frees and sets to NULL; NULL is fine. */
void resize_source_close(ResizeSource **source);

#endif
