#include "trainer/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"
#include "trainer/backend/backend.h"
#include "trainer/ranks/communicator.h"
#include "trainer/ranks/rank_place.h"

/* After one rank has failed: seconds that the others have to notice it, then to obey. */
static const double notice_seconds = 15, obey_seconds = 15;
/* After one was killed, perhaps before it had met the others, who then wait for it. */
static const double notice_death_seconds = 2;

/* What a rank that has not reported yet has said. */
enum { SILENT = 1 };

typedef struct Ranks {
    const Launcher *launcher;
    pid_t processes[RANKS_MAX]; /* 0: it has ended */
    int count, living;
    int first; /* the rank of the first of them */
    LaunchEnd end;
    double next_step_seconds; /* when to send the next signal, once one has failed */
    int pressed;              /* signals sent so far: SIGTERM, SIGKILL */
} Ranks;

/* ---- a child ---- */

static FshStatus set_variable(const char *name, const char *text, FshError *error)
{
    return setenv(name, text, 1) ? fsh_error_system(error, errno, "%s: cannot be set", name) : FSH_OK;
}

static FshStatus set_number(const char *name, long number, FshError *error)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%ld", number);
    return set_variable(name, text, error);
}

/* Sets the environment that tells the rank `rank` of this host, of `count`, its place. Each launch is a job
 * of its own: ranks of the one before that are still ending do not meet those of this one. */
static FshStatus set_place(const RankPlace *host, int rank, int count, pid_t parent, int launch,
                           FshError *error)
{
    const bool has_hosts = rank_place_has_hosts(host);
    const struct {
        const char *name;
        long number;
    } variables[] = {{"RANK", (long)host->rank * count + rank},
                     {"WORLD_SIZE", (long)host->world_size * count},
                     {"LOCAL_RANK", rank},
                     {"LOCAL_WORLD_SIZE", count},
                     {"MASTER_PORT", host->port}};
    char job[48];
    (void)snprintf(job, sizeof job, "%ld-%d", (long)parent, launch);
    FshStatus status = set_variable("FSHARD_JOB", job, error);
    for (size_t i = 0; i < sizeof variables / sizeof *variables - !has_hosts && !status; i++)
        status = set_number(variables[i].name, variables[i].number, error);
    return status || !has_hosts ? status : set_variable("MASTER_ADDR", host->address, error);
}

static FshStatus begin_child(const Launcher *launcher, const RankPlace *host, int rank, int count,
                             pid_t parent, FshError *error)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* the parent ended before that was set */
        (void)raise(SIGTERM);
    if (sigprocmask(SIG_SETMASK, &launcher->before, NULL))
        return fsh_error_system(error, errno, "signals cannot be taken");
    return set_place(host, rank, count, parent, launcher->launches, error);
}

void launcher_report(const Launcher *launcher, int index, FshStatus status)
{
    if (launcher->reports)
        atomic_store(&launcher->reports[index], (int)status);
}

/* ---- the parent ---- */

static void send_all(const Ranks *ranks, int signal_number)
{
    for (int rank = 0; rank < ranks->count; rank++)
        if (ranks->processes[rank])
            (void)kill(ranks->processes[rank], signal_number);
}

static bool asks_to_end(int signal_number)
{
    return signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP ||
           signal_number == SIGQUIT || signal_number == SIGUSR1;
}

/* Says what the end of a rank means for a restart. Ranks that obey the launcher's own signals mean
 * nothing. */
static void judge_end(Ranks *ranks, int rank, int status)
{
    LaunchEnd *end = &ranks->end;
    const int said = atomic_load(&ranks->launcher->reports[rank]);
    const bool killed = WIFSIGNALED(status) && !asks_to_end(WTERMSIG(status));
    const bool failed = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE;
    if (killed || (failed && said == FSH_ERR_LIBRARY)) {
        end->lost_rank = end->lost_rank < 0 ? rank : end->lost_rank;
        end->lost = true;
    } else if (failed && said == FSH_ERR_PEER) {
        end->lost = true;
    } else if (failed ? said != FSH_OK : !ranks->pressed) {
        end->failed = true;
    }
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
    if (code)
        judge_end(ranks, rank, status);
    if (code && !ranks->end.exit_status) {
        ranks->end.exit_status = code;
        ranks->next_step_seconds =
            progress_now_seconds() + (WIFSIGNALED(status) ? notice_death_seconds : notice_seconds);
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
    if (!ranks->end.exit_status || ranks->pressed == 2 || progress_now_seconds() < ranks->next_step_seconds)
        return;
    send_all(ranks, ranks->pressed ? SIGKILL : SIGTERM);
    send_all(ranks, SIGCONT); /* a rank that is stopped hears of no signal but SIGKILL before this one */
    ranks->pressed++;
    ranks->next_step_seconds = progress_now_seconds() + obey_seconds;
}

/* Waits until all ranks have ended, and passes signals on. */
static void watch(Ranks *ranks)
{
    const struct timespec second = {.tv_sec = 1};
    while (ranks->living > 0) {
        siginfo_t info;
        const int signal_number = sigtimedwait(&ranks->launcher->watched, &info, &second);
        const bool stops = signal_number > 0 && signal_number != SIGCHLD;
        ranks->end.failed = ranks->end.failed || stops;
        /* SI_KERNEL: the terminal has sent it to the ranks too; a second one would end them at once. */
        if (stops && !(signal_number == SIGINT && info.si_code == SI_KERNEL))
            send_all(ranks, signal_number);
        collect_ended(ranks);
        press_on(ranks);
    }
}

FshStatus launcher_open(Launcher *launcher, FshError *error)
{
    const size_t bytes = RANKS_MAX * sizeof *launcher->reports;
    *launcher = (Launcher){0};
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return fsh_error_system(error, errno, "no memory that ranks could share");
    launcher->reports = memory;
    (void)sigemptyset(&launcher->watched);
    (void)sigaddset(&launcher->watched, SIGCHLD);
    (void)sigaddset(&launcher->watched, SIGINT);
    (void)sigaddset(&launcher->watched, SIGTERM);
    (void)sigaddset(&launcher->watched, SIGUSR1);
    if (sigprocmask(SIG_BLOCK, &launcher->watched, &launcher->before))
        return fsh_error_system(error, errno, "signals cannot be held back");
    return FSH_OK;
}

void launcher_close(Launcher *launcher)
{
    (void)munmap(launcher->reports, RANKS_MAX * sizeof *launcher->reports);
    (void)sigprocmask(SIG_SETMASK, &launcher->before, NULL);
    *launcher = (Launcher){0};
}

int launcher_take_signal(const Launcher *launcher)
{
    const struct timespec now = {0};
    int signal_number;
    do
        signal_number = sigtimedwait(&launcher->watched, NULL, &now);
    while (signal_number == SIGCHLD || (signal_number < 0 && errno == EINTR));
    return signal_number > 0 ? signal_number : 0;
}

/* Removes what killed ranks have left of their meeting. */
static void forget_job(const Launcher *launcher, const RankPlace *host, int count)
{
    RankPlace place;
    if (set_place(host, 0, count, getpid(), launcher->launches, NULL) == FSH_OK &&
        rank_place_from_environment(&place, NULL, NULL) == FSH_OK && place.world_size > 1)
        communicator_forget(&place);
}

/* Starts one rank. Returns its process, 0 in the rank itself, and -1 if it cannot be started. */
static pid_t start_rank(Ranks *ranks, int rank)
{
    atomic_store(&ranks->launcher->reports[rank], SILENT);
    const pid_t child = fork();
    if (child > 0) {
        ranks->processes[rank] = child;
        ranks->living++;
    }
    return child;
}

FshStatus launcher_run(Launcher *launcher, const RankPlace *host, int count, bool *parent_ret,
                       LaunchEnd *end_ret, FshError *error)
{
    Ranks ranks = {
        .launcher = launcher, .count = count, .first = (int)host->rank * count, .end = {.lost_rank = -1}};
    const pid_t parent = getpid();
    FshStatus status = FSH_OK;
    *parent_ret = true;
    *end_ret = ranks.end;
    if (count > RANKS_MAX)
        return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "%d ranks; %d at most", count, RANKS_MAX);
    launcher->launches++;
    (void)fflush(NULL); /* otherwise every child would write what is still buffered */
    for (int rank = 0; rank < count && !status; rank++) {
        const pid_t child = start_rank(&ranks, rank);
        if (child == 0) {
            *parent_ret = false;
            return begin_child(launcher, host, rank, count, parent, error);
        }
        if (child < 0) {
            status = fsh_error_system(error, errno, "rank %d of this host cannot be started", rank);
            send_all(&ranks, SIGKILL);
        }
    }
    watch(&ranks);
    if (ranks.end.lost)
        forget_job(launcher, host, count);
    *end_ret = ranks.end;
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

bool launch_gpu_works(int number)
{
    enum { TRIES = 6000 };
    const struct timespec pause = {.tv_nsec = 10000000};
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        Backend *backend = NULL;
        const BackendOptions options = {.device_index = number};
        _exit(backend_open(&backend, "cuda", &options, NULL) == FSH_OK ? 0 : 1);
    }
    for (int i = 0; i < TRIES && child > 0; i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        (void)nanosleep(&pause, NULL);
    }
    if (child > 0)
        (void)kill(child,
                   SIGKILL); /* it may hang in the driver, where no signal reaches it: not waited for */
    return false;
}
