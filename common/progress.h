/* progress.h - one line that says how far, how fast, how long still.
 *
 *   Progress progress;
 *   progress_start(&progress, stderr, "packing", "images", total, quiet);
 *   … from any thread: progress_add(&progress, 1, bytes, failed);
 *   progress_finish(&progress);
 *
 * On a terminal a bar is redrawn ten times a second at most; elsewhere a plain line appears every 10 seconds.
 * A total of 0 means unknown: no bar and no ETA, count and rate only, until progress_set_total or
 * progress_set_position tells. No colour is ever used, which is what
 * NO_COLOR asks for; TERM=dumb, or none, counts as no terminal. */
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
    _Atomic uint64_t next_draw_ns; /* whoever moves it on draws */
    _Atomic bool drawn;            /* a bar stands on the terminal */
} Progress;

void progress_start(Progress *progress, FILE *stream, const char *verb, const char *unit, uint64_t total,
                    bool quiet);

/* Any thread, lock-free but for the thread that draws. failed: of `count`, how many failed. */
void progress_add(Progress *progress, uint64_t count, uint64_t bytes, uint64_t failed);

/* The total, once it is known; any thread. */
void progress_set_total(Progress *progress, uint64_t total);

/* How far into the whole, where items cannot be counted beforehand but their container's bytes can (a tar):
 * bar and time left come from position / extent, as long as there is no total; without a terminal the part is
 * told too, as ", 55 %". An extent of 0 takes it back. Any thread, one at a time. */
void progress_set_position(Progress *progress, uint64_t position, uint64_t extent);

/* Bytes that the output is smaller than its input, told as ", 1.2 GiB saved"; may be negative, then it is not
 * told. Adds up. Any thread. */
void progress_add_saved(Progress *progress, int64_t bytes);

/* Clears the bar so that a line can be printed, then a later add draws it again. While other threads add,
 * hold flockfile(stream) from here to the end of the line, or use progress_note. */
void progress_clear(Progress *progress);

/* Prints a line on the stream above the bar, quiet or not; adds the line's end. Control characters
 * stand as "?" (program_print_text). Any thread. */
void progress_note(Progress *progress, const char *format, ...) FSH_PRINTF(2, 3);

/* Clears the bar; nothing else is printed: the summary is the program's. After all threads are done. */
void progress_finish(Progress *progress);

/* Seconds on the monotonic clock. */
double progress_now_seconds(void);
/* Returns the seconds since *start_seconds, and sets it to now. */
double progress_lap_seconds(double *start_seconds);

/* "1.5 GiB", "320 KiB", "17 B": binary units, three significant digits (four from 1000 to 1023). Returns
 * buffer. */
const char *progress_format_bytes(char *buffer, size_t buffer_bytes, uint64_t bytes);

/* "1:02:03", "2:05", "0:07". Returns buffer. */
const char *progress_format_duration(char *buffer, size_t buffer_bytes, double seconds);

/* "1,281,167"; at most 26 characters. Returns buffer. */
const char *progress_format_count(char *buffer, size_t buffer_bytes, uint64_t count);

#endif
