#include "common/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* Lock-free, so that a signal handler may touch it and any thread may read it. */
static atomic_int requested_signal;
/* How often each signal has come from the parent process, and from anyone else. */
enum { SIGNALS = 3, SENDERS = 2 };
static atomic_int counts[SIGNALS][SENDERS];
static atomic_int simulated_count;
static atomic_bool requeues, at_once;
/* What the first signal says; NULL: nothing, or it has been said. */
static const char *_Atomic notice;
static atomic_bool over_progress;

static int place_of(int signal_number)
{
    return signal_number == SIGINT ? 0 : signal_number == SIGTERM ? 1 : 2;
}

/* Counts a signal. Returns false if it is one that has come already and that the parent process passes on, or
 * the other way round. */
static bool is_new(int signal_number, const siginfo_t *info)
{
    const int sender = info->si_code == SI_USER && info->si_pid == getppid();
    atomic_int *own = counts[place_of(signal_number)];
    return atomic_fetch_add(&own[sender], 1) >= atomic_load(&own[1 - sender]);
}

/* Appends text to a line of `bytes` bytes as far as there is room, and returns the new length. */
static size_t append(char *line, size_t bytes, size_t length, const char *text)
{
    const size_t more = strlen(text), room = bytes - length;
    memcpy(line + length, text, more < room ? more : room);
    return length + (more < room ? more : room);
}

/* Writes the notice, once. Safe in a handler. */
static void write_notice(int signal_number)
{
    char line[256];
    const int before = errno;
    const char *text = atomic_exchange(&notice, NULL);
    size_t length = 0;
    if (!text)
        return;
    if (atomic_load(&over_progress))
        length = append(line, sizeof line, length, "\r\033[K");
    length = append(line, sizeof line, length, text);
    if (signal_number == SIGINT)
        length = append(line, sizeof line, length, "; Ctrl-C again ends it at once");
    length = append(line, sizeof line, length, "\n");
    (void)!write(STDERR_FILENO, line, length);
    errno = before;
}

static void remember_signal(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    if (!is_new(signal_number, info))
        return;
    /* The second SIGINT means that the user will not wait. With the default action the shell sees a death by
     * signal. */
    const bool waits = !atomic_exchange(&requested_signal, signal_number) || signal_number != SIGINT;
    if (!waits || atomic_load(&at_once)) {
        (void)signal(signal_number, SIG_DFL);
        (void)raise(signal_number);
    }
    write_notice(signal_number);
}

/* Gives the thread, the process's first, a stack for handlers, unless it has one. Signals to a process go to
 * its first thread while that does not block them. A handler must not push its frame below the stack pointer:
 * oneDNN 2.6's matrix products for AVX2 keep it in a buffer of the heap while they run, and the frame would
 * lie over what is in front of that buffer. */
static void make_handler_stack(void)
{
    enum { HANDLER_STACK_BYTES = 1 << 16 };
    static char memory[HANDLER_STACK_BYTES] __attribute__((aligned(64)));
    const stack_t own = {.ss_sp = memory, .ss_size = sizeof memory};
    stack_t there;
    if (sigaltstack(NULL, &there) == 0 && (there.ss_flags & SS_DISABLE))
        (void)sigaltstack(&own, NULL);
}

static void watch(int signal_number)
{
    struct sigaction old;
    /* nohup and background jobs of a plain shell ignore SIGINT on purpose. */
    if (sigaction(signal_number, NULL, &old) == 0 && old.sa_handler == SIG_IGN)
        return;
    /* SA_RESTART: a write in progress is finished, not failed. */
    struct sigaction action = {.sa_sigaction = remember_signal,
                               .sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(signal_number, &action, NULL);
}

void interrupt_install(void)
{
    make_handler_stack();
    watch(SIGINT);
    watch(SIGTERM);
    (void)signal(SIGPIPE, SIG_IGN); /* writing to a closed pipe is then an error of write */
}

void interrupt_install_requeue(void)
{
    watch(SIGUSR1);
    atomic_store(&requeues, true);
}

void interrupt_take_at_once(void)
{
    atomic_store(&at_once, true);
}

void interrupt_say(const char *text, bool terminal)
{
    const int signal_number = interrupt_signal();
    atomic_store(&over_progress, terminal);
    atomic_store(&notice, text);
    if (signal_number)
        write_notice(signal_number);
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
    int count = atomic_load(&simulated_count);
    for (int i = 0; i < SIGNALS; i++) {
        const int passed_on = atomic_load(&counts[i][1]), others = atomic_load(&counts[i][0]);
        count += passed_on > others ? passed_on : others;
    }
    return count;
}

void interrupt_simulate(int signal_number)
{
    for (int i = 0; i < SIGNALS; i++)
        for (int sender = 0; sender < SENDERS; sender++)
            atomic_store(&counts[i][sender], 0);
    atomic_store(&simulated_count, signal_number ? 1 : 0);
    atomic_store(&requested_signal, signal_number);
}
