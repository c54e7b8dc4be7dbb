#include "trainer/report/html_classes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MATRIX_CLASSES_MAX = 40, /* more cells could not be told apart */
    MATRIX_COUNTS_MAX = 20,  /* up to this many classes each cell shows its count */
    MATRIX_EDGE = 640,
    CELL_MAX = 40,
    CELL_MIN = 15,
    LABEL_ROOM = 148,
    LABEL_HEIGHT = 126, /* of the turned labels below the matrix */
    LABEL_BYTES = 18,
    LABEL_LEAST = 3,
    CONFUSED_ROWS = 15,
    WEAK_ROWS = 15,
};

void html_add_class_name(HtmlPage *page, const char *const *names, uint64_t class)
{
    if (names)
        html_add_string(page, names[class]);
    else
        html_add(page, "%" PRIu64, class);
}

/* Adds the class's name, cut if it is too long for the matrix: before a synonym or the id, else at the end of
 * a character. The title has the whole name. */
static void add_short_name(HtmlPage *page, const char *const *names, uint64_t class)
{
    const size_t length = names ? strlen(names[class]) : 0;
    size_t kept = LABEL_BYTES - 2;
    if (length <= LABEL_BYTES) {
        html_add_class_name(page, names, class);
        return;
    }
    for (size_t i = LABEL_LEAST; i < kept; i++)
        if (strncmp(names[class] + i, ", ", 2) == 0 || strncmp(names[class] + i, " (", 2) == 0)
            kept = i;
    while (kept > 0 && ((unsigned char)names[class][kept] & 0xC0) == 0x80)
        kept--;
    html_add_text(page, names[class], kept);
    html_add(page, "…<title>");
    html_add_string(page, names[class]);
    html_add(page, "</title>");
}

/* ---- confusion ---- */

typedef struct Matrix {
    const uint64_t *counts;
    const char *const *names;
    uint64_t classes;
    double cell;
} Matrix;

static void add_cell(HtmlPage *page, const Matrix *matrix, uint64_t label, uint64_t prediction,
                     uint64_t total)
{
    const uint64_t count = matrix->counts[label * matrix->classes + prediction];
    if (count == 0)
        return;
    const double share = (double)count / (double)total, cell = matrix->cell;
    const double x = LABEL_ROOM + (double)prediction * cell, y = (double)label * cell;
    const double strength = 0.12 + 0.88 * sqrt(share); /* the root makes rare mistakes visible */
    html_add(
        page,
        "<g><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill-opacity=\"%.2f\"/>",
        label == prediction ? "hit" : "miss", x + 0.5, y + 0.5, cell - 1, cell - 1, strength);
    if (matrix->classes <= MATRIX_COUNTS_MAX) {
        char text[32];
        const int digits = snprintf(text, sizeof text, "%" PRIu64, count);
        const double size = fmin(cell * 0.36, cell * 1.4 / (digits > 0 ? digits : 1));
        html_add(page,
                 "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" "
                 "style=\"font-size:%.1fpx\">%s</text>",
                 strength > 0.6 ? "on" : "off", x + cell / 2, y + cell / 2 + size * 0.36, size, text);
    }
    html_add(page, "<title>");
    html_add_class_name(page, matrix->names, label);
    html_add(page, label == prediction ? " known: " : " taken for ");
    if (label != prediction) {
        html_add_class_name(page, matrix->names, prediction);
        html_add(page, ": ");
    }
    html_add(page, "%" PRIu64 " of %" PRIu64 " (%.1f %%)</title></g>", count, total, 100 * share);
}

static void add_matrix(HtmlPage *page, const ClassCounts *counts, const char *const *names)
{
    const uint64_t classes = counts->classes;
    Matrix matrix = {counts->confusion, names, classes, MATRIX_EDGE / (double)classes};
    matrix.cell = fmax(CELL_MIN, fmin(CELL_MAX, matrix.cell));
    const double edge = matrix.cell * (double)classes;
    html_add(page,
             "<p class=\"note\">Rows: what it is. Columns: what it was taken for. Colour: the share of the "
             "row.</p><div class=\"wide\"><svg class=\"matrix\" viewBox=\"0 0 %.0f %.0f\" "
             "style=\"max-width:%.0fpx;min-width:%.0fpx\" role=\"img\">",
             edge + LABEL_ROOM, edge + LABEL_HEIGHT, edge + LABEL_ROOM, 0.62 * (edge + LABEL_ROOM));
    html_add(page, "<rect class=\"field\" x=\"%d\" y=\"0\" width=\"%.1f\" height=\"%.1f\"/>", LABEL_ROOM,
             edge, edge);
    for (uint64_t i = 0; i < classes; i++) {
        const double middle = ((double)i + 0.5) * matrix.cell + 4;
        html_add(page, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LABEL_ROOM - 6, middle);
        add_short_name(page, names, i);
        html_add(page, "</text><text text-anchor=\"end\" transform=\"translate(%.1f %.1f) rotate(-55)\">",
                 LABEL_ROOM + middle, edge + 12);
        add_short_name(page, names, i);
        html_add(page, "</text>");
        for (uint64_t j = 0; j < classes; j++)
            add_cell(page, &matrix, i, j, counts->samples[i]);
    }
    html_add(page, "</svg></div>");
}

typedef struct Confused {
    uint64_t label, prediction, count;
} Confused;

/* Finds the pairs of classes that were confused most often, most first; of equal ones the lower label first.
 * Returns how many. */
static size_t find_confused(const uint64_t *counts, uint64_t classes, Confused rows[CONFUSED_ROWS])
{
    size_t found = 0;
    for (uint64_t label = 0; label < classes; label++)
        for (uint64_t prediction = 0; prediction < classes; prediction++) {
            const uint64_t count = counts[label * classes + prediction];
            if (label == prediction || count == 0 ||
                (found == CONFUSED_ROWS && count <= rows[found - 1].count))
                continue;
            size_t at = found < CONFUSED_ROWS ? found++ : found - 1;
            for (; at > 0 && rows[at - 1].count < count; at--)
                rows[at] = rows[at - 1];
            rows[at] = (Confused){label, prediction, count};
        }
    return found;
}

static void add_confused(HtmlPage *page, const ClassCounts *counts, const char *const *names)
{
    Confused rows[CONFUSED_ROWS];
    const size_t count = find_confused(counts->confusion, counts->classes, rows);
    if (count == 0)
        return;
    html_add(page,
             "<div><h3>Most often confused</h3><table><tr><th>it is<th>taken for<th class=\"n\">times<th "
             "class=\"n\">of the class");
    for (size_t i = 0; i < count; i++) {
        html_add(page, "<tr><td>");
        html_add_class_name(page, names, rows[i].label);
        html_add(page, "<td>");
        html_add_class_name(page, names, rows[i].prediction);
        html_add(page, "<td class=\"n\">%" PRIu64 "<td class=\"n\">%.1f&nbsp;%%", rows[i].count,
                 100 * (double)rows[i].count / (double)counts->samples[rows[i].label]);
    }
    html_add(page, "</table></div>");
}

typedef struct Weak {
    uint64_t label, count, right;
} Weak;

static double share_right(const Weak *weak)
{
    return (double)weak->right / (double)weak->count;
}

static void add_weakest(HtmlPage *page, const ClassCounts *counts, const char *const *names)
{
    Weak rows[WEAK_ROWS];
    size_t found = 0;
    for (uint64_t label = 0; label < counts->classes; label++) {
        const Weak weak = {label, counts->samples[label], counts->right[label]};
        if (weak.count == 0 || (found == WEAK_ROWS && share_right(&weak) >= share_right(&rows[found - 1])))
            continue;
        size_t at = found < WEAK_ROWS ? found++ : found - 1;
        for (; at > 0 && share_right(&rows[at - 1]) > share_right(&weak); at--)
            rows[at] = rows[at - 1];
        rows[at] = weak;
    }
    html_add(page,
             "<div><h3>Weakest classes</h3><table><tr><th>class<th class=\"n\">samples<th class=\"n\">right");
    for (size_t i = 0; i < found; i++) {
        html_add(page, "<tr><td>");
        html_add_class_name(page, names, rows[i].label);
        html_add(page, "<td class=\"n\">%" PRIu64 "<td class=\"n\">%.1f&nbsp;%%", rows[i].count,
                 100 * share_right(&rows[i]));
    }
    html_add(page, "</table></div>");
}

/* ---- all classes ---- */

static void add_percent(HtmlPage *page, double value)
{
    if (isfinite(value))
        html_add(page, "<td class=\"n\">%.1f&nbsp;%%", value);
    else
        html_add(page, "<td class=\"n\">");
}

/* Adds the table of all classes, which the script sorts. */
static void add_table(HtmlPage *page, const ClassCounts *counts, const char *const *names)
{
    html_add(page,
             "<h2>Classes</h2><p class=\"note\">A click on a heading sorts. Recall: of its samples, those "
             "that were "
             "known. Precision: of what was taken for it, what was of it. per_class.csv has the same.</p>");
    html_add(page,
             "<div><div class=\"tall\"><table class=\"sort\"><thead><tr><th>class<th class=\"n\">samples<th "
             "class=\"n\">recall<th class=\"n\">precision<th class=\"n\">F1");
    if (counts->confusion)
        html_add(page, "<th>most often taken for<th class=\"n\">times");
    html_add(page, "</thead><tbody>");
    for (uint64_t i = 0; i < counts->classes; i++) {
        const ClassRow row = class_counts_row(counts, i);
        html_add(page, "<tr><td>");
        html_add_class_name(page, names, i);
        html_add(page, "<td class=\"n\">%" PRIu64, row.samples);
        add_percent(page, row.recall);
        add_percent(page, row.precision);
        add_percent(page, row.f1);
        if (!counts->confusion)
            continue;
        html_add(page, "<td>");
        if (row.confused_with >= 0)
            html_add_class_name(page, names, (uint64_t)row.confused_with);
        html_add(page, row.confused_with < 0 ? "<td class=\"n\">" : "<td class=\"n\">%" PRIu64,
                 row.confused_count);
    }
    html_add(page, "</tbody></table></div></div>");
}

void html_add_classes(HtmlPage *page, const ClassCounts *counts, const char *const *class_names)
{
    if (!class_counts_any(counts))
        return;
    html_add(page, "<h2>Confusion</h2>");
    if (counts->classes <= MATRIX_CLASSES_MAX)
        add_matrix(page, counts, class_names);
    html_add(page, "<div class=\"columns\">");
    if (counts->confusion)
        add_confused(page, counts, class_names);
    add_weakest(page, counts, class_names);
    html_add(page, "</div>");
    add_table(page, counts, class_names);
}
