/* thread.h - what threads that serve a program need: to be left alone by signals, and to wait for a time.
 *
 * Threads: any. */
#ifndef FSHARD_COMMON_THREAD_H
#define FSHARD_COMMON_THREAD_H

#include <pthread.h>
#include <time.h>

/* Starts a thread that takes no signals: those are for the threads that wait for them. Faults of its own
 * (SIGSEGV, SIGABRT, …) are not held back. Returns 0 and sets *thread_ret, or returns an errno. */
int thread_start(pthread_t *thread_ret, void *(*run)(void *context), void *context);

/* Makes a condition for pthread_cond_timedwait until a thread_deadline. The caller destroys it. */
void thread_condition_init(pthread_cond_t *condition_ret);
/* Returns the time in so many seconds. It does not move when the system's clock is set. */
struct timespec thread_deadline(double seconds);

#endif
