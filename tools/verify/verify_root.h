/* verify_root.h - which folder --against was likely meant, where the sources are not below the one given. */
#ifndef FSHARD_VERIFY_VERIFY_ROOT_H
#define FSHARD_VERIFY_VERIFY_ROOT_H

#include "tools/verify/verify.h"

/* Looks for sources that the report's problems call absent one level below the folder of --against, and as
 * many levels above it as their paths have. A few of them are tried, evenly spread; the one folder that has
 * all of these becomes report->nearby_root, and their number report->nearby_count. FSH_ERR_MEMORY. */
FshStatus verify_root_find(VerifyReport *report, const char *folder, FshError *error);

#endif
