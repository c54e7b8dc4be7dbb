/* verify_report.h - what fverify tells: a table for people, an object for machines. */
#ifndef FSHARD_VERIFY_VERIFY_REPORT_H
#define FSHARD_VERIFY_VERIFY_REPORT_H

#include <jansson.h>
#include <limits.h>
#include <stdio.h>

#include "tools/verify/verify.h"

typedef struct VerifyPrint {
    const VerifyOptions *options; /* what was not looked at is not claimed */
    bool quiet;                   /* problems only */
    bool verbose;                 /* every class and every problem */
} VerifyPrint;

/* Writes to text what was looked at, and no more: "checksums of files and records, 300 images decoded", …
 * Returns text. */
const char *verify_claim(char *text, size_t text_bytes, const VerifyReport *report,
                         const VerifyOptions *options);

/* Returns whether the folder of --against is likely another than the one that was packed: of ten images whose
 * sources records name, nine or more are not there, and more than one. */
bool verify_root_is_wrong(const VerifyReport *report);

/* Returns whether a problem is that the source of a record is not there: of all problems of records that have
 * a source, it alone is of this kind. */
bool verify_is_absent(const VerifyProblem *problem);

enum { VERIFY_WRONG_ROOT_BYTES = 3 * PATH_MAX + 320 };

/* Writes to text how many of the sources are below the folder, which verify_root_is_wrong says is likely
 * another, what fpack was given, and which folder nearby has them. Returns text, which ends with no new
 * line. */
const char *verify_wrong_root(char *text, size_t text_bytes, const VerifyReport *report, const char *folder);

/* What verify_is_listed has counted; {0} before the first problem. */
typedef struct VerifyListed {
    size_t absent_count, other_count;
} VerifyListed;

/* Returns whether a list of problems has room for the next one, and counts it then: for `most`; but of absent
 * sources, where verify_root_is_wrong, for three besides, since it is told of all of them at once. */
bool verify_is_listed(const VerifyReport *report, const VerifyProblem *problem, size_t most,
                      VerifyListed *listed);

/* Prints what is wrong, a line each: all of it, or what verify_is_listed takes with fifty at most. */
void verify_print_problems(FILE *stream, const VerifyReport *report, bool all);

/* Prints splits, classes, images, then the problems or "ok". */
void verify_print(FILE *stream, const VerifyReport *report, const VerifyPrint *print);

/* Returns the report as an object; a new reference, NULL when out of memory. (verify_json.c) */
json_t *verify_to_json(const VerifyReport *report, const VerifyOptions *options);

/* Returns what is wrong, as an array. */
json_t *verify_problems_to_json(const VerifyReport *report);

#endif
