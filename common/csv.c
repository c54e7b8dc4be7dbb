#include "common/csv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

FshStatus csv_append_text(Buffer *row, const char *text, size_t bytes, FshError *error)
{
    bool plain = true;
    for (size_t i = 0; i < bytes; i++)
        plain = plain && text[i] != ',' && text[i] != '"' && text[i] != '\r' && text[i] != '\n';
    if (plain)
        return buffer_append(row, text, bytes, error);
    FshStatus status = buffer_append(row, "\"", 1, error);
    for (size_t i = 0; i < bytes && !status; i++)
        status =
            text[i] == '"' ? buffer_append(row, "\"\"", 2, error) : buffer_append(row, &text[i], 1, error);
    return status ? status : buffer_append(row, "\"", 1, error);
}

FshStatus csv_append_number(Buffer *row, double value, int digits, FshError *error)
{
    char cell[64] = ",";
    if (isfinite(value))
        (void)snprintf(cell, sizeof cell, ",%.*g", digits, value);
    return buffer_append_text(row, cell, error);
}

bool csv_is_formula(const char *text, size_t bytes)
{
    static const char first[] = {'=', '+', '-', '@', '\t', '\r'};
    return bytes > 0 && memchr(first, text[0], sizeof first) != NULL;
}
