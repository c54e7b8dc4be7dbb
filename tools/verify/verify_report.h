/* verify_report.h - what fverify tells: a table for people, an object for machines. */
#ifndef FSHARD_VERIFY_VERIFY_REPORT_H
#define FSHARD_VERIFY_VERIFY_REPORT_H

#include <jansson.h>
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

/* Returns whether the folder of --against is likely another than the one that was packed: of ten sources
 * that records name, nine or more are not there. */
bool verify_root_is_wrong(const VerifyReport *report);

/* Prints what is wrong, a line each; all of them, or the first fifty, or three where what is wrong is the
 * folder of --against, which is told. */
void verify_print_problems(FILE *stream, const VerifyReport *report, bool all);

/* Prints splits, classes, images, then the problems or "ok". */
void verify_print(FILE *stream, const VerifyReport *report, const VerifyPrint *print);

/* Returns the report as an object; a new reference, NULL when out of memory. (verify_json.c) */
json_t *verify_to_json(const VerifyReport *report, const VerifyOptions *options);

/* Returns what is wrong, as an array. */
json_t *verify_problems_to_json(const VerifyReport *report);

#endif
