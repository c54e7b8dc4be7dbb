/* contents.h - what lies in a dataset's folder, and which of it is fpack's.
 *
 * Names say what a file could be, content what it is. Its own are: a dataset.json of the format; what that
 * lists; shards, known by their first bytes; tars whose .json are ours, and their indexes; LMDBs that
 * fsh_open reads; and the hidden names that nobody else gives (marks, progress, temporaries). Everything else
 * is foreign, a train.lmdb of another program too, and is never removed. */
#ifndef FSHARD_TOOLS_JOB_CONTENTS_H
#define FSHARD_TOOLS_JOB_CONTENTS_H

#include <limits.h>
#include <stdbool.h>

#include "common/error.h"
#include "formats/fshard.h"

#define CONTENTS_PARTIAL_NAME   FSH_UNFINISHED_NAME
#define CONTENTS_BLUEPRINT_NAME ".fpack-plan.json"
#define CONTENTS_UPDATE_NAME    ".fpack-update" /* the folder into which an update packs */
#define CONTENTS_PART_NAME      ".fpack-part-"  /* and the part: its lock; see destination.h */

typedef struct Contents {
    bool exists;
    bool finished;          /* dataset.json */
    bool unfinished;        /* the mark, or outputs without a manifest */
    bool outputs;           /* at least one shard or LMDB */
    bool shards;            /* at least one shard */
    char id[33];            /* what the mark says; "" when it says nothing */
    char foreign[PATH_MAX]; /* a file that is not fpack's, relative to the folder, or "" */
} Contents;

/* Fills *contents with what lies in folder. A folder that does not exist is no failure. FSH_ERR_EXISTS:
 * folder is a file. FSH_ERR_SYSTEM, FSH_ERR_MEMORY. */
FshStatus contents_look(const char *folder, Contents *contents, FshError *error);

/* Sets of what can be removed. */
enum {
    CONTENTS_MANIFEST = 1,
    CONTENTS_OUTPUTS = 2,
    /* .train-00000-of-00002.fshard.json: see pack_resume.h; the blueprint; locks of parts */
    CONTENTS_PROGRESS = 4,
    CONTENTS_TEMPORARY = 8, /* .train-00000-of-00002.fshard.tmp-4711-0 */
    CONTENTS_PARTIAL = 16,  /* .fpack-unfinished */
    CONTENTS_LISTS = 32,    /* train-wids.json, which is written with the manifest */
    CONTENTS_SOURCES = 64,  /* .train-00000-of-00002.fshard.sources: see formats/source_list.h */
    CONTENTS_UPDATE = 128,  /* of an update: .fpack-update; .dataset-3.json, see formats/manifest_lock.h */
    CONTENTS_DATASET = CONTENTS_MANIFEST | CONTENTS_OUTPUTS | CONTENTS_PROGRESS | CONTENTS_TEMPORARY |
                       CONTENTS_LISTS | CONTENTS_SOURCES | CONTENTS_UPDATE,
};

/* Removes what is in the set, the manifest first, so that a stop half-way leaves something that is seen to be
 * unfinished. Goes by names: to be called where contents_look has found nothing foreign. */
FshStatus contents_remove(const char *folder, unsigned set, FshError *error);
/* Returns whether this is the name of an output: a shard, an LMDB, a tar or its index. */
bool contents_is_output(const char *name);
/* Removes the folder into which an update has packed, if it is there. */
FshStatus contents_remove_update(const char *path, FshError *error);

#endif
