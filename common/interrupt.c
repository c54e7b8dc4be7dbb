#include "common/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* Lock-free, so that a signal handler may touch it and any thread may read it. */
static atomic_int requested_signal;
static atomic_int signal_count;
static atomic_bool requeues;

static void remember_signal(int signal_number)
{
    atomic_fetch_add(&signal_count, 1);
    /* The second SIGINT means that the user will not wait. With the default action the shell sees a death by
     * signal. */
    if (atomic_exchange(&requested_signal, signal_number) && signal_number == SIGINT) {
        (void)signal(SIGINT, SIG_DFL);
        (void)raise(SIGINT);
    }
}

static void watch(int signal_number)
{
    struct sigaction old;
    /* nohup and background jobs of a plain shell ignore SIGINT on purpose. */
    if (sigaction(signal_number, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        return;
    /* SA_RESTART: a write in progress is finished, not failed. */
    struct sigaction action = {.sa_handler = remember_signal, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(signal_number, &action, NULL);
}

void interrupt_install(void)
{
    watch(SIGINT);
    watch(SIGTERM);
    (void)signal(SIGPIPE, SIG_IGN); /* writing to a closed pipe is then an error of write */
}

void interrupt_install_requeue(void)
{
    watch(SIGUSR1);
    atomic_store(&requeues, true);
}

bool interrupt_requeues(void)
{
    const int signal_number = interrupt_signal();
    return atomic_load(&requeues) && (signal_number == SIGTERM || signal_number == SIGUSR1);
}

bool interrupt_requested(void)
{
    return atomic_load_explicit(&requested_signal, memory_order_relaxed) != 0;
}

int interrupt_signal(void)
{
    return atomic_load(&requested_signal);
}

int interrupt_count(void)
{
    return atomic_load(&signal_count);
}

void interrupt_simulate(int signal_number)
{
    atomic_store(&signal_count, signal_number ? 1 : 0);
    atomic_store(&requested_signal, signal_number);
}
