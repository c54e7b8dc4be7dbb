#include "imaging/vips_notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tiffio.h>
#include <vips/vips.h>

typedef struct Notes {
    unsigned warnings_count;
    bool are_shared;
    char damage[256];
} Notes;

static _Thread_local Notes notes;

/* ---- taking notes ---- */

static void note_damage(const char *text)
{
    if (!notes.damage[0])
        (void)snprintf(notes.damage, sizeof notes.damage, "%s", text);
}

/* Counts the warnings that libvips sends to GLib's log, which would print them. Two of the PNG chunks that
 * libpng skips with a warning change pixels: transparent colours and the palette. */
static void on_log(const gchar *domain, GLogLevelFlags level, const gchar *message, gpointer context)
{
    (void)domain;
    (void)context;
    if (!(level & (G_LOG_LEVEL_WARNING | G_LOG_LEVEL_CRITICAL)))
        return;
    notes.warnings_count++;
    if (message && (strstr(message, "tRNS:") || strstr(message, "PLTE:")))
        note_damage(message);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns whether libtiff's function `module` deals with tags. An error there stops neither libtiff nor
 * libvips; an error in functions that read strips, tiles and their codes loses pixels. */
static bool is_about_tags(const char *module)
{
    static const char *const parts[] = {"Directory", "SetField", "GetField", "Fetch",
                                        "Open",      "Estimate", "Size"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(module, parts[i]))
            return true;
    }
    return false;
}

static void on_tiff_error(thandle_t handle, const char *module, const char *format, va_list arguments)
{
    (void)handle;
    char text[sizeof notes.damage];
    (void)vsnprintf(text, sizeof text, format, arguments);
    if (is_about_tags(module ? module : ""))
        notes.warnings_count++;
    else
        note_damage(text);
}

/* Notes damage that libtiff only warns about: what libjpeg met in a strip, and PackBits that do not fill
 * it. */
static void on_tiff_warning(thandle_t handle, const char *module, const char *format, va_list arguments)
{
    (void)handle;
    char text[sizeof notes.damage];
    (void)vsnprintf(text, sizeof text, format, arguments);
    module = module ? module : "";
    notes.warnings_count++;
    if (begins(module, "PackBitsDecode") ||
        (begins(module, "JPEG") && (begins(text, "Premature end") || (begins(text, "Corrupt JPEG data") &&
                                                                      !strstr(text, "extraneous bytes")))))
        note_damage(text);
}

void notes_start(void)
{
    (void)g_log_set_handler("VIPS", G_LOG_LEVEL_MASK | G_LOG_FLAG_FATAL | G_LOG_FLAG_RECURSION, on_log, NULL);
    /* libvips uses the other pair of libtiff's handlers, which it sets for each file */
    (void)TIFFSetErrorHandlerExt(on_tiff_error);
    (void)TIFFSetWarningHandlerExt(on_tiff_warning);
}

void notes_begin(void)
{
    notes = (Notes){0};
}

unsigned notes_warnings(void)
{
    return notes.warnings_count;
}

const char *notes_damage(void)
{
    return notes.damage;
}

bool notes_are_shared(void)
{
    return notes.are_shared;
}

/* ---- reasons ---- */

/* Returns the length of ImageMagick's text without the place in its source: "improper image header `' @
 * error/bmp.c/…". */
static size_t without_origin(const char *line, size_t length)
{
    static const char *const tails[] = {" @ error/", " `'"};
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        const char *tail = memmem(line, length, tails[i], strlen(tails[i]));
        length = tail ? (size_t)(tail - line) : length;
    }
    return length;
}

/* Sets a message that says what the library's line means. Libraries only tell what they met: "libpng read
 * error". */
static FshStatus describe_damage(const char *line, size_t length, FshError *error)
{
    static const char *const kinds[] = {"unsupported", "not supported", "unknown"};
    char text[500];
    (void)snprintf(text, sizeof text, "%.*s", (int)(length < sizeof text ? length : sizeof text - 1), line);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcasestr(text, kinds[i]))
            return fsh_error_set(error, FSH_ERR_CORRUPT, "%s", text);
    }
    return fsh_error_set(error, FSH_ERR_CORRUPT, "damaged or truncated (%s)", text);
}

/* Returns the line of this domain, or else the first line, without its domain, and sets *length_ret. */
static const char *choose_line(const char *text, const char *domain, size_t *length_ret)
{
    const char *line = text;
    for (const char *next = text; next && *next; next = strchr(next, '\n'), next = next ? next + 1 : NULL) {
        if (begins(next, domain)) {
            line = next;
            break;
        }
    }
    *length_ret = strcspn(line, "\n");
    const char *colon = memmem(line, *length_ret, ": ", 2);
    if (colon) {
        *length_ret -= (size_t)(colon + 2 - line);
        line = colon + 2;
    }
    return line;
}

FshStatus notes_failure(FshStatus status, const char *domain, FshError *error)
{
    char *buffer = vips_error_buffer_copy(); /* which empties it, under libvips' own lock */
    const char *line = notes.damage;
    size_t length = strlen(line);
    if (!length) {
        line = choose_line(buffer ? buffer : "", domain, &length);
        notes.are_shared = true;
    }
    length = without_origin(line, length);
    if (length && status == FSH_ERR_CORRUPT)
        (void)describe_damage(line, length, error);
    else if (length)
        (void)fsh_error_set(error, status, "%.*s", (int)(length < 500 ? length : 500), line);
    else
        (void)fsh_error_set(error, status, "damaged, or of a kind that libvips cannot read");
    g_free(buffer);
    return status;
}

void notes_forget_failure(void)
{
    vips_error_clear();
}
