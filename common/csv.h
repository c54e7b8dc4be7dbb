/* csv.h - text as a field of a CSV file (RFC 4180), so that every reader finds as many columns as there
 * are.
 *
 * Text is written as it is: a name that begins with "=", "+", "-" or "@" keeps it, since a "'" or a tab in
 * front would no longer be that name to the program that looks it up. What spreadsheets make of such a cell
 * is for the writer to say: see csv_is_formula. */
#ifndef FSHARD_COMMON_CSV_H
#define FSHARD_COMMON_CSV_H

#include <stdbool.h>

#include "common/file.h"

/* Appends text, in quotes where it holds a comma, a quote or an end of line, each quote doubled.
 * FSH_ERR_MEMORY. */
FshStatus csv_append_text(Buffer *row, const char *text, size_t bytes, FshError *error);

/* Returns whether a spreadsheet would run the text as a formula when the file is opened there: it begins
 * with "=", "+", "-", "@", a tab or a carriage return (OWASP, "CSV Injection"). */
bool csv_is_formula(const char *text, size_t bytes);

#endif
