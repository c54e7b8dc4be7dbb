/* progress.h - a line that shows how much is done, how fast, and how long it will take.
 *
 *   Progress progress;
 *   progress_start(&progress, stderr, "packing", "images", total, quiet);
 *   … from any thread: progress_add(&progress, 1, bytes, failed);
 *   progress_finish(&progress);
 *
 * On a terminal a bar is redrawn at most ten times a second, its numbers in columns of fixed widths;
 * elsewhere a plain line appears every 10 seconds. A total of 0 means unknown: no bar and no ETA, only count
 * and rate, until progress_set_total or progress_set_position is called. No colour is ever used, as NO_COLOR
 * asks; TERM=dumb, or none, counts as no terminal. */
#ifndef FSHARD_COMMON_PROGRESS_H
#define FSHARD_COMMON_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"

typedef struct Progress {
    FILE *stream;
    const char *verb, *unit;
    bool quiet, terminal;
    double start_seconds;
    _Atomic uint64_t total, done, bytes, failed;
    _Atomic uint64_t position, extent; /* extent 0: not in use */
    _Atomic int64_t saved_bytes;
    _Atomic uint64_t next_draw_ns; /* the thread that advances it draws */
    _Atomic bool drawn;            /* a bar is on the terminal */
} Progress;

void progress_start(Progress *progress, FILE *stream, const char *verb, const char *unit, uint64_t total,
                    bool quiet);

/* Adds `count` items, of which `failed` have failed. Any thread; lock-free, except for the thread that
 * draws. */
void progress_add(Progress *progress, uint64_t count, uint64_t bytes, uint64_t failed);

/* Sets the total when it is known; any thread. */
void progress_set_total(Progress *progress, uint64_t total);

/* Sets how much is done of a container whose bytes are known but whose items cannot be counted beforehand (a
 * tar). Without a total, bar and time left come from position / extent; without a terminal the part is shown
 * too, as ", 55 %". An extent of 0 turns it off. Any thread, one at a time. */
void progress_set_position(Progress *progress, uint64_t position, uint64_t extent);

/* Adds bytes by which the output is smaller than its input, shown as ", 1.2 GiB saved" if the sum is
 * positive. Any thread. */
void progress_add_saved(Progress *progress, int64_t bytes);

/* Clears the bar so that a line can be printed; a later add draws it again. While other threads add, hold
 * flockfile(stream) from here to the end of the line, or use progress_note. */
void progress_clear(Progress *progress);

/* Prints a line on the stream above the bar, quiet or not, and ends it. Control characters become "?"
 * (program_print_text). Any thread. */
void progress_note(Progress *progress, const char *format, ...) FSH_PRINTF(2, 3);

/* Clears the bar and prints nothing; the program prints the summary. Call it when all threads are done. */
void progress_finish(Progress *progress);

/* Returns the seconds of the monotonic clock. */
double progress_now_seconds(void);
/* Returns the seconds that the calling thread has spent on a core. */
double progress_thread_seconds(void);
/* Returns the seconds since *start_seconds, and sets it to now. */
double progress_lap_seconds(double *start_seconds);

/* Writes "1.5 GiB", "320 KiB", "17 B": binary units, three significant digits (four from 1000 to 1023).
 * Returns buffer. */
const char *progress_format_bytes(char *buffer, size_t buffer_bytes, uint64_t bytes);

/* Writes "1:02:03", "2:05", "0:07". Returns buffer. */
const char *progress_format_duration(char *buffer, size_t buffer_bytes, double seconds);

/* Writes "1,281,167", at most 26 characters. Returns buffer. */
const char *progress_format_count(char *buffer, size_t buffer_bytes, uint64_t count);

#endif
