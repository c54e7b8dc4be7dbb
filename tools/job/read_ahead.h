/* read_ahead.h - asks the system early for files that are read one after the other, where they come from a
 * disk: it reads the next ones while this one is worked on, instead of one for each job while the jobs wait.
 *
 *   ReadAhead ahead = {0};                                     // of each thread
 *   for each file that this thread reads:
 *       if (read_ahead_is_due(&ahead))
 *           read_ahead_ask(folder, …);                         // the one READ_AHEAD_PLACES * jobs places on
 *       … open, read, work …
 *
 * What is asked for changes nothing but when a file is read: it is opened, read and judged in its turn as
 * ever. The system keeps what it has read in its page cache; a job has READ_AHEAD_PLACES places there that
 * nobody has read yet: of fresize files of at most READ_AHEAD_BYTES, of fpack chunks of several.
 *
 * Whether files come from a disk, the system tells for each thread: how many blocks it had to have read
 * (ru_inblock of getrusage(2)), by reading or by asking. Files that lie in the page cache cost this look and
 * no more, a tenth of asking for one. A file system that does not count blocks (some in user space) is read
 * as without this module.
 *
 * Threads: one ReadAhead per thread. */
#ifndef FSHARD_TOOLS_JOB_READ_AHEAD_H
#define FSHARD_TOOLS_JOB_READ_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

enum {
    READ_AHEAD_PLACES = 16,     /* for each job, so that all of them are some way ahead */
    READ_AHEAD_BYTES = 1 << 20, /* of a file; what is longer is read on by the system as it is read by us */
};

/* Zeroed at first. */
typedef struct ReadAhead {
    bool has_looked;
    uint64_t blocks; /* that the thread had had from disks at its last look */
    unsigned left;   /* looks, this one included, that are still due if nothing more comes from a disk */
} ReadAhead;

/* Looks whether this thread's files come from a disk. Returns whether something did before one of its last
 * READ_AHEAD_PLACES looks, this one included; the first look only begins. Call it where a place is really
 * read and there is one to ask for: where places are passed over, as they were done before, nothing is asked
 * for. */
bool read_ahead_is_due(ReadAhead *ahead);

/* Has the system begin to read a file, path below the folder's descriptor (AT_FDCWD: as it is), and does not
 * wait for its bytes. A file that is gone, or none, is no failure: it shows in its turn. */
void read_ahead_ask(int folder, const char *path);

#endif
