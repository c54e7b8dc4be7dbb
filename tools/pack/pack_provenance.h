/* pack_provenance.h - where a dataset comes from, for its manifest. */
#ifndef FSHARD_PACK_PROVENANCE_H
#define FSHARD_PACK_PROVENANCE_H

#include "tools/pack/pack_plan.h"

/* A JSON object: tool, version, source, options, recipe; all but how many samples were left out, which is
 * known in the end (pack_blueprint.h). Nothing in it depends on threads, times, parts or the destination.
 * Owned by the caller (free); NULL: out of memory. */
char *provenance_json(const PackPlan *plan, const PackOptions *options);

#endif
