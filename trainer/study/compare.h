/* compare.h - ftrain --compare: a table on standard output, and a page.
 *
 * Threads: one. */
#ifndef FSHARD_TRAINER_STUDY_COMPARE_H
#define FSHARD_TRAINER_STUDY_COMPARE_H

#include "trainer/plan/train_options.h"
#include "trainer/study/comparison.h"

/* Compares the runs in these folders (comparison_open). options->output: the page, or the folder that gets
 * it as compare.html; NULL: the current folder. FSH_ERR_USAGE: no folder, or an option that does nothing
 * here. Fails as compare_check_page, comparison_open and comparison_write. */
FshStatus compare_runs(const TrainOptions *options, const char *const *folders, size_t count,
                       FshError *error);

/* Checks that the page may be written to path: nothing is there, or an earlier page. FSH_ERR_EXISTS: another
 * file, and force is not set. */
FshStatus compare_check_page(const char *path, bool force, FshError *error);

/* Prints the table, or with as_json an object with the path of the page, on the stream. FSH_ERR_MEMORY. */
FshStatus compare_print(const Comparison *comparison, const char *page, bool as_json, FILE *stream,
                        FshError *error);

extern const char compare_page_name[]; /* compare.html */

#endif
