/* verify_sheet.h - thumbnails in one image file, with names: a contact sheet. */
#ifndef FSHARD_VERIFY_VERIFY_SHEET_H
#define FSHARD_VERIFY_VERIFY_SHEET_H

#include "tools/verify/verify.h"
#include "tools/verify/verify_thumbs.h"

enum { SHEET_SAMPLES = 100, SHEET_EDGE_PX = 128 };

/* Thumbnails under a title of their own. All borrowed. */
typedef struct SheetSection {
    const char *title; /* NULL: none */
    const Thumbs *thumbs;
} SheetSection;

/* Tells before an hour of work what would stop sheet_write: FSH_ERR_USAGE: path's name promises neither JPEG,
 * PNG nor WebP. FSH_ERR_EXISTS without force. FSH_ERR_NOT_FOUND: no folder for it. */
FshStatus sheet_check(const char *path, bool force, FshError *error);

/* Writes the sections, one below the other, in the format that path's name promises: rows and columns of
 * SHEET_EDGE_PX, the sides of a pair beside each other, under each its class and key, or what is wrong with
 * it; what cannot be decoded is a box with the reason. Sections without thumbnails are left out.
 * FSH_ERR_EXISTS without force. */
FshStatus sheet_write(const SheetSection *sections, size_t count, const char *path, bool force,
                      FshError *error);

/* Writes the sheet of a report: first suspicious pairs and what other problems name, then samples of all
 * splits. dataset: the report's, or NULL where it cannot be opened. */
FshStatus verify_write_sheet(const VerifyReport *report, const VerifyOptions *options,
                             const FshDataset *dataset, const char *path, bool force, FshError *error);

#endif
