/* csv.h - writes text as a field of a CSV file (RFC 4180) that every reader takes as one column.
 *
 * Text is written unchanged, also a name that begins with "=", "+", "-" or "@": with a "'" or a tab in front
 * it would be another name to a program that looks it up. Callers report cells that a spreadsheet would run:
 * csv_is_formula. */
#ifndef FSHARD_COMMON_CSV_H
#define FSHARD_COMMON_CSV_H

#include <stdbool.h>

#include "common/file.h"

/* Appends text, in quotes if it holds a comma, a quote or an end of line, with each quote doubled.
 * FSH_ERR_MEMORY. */
FshStatus csv_append_text(Buffer *row, const char *text, size_t bytes, FshError *error);

/* Appends a comma and the value, of so many digits; the comma alone if the value is not finite.
 * FSH_ERR_MEMORY. */
FshStatus csv_append_number(Buffer *row, double value, int digits, FshError *error);

/* Returns whether a spreadsheet would run the text as a formula: it begins with "=", "+", "-", "@", a tab or
 * a carriage return (OWASP, "CSV Injection"). */
bool csv_is_formula(const char *text, size_t bytes);

#endif
