/* progress.h - one line that says how far, how fast, how long still.
 *
 *   Progress progress;
 *   progress_start(&progress, stderr, "packing", "images", total, quiet);
 *   … from any thread: progress_add(&progress, 1, bytes, failed);
 *   progress_finish(&progress);
 *
 * On a terminal a bar is redrawn ten times a second at most; elsewhere a plain line appears every 10 seconds.
 * A total of 0 means unknown: no bar and no ETA, count and rate only. NO_COLOR and TERM=dumb are honoured. */
#ifndef FSHARD_COMMON_PROGRESS_H
#define FSHARD_COMMON_PROGRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct Progress {
    FILE *stream;
    const char *verb, *unit;
    bool quiet, terminal;
    double start_seconds;
    _Atomic uint64_t total, done, bytes, failed;
    _Atomic uint64_t next_draw_ns; /* whoever moves it on draws */
} Progress;

void progress_start(Progress *progress, FILE *stream, const char *verb, const char *unit, uint64_t total, bool quiet);

/* Any thread, lock-free but for the thread that draws. failed: of `count`, how many failed. */
void progress_add(Progress *progress, uint64_t count, uint64_t bytes, uint64_t failed);

/* Clears the bar so that a line can be printed, then the next add draws it again. Any thread. */
void progress_clear(Progress *progress);

/* Clears the bar; nothing else is printed: the summary is the program's. */
void progress_finish(Progress *progress);

/* Seconds on the monotonic clock. */
double progress_now_seconds(void);

/* "1.5 GiB", "320 kB" style for people: binary units, three significant digits. Returns buffer. */
const char *progress_format_bytes(char *buffer, size_t buffer_bytes, uint64_t bytes);

/* "1:02:03", "2:05", "0:07". Returns buffer. */
const char *progress_format_duration(char *buffer, size_t buffer_bytes, double seconds);

#endif
