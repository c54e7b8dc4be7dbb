/* verify_actions.h - what fverify does with a dataset besides proving it: list, extract, sheet, repair. Each
 * prints its result on stdout; problems with the data set *partial_ret. */
#ifndef FSHARD_VERIFY_VERIFY_ACTIONS_H
#define FSHARD_VERIFY_VERIFY_ACTIONS_H

#include "formats/fshard.h"

typedef struct ActionOptions {
    const char *path; /* the dataset, or the shard to repair */
    const char *name; /* what it is called: path, or the address that it was fetched from */
    /* what is written: the folder, the sheet, the new shard; the file of names; NULL for the list */
    const char *target;
    int jobs;
    bool quiet, verbose, json, force;
} ActionOptions;

typedef FshStatus (*Action)(const ActionOptions *options, bool *partial_ret, FshError *error);

FshStatus action_list(const ActionOptions *options, bool *partial_ret, FshError *error);
FshStatus action_extract(const ActionOptions *options, bool *partial_ret, FshError *error);
FshStatus action_sheet(const ActionOptions *options, bool *partial_ret, FshError *error);
FshStatus action_repair(const ActionOptions *options, bool *partial_ret, FshError *error);
/* Writes the display names of classes that the file target tells into a finished dataset's manifest, which
 * appears at once or not at all. Sets *partial_ret if a class then has no such name. */
FshStatus action_name_classes(const ActionOptions *options, bool *partial_ret, FshError *error);

#endif
