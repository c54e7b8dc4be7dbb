/* verify_html.h - the report as one page that needs nothing else: no network, no script, no other file.
 *
 * Names come from strangers. All text is escaped, what is no UTF-8 or a control character becomes U+FFFD, and the page's own
 * policy lets it load nothing but its inline images and styles. */
#ifndef FSHARD_VERIFY_VERIFY_HTML_H
#define FSHARD_VERIFY_VERIFY_HTML_H

#include "tools/verify/verify.h"
#include "tools/verify/verify_thumbs.h"

/* dataset: NULL where it cannot be opened: then there are no images. FSH_ERR_EXISTS without force; FSH_ERR_MEMORY and others. */
FshStatus verify_write_html(const VerifyReport *report, const VerifyOptions *options,
                            const FshDataset *dataset, const char *path, bool force, FshError *error);

/* Appends text as it may stand between tags and in quoted attributes. */
FshStatus html_append_text(Buffer *page, const char *text, size_t length, FshError *error);

#endif
