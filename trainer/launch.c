#include "trainer/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"
#include "trainer/backend/backend.h"
#include "trainer/ranks/rank_place.h"

/* After one rank has failed: seconds that the others have to notice it, then to obey. */
static const double notice_seconds = 15, obey_seconds = 15;

typedef struct Ranks {
    pid_t processes[RANKS_MAX]; /* 0: it has ended */
    int count, living;
    int first;                /* the rank of the first of them */
    int first_failure;        /* exit status; 0: none */
    double next_step_seconds; /* when to send the next signal, once one has failed */
    int pressed;              /* signals sent so far: SIGTERM, SIGKILL */
} Ranks;

/* ---- a child ---- */

static FshStatus set_number(const char *name, long number, FshError *error)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%ld", number);
    return setenv(name, text, 1) ? fsh_error_system(error, errno, "%s: cannot be set", name) : FSH_OK;
}

/* Sets the place of the rank `rank` of this host, of `count`. */
static FshStatus set_place(const RankPlace *host, int rank, int count, pid_t parent, FshError *error)
{
    const bool has_hosts = rank_place_has_hosts(host);
    const struct {
        const char *name;
        long number;
    } variables[] = {{"RANK", (long)host->rank * count + rank},
                     {"WORLD_SIZE", (long)host->world_size * count},
                     {"LOCAL_RANK", rank},
                     {"LOCAL_WORLD_SIZE", count},
                     {"FSHARD_JOB", (long)parent},
                     {"MASTER_PORT", host->port}};
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < sizeof variables / sizeof *variables - !has_hosts && !status; i++)
        status = set_number(variables[i].name, variables[i].number, error);
    if (!status && has_hosts && setenv("MASTER_ADDR", host->address, 1))
        status = fsh_error_system(error, errno, "MASTER_ADDR: cannot be set");
    return status;
}

static FshStatus begin_child(const RankPlace *host, int rank, int count, pid_t parent, const sigset_t *mask,
                             FshError *error)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* the parent ended before that was set */
        (void)raise(SIGTERM);
    if (sigprocmask(SIG_SETMASK, mask, NULL))
        return fsh_error_system(error, errno, "signals cannot be taken");
    return set_place(host, rank, count, parent, error);
}

/* ---- the parent ---- */

static void send_all(const Ranks *ranks, int signal_number)
{
    for (int rank = 0; rank < ranks->count; rank++)
        if (ranks->processes[rank])
            (void)kill(ranks->processes[rank], signal_number);
}

static void note_end(Ranks *ranks, int rank, int status)
{
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (WIFSIGNALED(status))
        (void)fprintf(stderr, "ftrain: rank %d (process %ld) was ended by signal %d (%s)\n",
                      ranks->first + rank, (long)ranks->processes[rank], WTERMSIG(status),
                      strsignal(WTERMSIG(status)));
    ranks->processes[rank] = 0;
    ranks->living--;
    if (code && !ranks->first_failure) {
        ranks->first_failure = code;
        ranks->next_step_seconds = progress_now_seconds() + notice_seconds;
    }
}

static void collect_ended(Ranks *ranks)
{
    for (int rank = 0; rank < ranks->count; rank++) {
        int status = 0;
        if (ranks->processes[rank] &&
            waitpid(ranks->processes[rank], &status, WNOHANG) == ranks->processes[rank])
            note_end(ranks, rank, status);
    }
}

static void press_on(Ranks *ranks)
{
    if (!ranks->first_failure || ranks->pressed == 2 || progress_now_seconds() < ranks->next_step_seconds)
        return;
    send_all(ranks, ranks->pressed ? SIGKILL : SIGTERM);
    ranks->pressed++;
    ranks->next_step_seconds = progress_now_seconds() + obey_seconds;
}

/* Waits until all ranks have ended, and passes signals on. watched: the signals to wait for, which are
 * blocked. */
static void watch(Ranks *ranks, const sigset_t *watched)
{
    const struct timespec second = {.tv_sec = 1};
    while (ranks->living > 0) {
        siginfo_t info;
        const int signal_number = sigtimedwait(watched, &info, &second);
        /* SI_KERNEL: the terminal has sent it to the ranks too; a second one would end them at once. */
        if (signal_number > 0 && signal_number != SIGCHLD &&
            !(signal_number == SIGINT && info.si_code == SI_KERNEL))
            send_all(ranks, signal_number);
        collect_ended(ranks);
        press_on(ranks);
    }
}

FshStatus launch_ranks(const RankPlace *host, int count, bool *parent_ret, int *exit_status_ret,
                       FshError *error)
{
    sigset_t watched, before;
    Ranks ranks = {.count = count, .first = (int)host->rank * count};
    const pid_t parent = getpid();
    FshStatus status = FSH_OK;
    *parent_ret = true;
    *exit_status_ret = 0;
    if (count > RANKS_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%d ranks; %d at most", count, RANKS_MAX);
    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGCHLD);
    (void)sigaddset(&watched, SIGINT);
    (void)sigaddset(&watched, SIGTERM);
    (void)sigaddset(&watched, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &watched, &before))
        return fsh_error_system(error, errno, "signals cannot be held back");
    (void)fflush(NULL); /* otherwise every child would write what is still buffered */
    for (int rank = 0; rank < count && !status; rank++) {
        const pid_t child = fork();
        if (child == 0) {
            *parent_ret = false;
            return begin_child(host, rank, count, parent, &before, error);
        }
        if (child < 0) {
            status = fsh_error_system(error, errno, "rank %d of this host cannot be started", rank);
            send_all(&ranks, SIGKILL);
        } else {
            ranks.processes[rank] = child;
            ranks.living++;
        }
    }
    watch(&ranks, &watched);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    *exit_status_ret = ranks.first_failure;
    return status;
}

/* ---- counting ---- */

typedef struct GpuCount {
    FshStatus status;
    int count;
    char message[sizeof((FshError *)NULL)->message];
} GpuCount;

static void tell_gpus(int descriptor)
{
    GpuCount told = {0};
    FshError error = {0};
    told.status = backend_device_count("cuda", &told.count, &error);
    (void)snprintf(told.message, sizeof told.message, "%s", error.message);
    (void)!write(descriptor, &told, sizeof told);
    _exit(0);
}

FshStatus launch_count_gpus(int *count_ret, FshError *error)
{
    GpuCount told = {0};
    int ends[2];
    size_t length = 0;
    *count_ret = 0;
    if (pipe(ends))
        return fsh_error_system(error, errno, "no pipe");
    const pid_t child = fork();
    if (child == 0)
        tell_gpus(ends[1]);
    (void)close(ends[1]);
    while (child > 0 && length < sizeof told) {
        const ssize_t got = read(ends[0], (char *)&told + length, sizeof told - length);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
        length += got > 0 ? (size_t)got : 0;
    }
    (void)close(ends[0]);
    if (child < 0)
        return fsh_error_system(error, errno, "the GPUs cannot be counted");
    (void)waitpid(child, NULL, 0);
    if (length < sizeof told)
        return fsh_error_set(error, FSH_ERR_LIBRARY,
                             "cuda: counting the GPUs has ended without an answer; use --device cpu");
    *count_ret = told.count;
    return told.status ? fsh_error_set(error, told.status, "%s", told.message) : FSH_OK;
}
