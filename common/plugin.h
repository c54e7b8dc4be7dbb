/* plugin.h - parts of fshard that lie in shared libraries of their own and are loaded when they are first
 * needed, so that programs start in a millisecond and run without what such a part depends on.
 *
 * A plugin is looked for in this order:
 *   $FSHARD_PLUGINS/FILE
 *   DIR/../lib/FILE              DIR: the folder of the running program (the build tree)
 *   DIR/../lib/fshard/FILE       (installed) */
#ifndef FSHARD_COMMON_PLUGIN_H
#define FSHARD_COMMON_PLUGIN_H

#include "common/error.h"

/* The address of symbol in file; the library stays loaded until the process ends. Any thread; loading again
 * only counts. FSH_ERR_NOT_FOUND: the file is in none of the places. FSH_ERR_UNSUPPORTED: it is, but cannot
 * be loaded (a library that it needs is missing), or has no such symbol. */
FshStatus plugin_load(const char *file, const char *symbol, const void **address_ret, FshError *error);

#endif
