/* brace.h - lists of shards as webdataset spells them. */
#ifndef FSHARD_FORMATS_BRACE_H
#define FSHARD_FORMATS_BRACE_H

#include <stddef.h>

#include "common/error.h"

/* Lists the paths that text stands for, as webdataset spells them: "train-{000000..000127}.tar", {a,b},
 * nested, several with "::" between. A '{' that does not fit is text. *paths_ret, of *count_ret paths, is the
 * caller's (fsh_names_free). FSH_ERR_USAGE: more than a million; FSH_ERR_MEMORY. */
FshStatus fsh_brace_expand(const char *text, char ***paths_ret, size_t *count_ret, FshError *error);

#endif
