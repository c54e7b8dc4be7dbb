/* read_fault.h - survives pages of a mapped file that cannot be read, and reports them.
 *
 * If a disk fails under a mapping, or another process cuts the file short, touching the page raises SIGBUS,
 * which ends the process without a word. A program that has called read_fault_outlive reads zeros instead,
 * and asks afterwards whether all bytes were there (file_mapping_check, fsh_sample_check_read). The question
 * costs one load if nothing has failed, so reading stays zero-copy. It may also be asked after foreign code,
 * such as libjpeg or zstd, has read: nothing is unwound.
 *
 * The handler maps a page of zeros in place of the one that failed, for as long as the mapping lasts, as
 * PulseAudio and libwayland do. It takes no lock and no memory from malloc.
 *
 * The handler belongs to the process: programs install it, a library does not. Until then mappings are only
 * noted. SIGBUS for any other address goes to the handler that was there before, or ends the process as
 * usual.
 *
 * Threads: everything may be called from any thread at any time. */
#ifndef FSHARD_COMMON_READ_FAULT_H
#define FSHARD_COMMON_READ_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Installs the handler; further calls do nothing. */
void read_fault_outlive(void);

/* The failed pages of one mapping. */
typedef struct ReadFaults ReadFaults;

/* Notes a mapping that begins at a page. Returns NULL without memory. */
ReadFaults *read_faults_add(const void *bytes, size_t length);
/* Forgets a mapping; call it before unmapping. NULL is fine. */
void read_faults_remove(ReadFaults *faults);
/* Calls visit for what lies between begin and end of each mapping that is noted; none can be forgotten
 * meanwhile. */
void read_faults_visit(uintptr_t begin, uintptr_t end, void (*visit)(void *bytes, size_t length));

/* Returns whether any page of any mapping has failed so far. */
bool read_faults_any(void);
/* Returns whether a page with one of these bytes of the mapping failed, and sets *at_ret to the first such
 * byte. faults may be NULL. */
bool read_faults_find(const ReadFaults *faults, size_t offset, size_t length, size_t *at_ret);

/* Touches every page, so that unreadable ones are known afterwards. */
void read_fault_touch(const void *bytes, size_t length);

#endif
