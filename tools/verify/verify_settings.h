/* verify_settings.h - fverify's options as they are on the command line, and the table that fills them. */
#ifndef FSHARD_VERIFY_VERIFY_SETTINGS_H
#define FSHARD_VERIFY_VERIFY_SETTINGS_H

#include "common/program.h"
#include "stores/store.h"

typedef struct VerifySettings {
    int64_t jobs;
    bool quick, decode, overlap, pairs, likeness_given, quiet, verbose, json, list, force;
    double likeness_min;
    StoreOptions store;
    const char *against, *part, *html, *extract, *sheet, *repair, *class_names;
} VerifySettings;

/* Sets all options to what they are when not given. */
void verify_settings_init(VerifySettings *settings);

/* The table's rows, an empty one at the end. They point into *settings. */
enum { VERIFY_SETTINGS_ROWS = 40 };
void verify_settings_rows(VerifySettings *settings, Option rows[VERIFY_SETTINGS_ROWS]);
/* Returns the table over the rows, which it borrows. */
OptionTable verify_settings_table(const Option *rows);

#endif
