#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "trainer/data/label_internal.h"

/* What the columns beside the key hold. */
typedef enum CsvForm {
    CSV_LABELS, /* names of classes */
    CSV_FLAGS,  /* a column of 0 and 1 for each class */
    CSV_NUMBERS,
} CsvForm;

enum { COLUMNS_MAX = 65536 };

/* A CSV while it is read. */
typedef struct Csv {
    LabelReader *reader;
    char separator;   /* ' ': any number of blanks */
    LabelText *cells; /* of the line in hand */
    size_t cell_count, cells_most;
    CsvForm form;
    uint32_t
        *places;    /* [columns]: of each column among file->own; CSV_LABELS: 0; COLUMN_UNUSED: left aside */
    char **titles;  /* [columns] of the header, for messages; NULL: there is none */
    size_t columns; /* 0: there is no header */
    bool split;     /* cells of several labels are divided */
    const char *dividers;
    uint64_t zero_line, minus_line; /* of the first 0, and of the first -1, among flags */
} Csv;

enum { COLUMN_UNUSED = UINT32_MAX };

/* ---- cells ---- */

static FshStatus add_cell(Csv *csv, LabelText cell, FshError *error)
{
    if (csv->cell_count == COLUMNS_MAX)
        return label_refuse(csv->reader, error, "more than %d columns", COLUMNS_MAX);
    if (csv->cell_count == csv->cells_most) {
        const size_t most = csv->cells_most ? 2 * csv->cells_most : 16;
        LabelText *grown = realloc(csv->cells, most * sizeof *grown);
        if (!grown)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for labels");
        csv->cells = grown;
        csv->cells_most = most;
    }
    csv->cells[csv->cell_count++] = label_trim(cell);
    return FSH_OK;
}

/* Takes a cell in quotes, from after the first, and resolves doubled quotes in place. Returns the byte after
 * the closing quote; NULL: it is not closed. */
static char *take_quoted(char *at, char *end, LabelText *cell)
{
    char *to = at;
    *cell = (LabelText){.text = at};
    for (; at < end; at++) {
        if (*at == '"' && (at + 1 == end || at[1] != '"')) {
            cell->bytes = (size_t)(to - cell->text);
            return at + 1;
        }
        at += *at == '"';
        *to++ = *at;
    }
    return NULL;
}

/* Cuts a line into cells. */
static FshStatus cut(Csv *csv, LabelText line, FshError *error)
{
    char *at = line.text, *end = line.text + line.bytes;
    FshStatus status = FSH_OK;
    csv->cell_count = 0;
    while (!status) {
        LabelText cell;
        while (at < end && (*at == ' ' || (*at == '\t' && csv->separator != '\t')))
            at++;
        if (at < end && *at == '"') {
            at = take_quoted(at + 1, end, &cell);
            if (!at)
                return label_refuse(csv->reader, error, "a quote is not closed");
            while (at < end && *at == ' ' && csv->separator != ' ')
                at++;
            if (at < end && *at != csv->separator)
                return label_refuse(csv->reader, error, "text after a closing quote");
        } else {
            char *stop = memchr(at, csv->separator, (size_t)(end - at));
            cell = (LabelText){at, (size_t)((stop ? stop : end) - at)};
            at = stop ? stop : end;
        }
        status = add_cell(csv, cell, error);
        if (at >= end)
            break;
        at++;
    }
    return status;
}

/* ---- the header ---- */

static bool counts(const Csv *csv, LabelText title)
{
    const char *columns = csv->reader->options->columns;
    return !columns || label_columns_name(columns, title);
}

/* Checks that the header has each of --label-columns. */
static FshStatus check_columns(const Csv *csv, FshError *error)
{
    const char *columns = csv->reader->options->columns;
    while (columns && *columns) {
        const size_t bytes = strcspn(columns, ",");
        bool found = false;
        for (size_t i = 1; i < csv->cell_count; i++)
            found = found || text_is_same(csv->cells[i].text, csv->cells[i].bytes, columns, bytes);
        if (!found)
            return fsh_error_set(error, FSH_ERR_USAGE, "%s: its header has no column '%.*s'",
                                 csv->reader->file->path, (int)bytes, columns);
        columns += bytes + (columns[bytes] == ',');
    }
    return FSH_OK;
}

/* Takes the header: which columns count, and the classes or numbers that they are of. */
static FshStatus take_header(Csv *csv, FshError *error)
{
    LabelFile *file = csv->reader->file;
    size_t used = 0;
    FshStatus status = check_columns(csv, error);
    csv->columns = csv->cell_count;
    csv->places = calloc(csv->columns + 1, sizeof *csv->places);
    csv->titles = calloc(csv->columns + 1, sizeof *csv->titles);
    if (!csv->places || !csv->titles)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the columns of labels");
    for (size_t i = 1; i < csv->columns; i++)
        used += counts(csv, csv->cells[i]);
    if (!status && !used)
        return label_refuse(csv->reader, error, "its header has no column beside that of the keys");
    csv->form = file->kind == LABELS_NUMBERS           ? CSV_NUMBERS
                : used > 1 && file->kind != LABELS_ONE ? CSV_FLAGS
                                                       : CSV_LABELS;
    if (!status && csv->form == CSV_LABELS && used > 1)
        return fsh_error_set(
            error, FSH_ERR_USAGE,
            "%s: its header has %zu columns beside that of the keys; say which is the label: "
            "--label-columns '%.*s'",
            file->path, used, (int)csv->cells[1].bytes, csv->cells[1].text);
    for (size_t i = 0; i < csv->columns && !status; i++) {
        const bool unused = i == 0 || !counts(csv, csv->cells[i]);
        csv->titles[i] = text_copy(csv->cells[i].text, csv->cells[i].bytes);
        csv->places[i] = unused ? COLUMN_UNUSED : 0;
        if (!csv->titles[i])
            status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the columns of labels");
        const size_t known = file->own.count;
        if (!status && !unused && csv->form != CSV_LABELS)
            status = label_find_name(csv->reader, csv->cells[i], &csv->places[i], error);
        if (!status && !unused && csv->form != CSV_LABELS && file->own.count == known)
            status = label_refuse(csv->reader, error, "two columns are called '%s'", csv->titles[i]);
    }
    file->columns = csv->form != CSV_LABELS;
    if (csv->form == CSV_FLAGS)
        file->kind = LABELS_MANY;
    return status;
}

/* Names the columns of numbers without a header: "target", or "target0", "target1". */
static FshStatus name_columns(Csv *csv, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 1; i < csv->cell_count && !status; i++) {
        char name[32];
        uint32_t place = 0;
        const int bytes = csv->cell_count == 2 ? snprintf(name, sizeof name, "target")
                                               : snprintf(name, sizeof name, "target%zu", i - 1);
        status = label_find_name(csv->reader, (LabelText){name, (size_t)bytes}, &place, error);
    }
    csv->reader->file->columns = true;
    return status;
}

/* ---- rows ---- */

/* Adds the labels of a cell, which may be several: "cat|dog". */
static FshStatus add_labels(Csv *csv, LabelText cell, FshError *error)
{
    const char *end = cell.text + cell.bytes;
    FshStatus status = FSH_OK;
    if (!csv->split)
        return cell.bytes ? label_add_class(csv->reader, cell, error) : FSH_OK;
    for (char *at = cell.text; at < end && !status;) {
        char *stop = at;
        while (stop < end && !strchr(csv->dividers, *stop))
            stop++;
        const LabelText label = label_trim((LabelText){at, (size_t)(stop - at)});
        csv->reader->any_list = csv->reader->any_list || stop < end;
        status = label.bytes ? label_add_class(csv->reader, label, error) : FSH_OK;
        at = stop + 1;
    }
    return status;
}

/* Takes a flag: 1, 0, -1 or nothing, and as pandas writes those beside cells of nothing, 1.0. */
static FshStatus add_flag(Csv *csv, size_t column, FshError *error)
{
    const LabelText cell = csv->cells[column];
    const uint64_t line = csv->reader->line;
    if (label_text_is(cell, "1") || label_text_is(cell, "1.0"))
        return label_add_place(csv->reader, csv->places[column], error);
    const bool minus = label_text_is(cell, "-1") || label_text_is(cell, "-1.0");
    if (!minus && cell.bytes && !label_text_is(cell, "0") && !label_text_is(cell, "0.0"))
        return label_refuse(
            csv->reader, error,
            "column '%s' has '%.*s', not 0 or 1; --label-columns says which columns count, and "
            "--problem-type regression that they are numbers",
            csv->titles[column], (int)(cell.bytes < 40 ? cell.bytes : 40), cell.text);
    if (minus && !csv->minus_line)
        csv->minus_line = line;
    if (!minus && cell.bytes && !csv->zero_line)
        csv->zero_line = line;
    if (csv->minus_line && csv->zero_line)
        return label_refuse(csv->reader, error,
                            "flags are 0 and 1, or -1 and 1; here are -1 (line %llu) and 0 (line %llu)",
                            (unsigned long long)csv->minus_line, (unsigned long long)csv->zero_line);
    return FSH_OK;
}

static FshStatus add_cells(Csv *csv, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 1; i < csv->cell_count && !status; i++) {
        if (csv->columns && csv->places[i] == COLUMN_UNUSED)
            continue;
        if (csv->form == CSV_NUMBERS)
            status =
                label_add_number(csv->reader, csv->cells[i],
                                 csv->titles ? csv->titles[i] : csv->reader->file->own.names[i - 1], error);
        else if (csv->form == CSV_FLAGS)
            status = add_flag(csv, i, error);
        else
            status = add_labels(csv, csv->cells[i], error);
    }
    return status;
}

/* Takes the line in hand as a row. */
static FshStatus take_row(Csv *csv, FshError *error)
{
    LabelReader *reader = csv->reader;
    LabelFile *file = reader->file;
    const size_t wanted = csv->columns ? csv->columns : csv->form == CSV_NUMBERS ? file->own.count + 1 : 0;
    if (wanted && csv->cell_count != wanted)
        return label_refuse(reader, error, "has %zu columns, and %s %zu", csv->cell_count,
                            csv->columns ? "the header" : "the lines before", wanted);
    if (csv->cell_count < 2)
        return label_refuse(reader, error, "has a key alone, and no label");
    if (csv->cell_count > 2 && csv->form == CSV_LABELS && !csv->columns && file->kind == LABELS_ONE)
        return label_refuse(reader, error,
                            "has %zu labels; with --problem-type single-label an image has one",
                            csv->cell_count - 1);
    FshStatus status = label_add_row(reader, csv->cells[0], error);
    if (!status)
        status = add_cells(csv, error);
    return status ? status : label_end_row(reader, error);
}

/* Decides what the file is like, by its first line and by what --problem-type says. */
static FshStatus begin(Csv *csv, LabelText line, bool *header_ret, FshError *error)
{
    const LabelReader *reader = csv->reader;
    const LabelKind kind = reader->file->kind;
    const size_t left = (size_t)(reader->end - reader->at);
    csv->separator = memchr(line.text, '\t', line.bytes)  ? '\t'
                     : memchr(line.text, ',', line.bytes) ? ','
                                                          : ' ';
    csv->split = kind != LABELS_ONE;
    csv->dividers = "|;";
    if (kind == LABELS_MANY && !memchr(reader->at, '|', left) && !memchr(reader->at, ';', left))
        csv->dividers = ", ";
    csv->form = kind == LABELS_NUMBERS ? CSV_NUMBERS : CSV_LABELS;
    FshStatus status = cut(csv, line, error);
    *header_ret =
        !status && csv->cell_count > 1 && label_file_is_key_name(csv->cells[0].text, csv->cells[0].bytes);
    if (!status && !*header_ret && reader->options->columns)
        status =
            fsh_error_set(error, FSH_ERR_USAGE,
                          "--label-columns: %s has no header, which begins with key, file_name, image or id",
                          reader->file->path);
    return status;
}

FshStatus label_read_csv(LabelReader *reader, FshError *error)
{
    Csv csv = {.reader = reader};
    LabelText line;
    bool header = false;
    FshStatus status = FSH_OK;
    for (bool first = true; !status && label_next_line(reader, true, &line); first = false) {
        status = first ? begin(&csv, line, &header, error) : cut(&csv, line, error);
        if (!status && first && header) {
            status = take_header(&csv, error);
            continue;
        }
        if (!status && first && csv.form == CSV_NUMBERS)
            status = name_columns(&csv, error);
        if (!status)
            status = take_row(&csv, error);
    }
    for (size_t i = 0; csv.titles && i < csv.columns; i++)
        free(csv.titles[i]);
    free(csv.titles);
    free(csv.places);
    free(csv.cells);
    return status;
}
