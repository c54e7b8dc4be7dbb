/* verify.h - is a dataset whole? What is wrong with it, by file, record, key and source.
 *
 *   VerifyReport report = {0};
 *   FshStatus status = verify_path("shards/", &options, &report, &error);
 *   … report.problem_count == 0: all is well
 *   verify_report_free(&report);
 *
 * libfshard proves the bytes (structure, hashes, CRCs, labels, counts, content in two splits: fsh_check);
 * this adds what it cannot know: that every image decodes to what its record says, that their sizes are those
 * of the manifest, that they are those of the source tree, and that the sides of a pair look alike. */
#ifndef FSHARD_VERIFY_VERIFY_H
#define FSHARD_VERIFY_VERIFY_H

#include "formats/fshard.h"
#include "tools/job/part.h"
#include "tools/job/stats.h"
#include "tools/verify/verify_histogram.h"
#include "tools/verify/verify_missing.h"

typedef enum VerifyLevel {
    VERIFY_QUICK,   /* headers, indexes and whole-file checksums */
    VERIFY_RECORDS, /* and each record */
    VERIFY_DECODE,  /* and each image */
} VerifyLevel;

typedef struct VerifyOptions {
    const char *name; /* what to call the dataset, such as its address; NULL: its path */
    VerifyLevel level;
    bool overlap;        /* look for content that two splits share (not with VERIFY_QUICK, nor of a part) */
    Part part;           /* of the files of the manifest, as equal in bytes as they allow; {0, 0}: all */
    const char *against; /* the source tree to compare with, or NULL */
    bool pairs;          /* compare what the sides of pairs show */
    double likeness_min; /* a pair of less is suspicious */
    int jobs;
    bool no_progress;
} VerifyOptions;

/* FshProblem with strings of its own; key and source may be NULL. */
typedef struct VerifyProblem {
    FshStatus status;
    char *file, *key, *source, *reason;
    int64_t record;
} VerifyProblem;

enum { VERIFY_CODECS = 16 };

typedef struct VerifySplit {
    char *name;
    uint64_t file_count, sample_count, bytes; /* of the files that could be opened */
    uint64_t *class_counts;                   /* class_count entries, by label; NULL for pairs */
} VerifySplit;

/* A pair whose sides do not show the same. */
typedef struct VerifySuspect {
    size_t split; /* in manifest.splits */
    uint64_t index;
    double likeness;
} VerifySuspect;

typedef struct VerifyReport {
    char *path, *name;    /* where it is, and what it is called */
    bool opened;          /* the fields below say something */
    bool from_manifest;   /* not a single file */
    Part part;            /* {0, 0}: all of it was looked at */
    FshManifest manifest; /* dataset.json, or what the single file says of itself */
    VerifySplit *splits;  /* as in manifest.splits */
    /* From the records (not with VERIFY_QUICK alone). */
    uint64_t image_count, decoded_count, compared_count, pair_count;
    uint64_t source_count; /* images whose record names a source (with against), */
    uint64_t absent_count; /* and those of them whose source is not there */
    char *nearby_root;     /* a folder that has all nearby_count of them that were tried, or NULL; owned */
    size_t nearby_count;
    uint64_t codec_counts[VERIFY_CODECS], compressed_count;
    uint64_t gray_count, colour_count; /* of one channel and of three; of the others it is not told */
    PixelStatistics pixels;            /* with VERIFY_DECODE, of the split whose mean the manifest tells */
    Histogram widths, heights, bytes;  /* of images; bytes as they are stored */
    SourceSet sources;                 /* that records name (with against), */
    MissingImages missing; /* and what else is in the source tree: fpack may have left it out for a reason */
    double likeness_least; /* of all pairs, and the sum, for the mean */
    double likeness_sum;
    VerifySuspect *suspects; /* the pairs that are suspicious, the least alike first; each is a problem too */
    size_t suspect_count, suspect_capacity;
    VerifyProblem *problems; /* what libfshard found first, then the images', by file and record */
    size_t problem_count, problem_capacity;
    VerifyProblem *remarks; /* of libfshard: what is worth knowing, and is no problem */
    size_t remark_count, remark_capacity;
    struct VerifyKnown *known; /* of what libfshard found, in order: see verify_knows */
    size_t known_count;
    double seconds;
} VerifyReport;

/* Checks a dataset, and fills *report. path: whatever fsh_open opens. A path that is missing or cannot be
 * opened is a problem in the report, not a failure; but with a part it is one, of which nobody could tell the
 * part. FSH_ERR_MISMATCH: a part of what has no manifest with files of its own. FSH_ERR_MEMORY,
 * FSH_ERR_INTERRUPTED. The report is to be freed in every case. */
FshStatus verify_path(const char *path, const VerifyOptions *options, VerifyReport *report, FshError *error);
void verify_report_free(VerifyReport *report);

#endif
