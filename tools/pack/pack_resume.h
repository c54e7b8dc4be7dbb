/* pack_resume.h - what a finished output leaves behind, so that a stopped packing goes on without reading it
 * again.
 *
 * Beside each finished shard (or LMDB) lies a hidden file, .NAME.json, with what the manifest will need of
 * it: counts, sums of pixels, what was left out and why. It goes when the dataset is finished. An output
 * without it, or whose own id, size or hash disagree, or whose source files changed since, is made again. */
#ifndef FSHARD_PACK_RESUME_H
#define FSHARD_PACK_RESUME_H

#include "common/file.h"
#include "tools/pack/pack_plan.h"
#include "tools/job/stats.h"

/* What came of one output. */
typedef struct OutputResult {
    FshFileInfo info;
    uint64_t *class_counts; /* class_count entries; owned */
    uint64_t source_bytes;  /* read from the source for it */
    PixelStatistics statistics;
    PackPlanes planes; /* --store yuv420 */
    NoteList left_out;
    Buffer sources; /* fsh_sources_add's rows, of an output that is being made */
} OutputResult;

void output_result_free(OutputResult *result);

/* Writes the progress file of an output that was just finished in folder. None is written where a path left
 * out is no UTF-8, which JSON cannot hold: that output is then made again after a stop. */
FshStatus resume_save(const PackPlan *plan, const PackOutput *output, const char *folder,
                      const OutputResult *result, FshError *error);

enum { RESUME_SOURCES_BYTES = 17 };

/* What is asked for. */
typedef struct ResumeKey {
    const char *id, *split, *name; /* of the dataset, of the split, of the file */
    FshContainer container;
    size_t class_count;
    const char *sources; /* what resume_sources says of the output; NULL: made from whatever sources */
} ResumeKey;

/* Writes to text a hash over path, size and modification time of the output's sources, as hexadecimal digits:
 * content is taken to be unchanged where these are. */
void resume_sources(const PackPlan *plan, const PackOutput *output, char text[RESUME_SOURCES_BYTES]);

/* Fills *result if the output lies in folder and is what was asked for; *kept_ret says so. Only running out
 * of memory is a failure. */
FshStatus resume_load(const ResumeKey *key, const char *folder, OutputResult *result, bool *kept_ret,
                      FshError *error);

/* Writes to buffer the name of the progress file of an output: ".NAME.json". Returns buffer. */
const char *resume_name(char *buffer, size_t buffer_bytes, const char *name);

/* Writes a hash as 32 hexadecimal digits; the second reads it back, and returns false where text is something
 * else. */
void resume_hash_to_text(const FshHash128 *hash, char text[33]);
bool resume_hash_from_text(const char *text, FshHash128 *hash);

#endif
