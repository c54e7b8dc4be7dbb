/* html_classes.h - adds class_counts.h to a page of common/html.h: the confusion matrix, the weakest classes,
 * and a table of all classes that can be sorted. Part of html_report.h. */
#ifndef FSHARD_TRAINER_REPORT_HTML_CLASSES_H
#define FSHARD_TRAINER_REPORT_HTML_CLASSES_H

#include "common/html.h"
#include "trainer/report/class_counts.h"

/* Adds the sections; nothing if no sample was counted. class_names: [classes], or NULL: numbers. */
void html_add_classes(HtmlPage *page, const ClassCounts *counts, const char *const *class_names);

/* Adds a class's name, escaped, or its number without names. */
void html_add_class_name(HtmlPage *page, const char *const *class_names, uint64_t class);

#endif
