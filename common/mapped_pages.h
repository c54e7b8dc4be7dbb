/* mapped_pages.h - keeps what a process holds in memory of mapped files below a bound.
 *
 * A page of a mapped file that was touched stays in the process's memory until the file is unmapped: who
 * reads 4 GB through a mapping holds 4 GB. A program that reads each byte about once, as fverify, sets a
 * bound. From then on those who read a mapped file note what they are about to read, and a thread that has
 * noted as much as the bound gives back what it noted. The pages stay in the page cache, and come again
 * when they are touched: pointers remain good, of other threads too.
 *
 * The rule for readers: note a stretch of a file before the first look at it, whoever the caller is. A
 * note costs one load where no bound is set, as in ftrain, whose pages are to stay. It may be of any
 * memory: only that of mapped files (file_map) is given back.
 *
 * The bound belongs to the process, as its memory does: programs set it, a library does not.
 *
 * Threads: everything may be called from any thread at any time. */
#ifndef FSHARD_COMMON_MAPPED_PAGES_H
#define FSHARD_COMMON_MAPPED_PAGES_H

#include <stdint.h>

/* Sets how many bytes each thread holds, about; 0, as at first: there is no bound. A single stretch may be
 * longer, and is held as a whole. What a thread holds when it ends stays until its file is unmapped. */
void mapped_pages_bound(uint64_t bytes);
/* Notes that bytes will be read. */
void mapped_pages_note(const void *bytes, uint64_t length);

#endif
