/* html_classes.h - class_counts.h in a page of common/html.h: the table of confusion, the weakest classes,
 * and all of them in a table that sorts. Part of html_report.h. */
#ifndef FSHARD_TRAINER_REPORT_HTML_CLASSES_H
#define FSHARD_TRAINER_REPORT_HTML_CLASSES_H

#include "common/html.h"
#include "trainer/report/class_counts.h"

/* Adds the sections; class_names: [classes], or NULL: numbers. Nothing where no sample was counted. */
void html_add_classes(HtmlPage *page, const ClassCounts *counts, const char *const *class_names);

/* Adds a class's name, escaped; its number where there are no names. */
void html_add_class_name(HtmlPage *page, const char *const *class_names, uint64_t class);

#endif
