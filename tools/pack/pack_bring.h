/* pack_bring.h - a whole file under another name, without a second copy of it where the file system has
 * links. Threads: any. */
#ifndef FSHARD_PACK_BRING_H
#define FSHARD_PACK_BRING_H

#include "common/error.h"

/* Gives a whole file a new name: links it, or copies and syncs it. What has that name is replaced.
 * FSH_ERR_SYSTEM, FSH_ERR_NO_SPACE, FSH_ERR_MEMORY. */
FshStatus bring_file(const char *from, const char *to, FshError *error);

#endif
