#include "trainer/launch_gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "trainer/backend/backend.h"

enum { ANSWER_BYTES_MAX = 4096, ANSWER_SECONDS = 60, MILLISECONDS_BETWEEN_LOOKS = 50 };
static const double end_seconds = 2;

/* ---- a question ---- */

static void answer(const LaunchQuestion *question, int descriptor)
{
    _Alignas(max_align_t) char told[ANSWER_BYTES_MAX] = {0};
    question->answer(question->about, told);
    (void)!write(descriptor, told, question->told_bytes);
    _exit(0);
}

/* Returns the signal that has asked this process to stop; 0: none. */
static int take_signal(const Launcher *launcher)
{
    const int signal_number = launcher ? launcher_take_signal(launcher) : interrupt_signal();
    if (launcher && signal_number)
        interrupt_simulate(signal_number);
    return signal_number;
}

/* Reads the answer, which comes in one piece. */
static FshStatus read_answer(const LaunchQuestion *question, int descriptor, void *told, FshError *error)
{
    return read(descriptor, told, question->told_bytes) == (ssize_t)question->told_bytes
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_LIBRARY, "%s has ended without an answer", question->what);
}

static FshStatus await_answer(const Launcher *launcher, const LaunchQuestion *question, int descriptor,
                              void *told, FshError *error)
{
    const double start = progress_now_seconds();
    struct pollfd end = {.fd = descriptor, .events = POLLIN};
    while (progress_now_seconds() - start < question->seconds) {
        if (poll(&end, 1, MILLISECONDS_BETWEEN_LOOKS) > 0)
            return read_answer(question, descriptor, told, error);
        if (take_signal(launcher))
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while %s", question->what);
    }
    return fsh_error_set(error, FSH_ERR_LIBRARY, "%s has not ended after %g s", question->what,
                         question->seconds);
}

/* Ends a child. One that hangs in the driver, where no signal reaches it, is not waited for. */
static void end_child(pid_t child)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const double start = progress_now_seconds();
    (void)kill(child, SIGKILL);
    while (waitpid(child, NULL, WNOHANG) == 0 && progress_now_seconds() - start < end_seconds)
        (void)nanosleep(&pause, NULL);
}

FshStatus launch_ask(const Launcher *launcher, const LaunchQuestion *question, void *told, FshError *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return fsh_error_system(error, errno, "no pipe");
    const pid_t child = fork();
    if (child == 0)
        answer(question, ends[1]);
    FshStatus status =
        child < 0 ? fsh_error_system(error, errno, "%s: no process for it", question->what) : FSH_OK;
    (void)close(ends[1]);
    if (!status)
        status = await_answer(launcher, question, ends[0], told, error);
    (void)close(ends[0]);
    if (child > 0)
        end_child(child);
    return status;
}

/* ---- GPUs ---- */

typedef struct GpuCount {
    FshStatus status;
    int count;
    char message[sizeof((FshError *)NULL)->message];
} GpuCount;

static void count_gpus(const void *about, void *told)
{
    GpuCount *count = told;
    FshError error = {0};
    (void)about;
    count->status = backend_device_count("cuda", &count->count, &error);
    (void)snprintf(count->message, sizeof count->message, "%s", error.message);
}

FshStatus launch_count_gpus(const Launcher *launcher, int *count_ret, FshError *error)
{
    static const LaunchQuestion question = {.what = "counting the GPUs",
                                            .answer = count_gpus,
                                            .told_bytes = sizeof(GpuCount),
                                            .seconds = ANSWER_SECONDS};
    _Static_assert(sizeof(GpuCount) <= ANSWER_BYTES_MAX, "an answer is written in one piece");
    GpuCount told = {0};
    FshError why = {0};
    *count_ret = 0;
    FshStatus status = launch_ask(launcher, &question, &told, &why);
    if (status)
        return fsh_error_set(error, status, "%s%s", why.message,
                             status == FSH_ERR_LIBRARY ? "; use --device cpu" : "");
    *count_ret = told.count;
    return told.status ? fsh_error_set(error, told.status, "%s", told.message) : FSH_OK;
}

static void open_gpu(const void *number, void *told)
{
    Backend *backend = NULL;
    const BackendOptions options = {.device_index = *(const int *)number};
    *(bool *)told = backend_open(&backend, "cuda", &options, NULL) == FSH_OK;
}

FshStatus launch_gpu_works(const Launcher *launcher, int number, bool *works_ret, FshError *error)
{
    const LaunchQuestion question = {.what = "opening a GPU",
                                     .answer = open_gpu,
                                     .about = &number,
                                     .told_bytes = sizeof *works_ret,
                                     .seconds = ANSWER_SECONDS};
    *works_ret = false;
    FshStatus status = launch_ask(launcher, &question, works_ret, error);
    return status == FSH_ERR_LIBRARY ? FSH_OK : status;
}
