/* read_fault.h - pages of a mapped file that cannot be read: a program outlives them, and hears of them.
 *
 * Where a disk fails under a mapping, or somebody cuts the file short, touching the page is SIGBUS: a death
 * without a word. A program that has called read_fault_outlive reads zeros there instead, and whoever has
 * read asks afterwards whether all of it was there (file_mapping_check, fsh_sample_check_read). The question
 * costs a load where nothing has failed, so reading stays zero-copy, and it may be asked after code of
 * others, libjpeg or zstd, has read: nothing is unwound.
 *
 * The handler puts a page of zeros in the place of the one that failed, for as long as the mapping lasts:
 * mmap, as PulseAudio and libwayland do it. It takes no lock and no memory of malloc's.
 *
 * The handler is the process's: programs install it, a library does not. Until then mappings are only noted.
 * SIGBUS for any other address goes to the handler that was there before, or ends the process as ever.
 *
 * Threads: everything may be called from any thread at any time. */
#ifndef FSHARD_COMMON_READ_FAULT_H
#define FSHARD_COMMON_READ_FAULT_H

#include <stdbool.h>
#include <stddef.h>

/* Installs the handler, once however often it is called. */
void read_fault_outlive(void);

/* What is known of one mapping. */
typedef struct ReadFaults ReadFaults;

/* Notes a mapping that begins at a page. Returns NULL where memory is short. */
ReadFaults *read_faults_add(const void *bytes, size_t length);
/* Forgets it, before it is unmapped; NULL is fine. */
void read_faults_remove(ReadFaults *faults);

/* Returns whether any page of any mapping has failed so far. */
bool read_faults_any(void);
/* Returns whether a page failed that holds one of these bytes of the mapping; *at_ret is the first of them.
 * faults may be NULL. */
bool read_faults_find(const ReadFaults *faults, size_t offset, size_t length, size_t *at_ret);

/* Touches every page, so that what cannot be read is known afterwards. */
void read_fault_touch(const void *bytes, size_t length);

#endif
