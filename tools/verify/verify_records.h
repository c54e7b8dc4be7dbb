/* verify_records.h - every record of one file: geometry, and each image decoded. */
#ifndef FSHARD_VERIFY_VERIFY_RECORDS_H
#define FSHARD_VERIFY_VERIFY_RECORDS_H

#include "common/progress.h"
#include "tools/verify/verify.h"

/* Adds a problem; strings are copied, key and source may be NULL. FSH_ERR_MEMORY. */
FshStatus verify_add_problem(VerifyReport *report, const FshProblem *problem, FshError *error);

/* Whether something is known to be wrong with this record already. */
bool verify_knows(const VerifyReport *report, const char *file, int64_t record);

/* Checks all samples of split, which is the whole of `file`, on options->jobs threads, and adds to the
 * report: image counts and sizes, and problems in the order of the records. */
FshStatus verify_records(const FshSplit *split, const char *file, const VerifyOptions *options,
                         Progress *progress, VerifyReport *report, FshError *error);

#endif
