/* Signals: the first is a flag, a second SIGINT the end; one that comes twice by way of the parent is one. */
#include "tests/support/support.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/interrupt.h"

/* Starts a process that sends itself a signal, as its group would get it, and waits for others. It ends with
 * the number of signals that it counts, once `ends` is closed. */
static pid_t start(int signal_number, int ready[2], int ends[2])
{
    char byte = 0;
    assert_int_equal(pipe(ready) | pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    (void)close(ends[1]);
    interrupt_install();
    interrupt_install_requeue();
    (void)raise(signal_number);
    (void)!write(ready[1], &byte, 1);
    (void)!read(ends[0], &byte, 1);
    _exit(interrupt_requested() ? interrupt_count() : 100);
}

/* Sends `count` signals from the parent and returns how the process ended, as a shell has it. */
static int end_of(int signal_number, int count)
{
    int ready[2], ends[2], status = 0;
    char byte;
    const pid_t child = start(signal_number, ready, ends);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int i = 0; i < count; i++) {
        assert_int_equal(kill(child, signal_number), 0);
        (void)poll(NULL, 0, 50); /* two at once may come as one */
    }
    (void)close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    for (int i = 0; i < 2; i++)
        (void)close(ready[i]);
    (void)close(ends[0]);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(test_a_signal_that_the_parent_passes_on_is_no_second_one)
{
    assert_int_equal(end_of(SIGINT, 0), 1);
    assert_int_equal(end_of(SIGINT, 1), 1);
    assert_int_equal(end_of(SIGTERM, 1), 1);
    assert_int_equal(end_of(SIGUSR1, 1), 1);
}

TEST(test_the_first_signal_may_end_a_process_at_once)
{
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        int status = 0;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            interrupt_install();
            interrupt_take_at_once();
            (void)raise(signals[i]);
            _exit(100);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(WTERMSIG(status), signals[i]);
    }
}

TEST(test_a_second_signal_counts)
{
    assert_int_equal(end_of(SIGINT, 2), 128 + SIGINT);
    assert_int_equal(end_of(SIGTERM, 2), 2);
}

/* Returns in text what a process writes to standard error at a signal, which it gets before it knows what to
 * say of it, or after. */
static void said_of(int signal_number, bool before, bool terminal, char *text, size_t text_bytes)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        interrupt_install();
        interrupt_install_requeue();
        if (before)
            (void)raise(signal_number);
        interrupt_say("ends soon", terminal);
        if (!before)
            (void)raise(signal_number);
        (void)raise(SIGTERM); /* a second one, which says nothing */
        interrupt_say(NULL, false);
        _exit(interrupt_count());
    }
    (void)close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 2 << 8);
    const ssize_t length = read(ends[0], text, text_bytes - 1);
    assert_true(length >= 0);
    text[length] = '\0';
    (void)close(ends[0]);
}

TEST(test_the_first_signal_says_what_will_happen)
{
    char text[300];
    said_of(SIGINT, false, false, text, sizeof text);
    assert_string_equal(text, "ends soon; Ctrl-C again ends it at once\n");
    said_of(SIGTERM, false, false, text, sizeof text);
    assert_string_equal(text, "ends soon\n");
    said_of(SIGUSR1, false, true, text, sizeof text);
    assert_string_equal(text, "\r\033[Kends soon\n");
    said_of(SIGINT, true, false, text, sizeof text);
    assert_string_equal(text, "ends soon; Ctrl-C again ends it at once\n");
}

/* A frame below the stack pointer would lie over the heap while oneDNN 2.6 multiplies (AVX2). */
TEST(test_handlers_have_a_stack_of_their_own)
{
    struct sigaction action;
    stack_t stack;
    interrupt_install();
    assert_int_equal(sigaction(SIGTERM, NULL, &action), 0);
    assert_true(action.sa_flags & SA_ONSTACK);
    assert_int_equal(sigaltstack(NULL, &stack), 0);
    assert_false(stack.ss_flags & SS_DISABLE);
}
