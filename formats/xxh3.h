/* xxh3.h - XXH3 as this machine does it fastest. Where libxxhash was built with its dispatcher (Debian's and
 * Fedora's for x86 are), including this instead of xxhash.h makes the same calls choose AVX2 or AVX-512 at
 * run time: half as fast again as the SSE2 that an ordinary build takes. The values are the same. */
#ifndef FSHARD_FORMATS_XXH3_H
#define FSHARD_FORMATS_XXH3_H

#ifdef FSHARD_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
