/* verify_html.h - the report as one page (common/html.h). */
#ifndef FSHARD_VERIFY_VERIFY_HTML_H
#define FSHARD_VERIFY_VERIFY_HTML_H

#include "tools/verify/verify.h"
#include "tools/verify/verify_thumbs.h"

/* Writes the page of a report. dataset: NULL where it cannot be opened: then there are no images.
 * FSH_ERR_EXISTS without force; FSH_ERR_MEMORY and others. */
FshStatus verify_write_html(const VerifyReport *report, const VerifyOptions *options,
                            const FshDataset *dataset, const char *path, bool force, FshError *error);

#endif
