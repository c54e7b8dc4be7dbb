/* pack_settings.h - fpack's options as they are on the command line, and what they mean: PackOptions.
 *
 * An option that would do nothing is refused, with what it goes with. The table of options is in
 * pack_settings_table.c. */
#ifndef FSHARD_PACK_SETTINGS_H
#define FSHARD_PACK_SETTINGS_H

#include "common/program.h"
#include "stores/store.h"
#include "tools/pack/pack_plan.h"

typedef struct Settings {
    ProgramOptions program;
    StoreOptions remote; /* of a dataset on a server */
    const char *source, *destination, *pairs, *fields, *masks, *report;
    const char *files_from, *labels, *classes, *class_names;
    /* Indices of choices: SettingsFormat, SettingsLayout, PackStore, SettingsEdge, ResampleFilter,
     * SettingsOnError. */
    int format, layout, store, edge, filter, on_error;
    uint64_t shard_size, raw_under, budget, dictionary_size;
    double split;
    int64_t pair_scale, seed, shuffle, limit, max_pixels, max_size, quality, level;
    const char *part, *pair_suffix;
    const struct Settings *defaults;
    bool check, force, merge, repair_manifest, update, append, checksum, format_given, dedupe, dictionary,
        quality_given, level_given, dictionary_size_given, seed_given, shard_size_given, exact,
        sizing; /* sizing: an option was given that says how to make images smaller */
} Settings;

/* The choices of --format, --layout, --edge and --on-error, in the order of these enums; NULL ends each. */
enum SettingsFormat { SETTINGS_SHARDS, SETTINGS_LMDB, SETTINGS_TAR };
enum SettingsLayout { SETTINGS_FSHARD, SETTINGS_BASICSR };
enum SettingsEdge { SETTINGS_SHORT, SETTINGS_LONG };
enum SettingsOnError { SETTINGS_STOP, SETTINGS_SKIP };
extern const char *const settings_formats[], *const settings_layouts[], *const settings_edges[],
                                                                            *const settings_on_error[];

/* What fpack answers to peers' options and values that it does not have. (pack_settings_hints.c) */
extern const OptionForeign settings_foreign[], settings_answers[], settings_format_hints[],
    settings_store_hints[];

/* Sets all options to what they are when not given; defaults is NULL. (pack_settings_table.c) */
void settings_init(Settings *settings);

/* The table's rows, an empty one at the end. They point into *settings. */
enum { SETTINGS_ROWS = 72 };
void settings_rows(Settings *settings, Option rows[SETTINGS_ROWS]);
/* Returns the table over the rows, which it borrows. */
OptionTable settings_table(const Option *rows);

/* Fills *options. FSH_ERR_USAGE. */
FshStatus settings_take(const ProgramContext *context, PackOptions *options, FshError *error);

/* Fills the sides of pairs, and where they have folders of their own the source. *used_ret: so many
 * arguments, the first, are sides. FSH_ERR_USAGE; FSH_ERR_NOT_FOUND: a folder is not there.
 * (pack_settings_pairs.c) */
FshStatus settings_take_pairs(const ProgramContext *context, PackOptions *options, size_t *used_ret,
                              FshError *error);

/* Refuses, with FSH_ERR_USAGE, options that do not go with --merge: what the dataset is was decided when its
 * parts were packed. */
FshStatus settings_take_merge(const ProgramContext *context, FshError *error);
/* Refuses, with FSH_ERR_USAGE, options that do not go with --repair-manifest. */
FshStatus settings_take_repair(const ProgramContext *context, FshError *error);

#endif
