/* html_findings.h - adds findings.h to a page of common/html.h: examples. Part of html_report.h. */
#ifndef FSHARD_TRAINER_REPORT_HTML_FINDINGS_H
#define FSHARD_TRAINER_REPORT_HTML_FINDINGS_H

#include "common/html.h"
#include "trainer/report/findings.h"

/* Adds mistakes, or restored images; nothing if there are none. class_names: [classes], or NULL: numbers. */
void html_add_findings(HtmlPage *page, const Findings *findings, const char *const *class_names);

#endif
