/* plugin.h - loads parts of fshard that are shared libraries of their own when they are first needed, so that
 * programs start in a millisecond and run without the dependencies of such a part.
 *
 * A plugin is looked for in this order:
 *   $FSHARD_PLUGINS/FILE
 *   DIR/../lib/FILE              DIR: the folder of the running program (the build tree)
 *   DIR/../lib/fshard/FILE       (installed)
 *   HERE/FILE, HERE/fshard/FILE, HERE/../fshard/FILE     HERE: the folder of the shared library that this is
 *                                in (libfshard_loader.so in another program: Python) */
#ifndef FSHARD_COMMON_PLUGIN_H
#define FSHARD_COMMON_PLUGIN_H

#include "common/error.h"

/* Sets *address_ret to the address of symbol in file. The library stays loaded until the process ends. Any
 * thread; loading again only counts. FSH_ERR_NOT_FOUND: the file is in none of the places.
 * FSH_ERR_UNSUPPORTED: it cannot be loaded (a library that it needs is missing), or lacks the symbol. */
FshStatus plugin_load(const char *file, const char *symbol, const void **address_ret, FshError *error);

#endif
