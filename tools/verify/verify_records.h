/* verify_records.h - every record of one file: geometry, and as far as it is asked for its images. */
#ifndef FSHARD_VERIFY_VERIFY_RECORDS_H
#define FSHARD_VERIFY_VERIFY_RECORDS_H

#include "common/progress.h"
#include "tools/verify/verify.h"
#include "tools/verify/verify_against.h"

/* Adds a problem or, with status FSH_OK, a remark; strings are copied, key and source may be NULL.
 * FSH_ERR_MEMORY. */
FshStatus verify_add_problem(VerifyReport *report, const FshProblem *problem, FshError *error);

/* Adds a problem of sample `index` of split: its place, its key, and the source of one of its fields. sample:
 * NULL where it cannot be read. Nothing is added where libfshard has found this record wrong: see
 * verify_knows. */
FshStatus verify_add_sample_problem(VerifyReport *report, const FshSplit *split, uint64_t index,
                                    const FshSample *sample, unsigned field, const FshError *failure,
                                    FshError *error);

/* Notes what libfshard has found, once it has found all. FSH_ERR_MEMORY. */
FshStatus verify_know_problems(VerifyReport *report, FshError *error);

/* Returns whether libfshard found something wrong with this record (-1: with the file as a whole). O(log
 * problems): a disk may have spoiled a million records. */
bool verify_knows(const VerifyReport *report, const char *file, int64_t record);

/* What the samples of one file hold, counted while libfshard has them at hand. */
typedef struct VerifyTally {
    VerifyReport images; /* of which only image counts and sizes are used */
    /* how much larger the other sides of pairs are than the first; 0: no pair tells */
    uint32_t factor_min, factor_max;
} VerifyTally;

/* Counts a sample in a VerifyTally, as FshCounting's add. Returns false where verify_records would find
 * something wrong. */
bool verify_tally_sample(const FshSample *sample, void *own);
/* Adds to the report what verify_records would. Returns false, and adds nothing, where the sides of pairs do
 * not have the sizes that the report's manifest says. */
bool verify_add_tally(VerifyReport *report, const VerifyTally *tally);

/* Checks all samples of split on options->jobs threads, and adds to the
 * report: image counts and sizes, problems in the order of the records, and suspects, whose
 * split is left at 0 and whose index counts from split's first sample. against: NULL, or the source tree. */
FshStatus verify_records(const FshSplit *split, const VerifyOptions *options, const Against *against,
                         Progress *progress, VerifyReport *report, FshError *error);

#endif
