/* check.h - between check.c (a dataset: which files, in which order, what they must add up to) and
 * check_file.c (one file). */
#ifndef FSHARD_FORMATS_CHECK_H
#define FSHARD_FORMATS_CHECK_H

#include "formats/metadata.h"
#include "formats/split_file.h"

/* What is to be checked. */
typedef struct FileCheck {
    const char *path, *name;
    const Container *container;
    FshCheckLevel level;
    const Metadata *expected; /* NULL, with info, where there is no manifest */
    const FshFileInfo *info;
    size_t file_index, file_count; /* file_count 0: see fsh_split_file_compare */
    bool updated;                  /* info is a shard's of an updated dataset */
    bool with_contents;            /* FileReport.contents is wanted */
    const FshCounting *counting;   /* or NULL */
} FileCheck;

typedef struct FoundProblem {
    FshStatus status;
    int64_t record;
    char *key, *source, *reason; /* owned */
} FoundProblem;

/* What was found. A slot of the pool: starts zeroed, is filled, delivered, emptied, filled again. */
typedef struct FileReport {
    FoundProblem *problems;
    size_t problem_count, problem_capacity;
    SplitFile file;  /* mapped until the report is emptied, so that other files' keys can be told apart */
    bool indexed;    /* file's rows can be trusted */
    bool torn;       /* they are those before the place where the file breaks off, which is reported */
    FshHash128 hash; /* of the file as it is, where it could be computed */
    FshHash128
        *keys; /* XXH3-128 of each record's key; zero where it is not known; NULL below FSH_CHECK_RECORDS */
    FshHash128 *contents;   /* of each record's payloads; likewise; NULL unless asked for */
    uint64_t *class_counts; /* class_count of them, from the labels; NULL where they are not known */
    size_t class_count;
    void *counted; /* as FshCounting says; NULL where nobody counts, or a sample wants a closer look */
} FileReport;

/* Fills report (emptied before). Fails only for want of memory or when interrupted; all else are problems. */
FshStatus fsh_check_file(const FileCheck *check, FileReport *report, FshError *error);

/* Appends a problem. sample may be NULL, or gives key and source. */
FshStatus fsh_report_add(FileReport *report, FshStatus status, int64_t record, const FshSample *sample,
                         const char *reason, FshError *error);
/* Appends a problem as a function of (found) left it. */
FshStatus fsh_report_found(FileReport *report, int64_t record, const FshSample *sample, const FshError *found,
                           FshError *error);
/* Makes room for the counts of class_count classes, zeroed. FSH_ERR_MEMORY. */
FshStatus fsh_report_classes(FileReport *report, size_t class_count, FshError *error);
/* Fills *sample with the record that the index leads to. Returns false if there is none of good structure. */
bool fsh_report_sample(const FileReport *report, uint64_t record, FshSample *sample);
/* Frees what it holds; also the pool's way to free a slot. */
void fsh_report_empty(void *slot);

#endif
