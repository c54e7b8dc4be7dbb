#include "trainer/ranks/host_beats.h"

#include <signal.h>
#include <time.h>

#include "common/progress.h"

/* Waits until the next beat is due. Returns whether the thread goes on. */
static bool rest(HostBeats *beats)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    const double due = (double)until.tv_nsec * 1e-9 + HOST_BEAT_SECONDS;
    until.tv_sec += (time_t)due;
    until.tv_nsec = (long)((due - (double)(time_t)due) * 1e9);
    int code = 0;
    (void)pthread_mutex_lock(&beats->mutex);
    while (!beats->ends && code == 0)
        code = pthread_cond_timedwait(&beats->ended, &beats->mutex, &until);
    const bool goes_on = !beats->ends;
    (void)pthread_mutex_unlock(&beats->mutex);
    return goes_on;
}

/* Adds the time that has passed to that of each rank that has not beaten meanwhile. */
static void look_at_others(HostBeats *beats, double passed)
{
    for (uint64_t index = 0; index < beats->memory->count; index++) {
        const unsigned beat = atomic_load(&beats->memory->head->ranks[index].beats);
        const bool moves =
            beat != beats->seen[index] || host_memory_state(beats->memory, index) != HOST_RANK_THERE;
        beats->seen[index] = beat;
        atomic_store(&beats->still_ms[index],
                     moves ? 0 : atomic_load(&beats->still_ms[index]) + (uint32_t)(passed * 1000));
    }
}

static void *beat_on(void *context)
{
    HostBeats *beats = context;
    double last = progress_now_seconds();
    do {
        atomic_fetch_add(&beats->memory->head->ranks[beats->memory->index].beats, 1);
        const double now = progress_now_seconds(), passed = now - last;
        look_at_others(beats, passed < beats->most_seconds ? passed : beats->most_seconds);
        last = now;
    } while (rest(beats));
    return NULL;
}

/* Starts the thread with all signals blocked that can be held back: they are for those that wait for
 * them. */
static int start_thread(HostBeats *beats)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked, before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        (void)sigdelset(&blocked, faults[i]);
    int code = pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if (code)
        return code;
    code = pthread_create(&beats->thread, NULL, beat_on, beats);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

FshStatus host_beats_start(HostBeats *beats, const HostMemory *memory, double timeout_seconds,
                           FshError *error)
{
    /* A longer time between two beats was a standstill of this process itself. */
    const double most = timeout_seconds / 4 < 1 ? timeout_seconds / 4 : 1;
    pthread_condattr_t attributes;
    *beats = (HostBeats){.memory = memory, .most_seconds = most};
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&beats->ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    (void)pthread_mutex_init(&beats->mutex, NULL);
    const int code = start_thread(beats);
    beats->runs = code == 0;
    return code ? fsh_error_system(error, code, "no thread to look after the other ranks") : FSH_OK;
}

void host_beats_stop(HostBeats *beats)
{
    if (!beats->runs)
        return;
    (void)pthread_mutex_lock(&beats->mutex);
    beats->ends = true;
    (void)pthread_cond_signal(&beats->ended);
    (void)pthread_mutex_unlock(&beats->mutex);
    (void)pthread_join(beats->thread, NULL);
    (void)pthread_cond_destroy(&beats->ended);
    (void)pthread_mutex_destroy(&beats->mutex);
    beats->runs = false;
}

double host_beats_still(const HostBeats *beats, uint64_t index)
{
    return atomic_load(&beats->still_ms[index]) / 1000.0;
}
