/* toml.h - reads TOML 1.0 as far as files of options need it: options_config.h says what is understood.
 *
 * Threads: nothing is shared. */
#ifndef FSHARD_COMMON_TOML_H
#define FSHARD_COMMON_TOML_H

#include <jansson.h>
#include <stddef.h>

#include "common/error.h"

/* Reads the text into members of object. table: the one [table] that may end it, which becomes a member
 * that is an object. path names the file in messages. FSH_ERR_USAGE: "run.toml:3: …". FSH_ERR_MEMORY. */
FshStatus toml_read(const char *path, const char *text, size_t length, const char *table, json_t *object,
                    FshError *error);

#endif
