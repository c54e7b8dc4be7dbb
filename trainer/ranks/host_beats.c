#include "trainer/ranks/host_beats.h"

#include "common/progress.h"
#include "common/thread.h"

/* Waits until the next beat is due. Returns whether the thread goes on. */
static bool rest(HostBeats *beats)
{
    const struct timespec until = thread_deadline(HOST_BEAT_SECONDS);
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

FshStatus host_beats_start(HostBeats *beats, const HostMemory *memory, double timeout_seconds,
                           FshError *error)
{
    /* A longer time between two beats was a standstill of this process itself. */
    const double most = timeout_seconds / 4 < 1 ? timeout_seconds / 4 : 1;
    *beats = (HostBeats){.memory = memory, .most_seconds = most};
    thread_condition_init(&beats->ended);
    (void)pthread_mutex_init(&beats->mutex, NULL);
    const int code = thread_start(&beats->thread, beat_on, beats);
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
