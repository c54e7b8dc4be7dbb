#include "common/thread.h"

#include <signal.h>
#include <stddef.h>

int thread_start(pthread_t *thread_ret, void *(*run)(void *context), void *context)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked, before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        (void)sigdelset(&blocked, faults[i]);
    int code = pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if (code)
        return code;
    code = pthread_create(thread_ret, NULL, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

void thread_condition_init(pthread_cond_t *condition_ret)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition_ret, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

struct timespec thread_deadline(double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    const double due = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)due;
    until.tv_nsec = (long)((due - (double)(time_t)due) * 1e9);
    return until;
}
