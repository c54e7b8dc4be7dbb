/* pack_update_parts.h - what the parts of an update share: pack_update.c, pack_update_old.c,
 * pack_update_compare.c, pack_update_classes.c, pack_update_write.c. */
#ifndef FSHARD_PACK_UPDATE_PARTS_H
#define FSHARD_PACK_UPDATE_PARTS_H

#include "formats/source_list.h"
#include "tools/pack/pack_update.h"

/* A shard that is there. */
typedef struct OldFile {
    const FshFileInfo *info;
    uint32_t split; /* PackSplitIndex */
    Buffer sources; /* the file beside it */
    SourcesHead head;
    const uint8_t *rows_end;
    PixelStatistics statistics; /* of all its records */
    bool ours;                  /* of the folder that is packed now */
    uint64_t first_record, record_count;
    uint64_t live_count; /* of its records, that stay; none where it is packed again */
    FshRowRange *removed;
    size_t removed_count; /* rows that are no samples once it is updated; owned */
} OldFile;

/* A sample that is there. */
typedef struct OldRecord {
    const char *key;                  /* key_bytes long; in its file's sources */
    const uint8_t *row;               /* there, for fsh_sources_next */
    uint64_t sample;                  /* its index in the split */
    uint32_t key_bytes, file, number; /* number: its row in the shard */
    int32_t label;
    bool live, seen; /* it stays; a planned sample has its key */
} OldRecord;

/* Opens the dataset and fills files and records. (pack_update_old.c) */
FshStatus update_open_old(Update *update, FshError *error);
/* Says which of the files come from the folder that is packed now. FSH_ERR_MISMATCH: none does. */
FshStatus update_find_ours(Update *update, FshError *error);
/* Reads what a record was made of. */
FshStatus update_old_sources(const Update *update, const OldRecord *record, SourceRecord *sources,
                             FshError *error);

/* Finds what is unchanged, and leaves the rest in the plan. (pack_update_compare.c) */
FshStatus update_compare(Update *update, PackPlan *plan, FshError *error);

/* Returns whether the dataset, but for what the plan would add, is to stay as it is. (pack_update.c) */
bool update_is_same(const Update *update, const PackPlan *plan);

/* Gives the plan the classes that the dataset has afterwards, and its samples their labels.
 * (pack_update_classes.c) */
FshStatus update_classes(Update *update, PackPlan *plan, FshError *error);
/* Makes, for each class of the manifest, its index among the plan's classes or -1. Owned by the caller; NULL:
 * out of memory. */
int32_t *update_map_classes(const FshManifest *manifest, const PackKeyed *keyed);

/* Compares the options with those that the dataset was packed with, and warns of what another folder should
 * have had too. (pack_update_options.c) */
FshStatus update_check_options(const Update *update, PackPlan *plan, FshError *error);
/* Makes provenance of the updated dataset. The text is the caller's. */
FshStatus update_provenance(const Update *update, const PackPlan *plan, uint64_t left_out_count,
                            const PixelStatistics *sums, char **text_ret, FshError *error);

/* Makes the manifest of the dataset afterwards from that of the new shards, which it takes over.
 * (pack_update_manifest.c) */
FshStatus update_manifest(Update *update, const PackPlan *plan, FshManifest *fresh, uint64_t left_out_count,
                          FshManifest *manifest_ret, FshError *error);

#endif
