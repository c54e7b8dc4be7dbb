#include "trainer/launch.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"
#include "trainer/ranks/communicator.h"
#include "trainer/ranks/rank_place.h"

/* After one rank has failed: seconds that the others have to notice it, unless the launcher says otherwise,
 * then to obey. */
static const double usual_notice_seconds = 15, obey_seconds = 15;
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
    double next_step_seconds; /* when to send the next signal, once one has failed; 0: none has */
    int pressed;              /* signals sent so far: SIGTERM, SIGKILL */
} Ranks;

/* ---- a child ---- */

enum { VARIABLES_MAX = 7, VARIABLE_TEXT_MAX = RANK_ADDRESS_MAX };

/* The environment that tells a rank its place. */
typedef struct PlaceVariables {
    size_t count;
    struct {
        const char *name;
        char text[VARIABLE_TEXT_MAX];
    } of[VARIABLES_MAX];
} PlaceVariables;

static void add_number(PlaceVariables *variables, const char *name, uint64_t number)
{
    variables->of[variables->count].name = name;
    (void)snprintf(variables->of[variables->count++].text, VARIABLE_TEXT_MAX, "%" PRIu64, number);
}

/* Returns the environment of the rank `rank` of this host, of `count`. Each launch is a job of its own: ranks
 * of the one before that are still ending do not meet those of this one. */
static PlaceVariables place_variables(const Launcher *launcher, const RankPlace *host, int rank, int count)
{
    PlaceVariables variables = {.count = 1, .of = {{.name = "FSHARD_JOB"}}};
    (void)snprintf(variables.of[0].text, VARIABLE_TEXT_MAX, "%016" PRIx64 "-%d", launcher->name,
                   launcher->launches);
    add_number(&variables, "RANK", host->rank * (uint64_t)count + (uint64_t)rank);
    add_number(&variables, "WORLD_SIZE", host->world_size * (uint64_t)count);
    add_number(&variables, "LOCAL_RANK", (uint64_t)rank);
    add_number(&variables, "LOCAL_WORLD_SIZE", (uint64_t)count);
    if (!rank_place_has_hosts(host))
        return variables;
    add_number(&variables, "MASTER_PORT", host->port);
    variables.of[variables.count].name = "MASTER_ADDR";
    (void)snprintf(variables.of[variables.count++].text, VARIABLE_TEXT_MAX, "%s", host->address);
    return variables;
}

static const char *find_variable(void *context, const char *name)
{
    const PlaceVariables *variables = context;
    for (size_t i = 0; i < variables->count; i++)
        if (strcmp(variables->of[i].name, name) == 0)
            return variables->of[i].text;
    return NULL;
}

static FshStatus set_variables(const PlaceVariables *variables, FshError *error)
{
    for (size_t i = 0; i < variables->count; i++)
        if (setenv(variables->of[i].name, variables->of[i].text, 1))
            return fsh_error_system(error, errno, "%s: cannot be set", variables->of[i].name);
    return FSH_OK;
}

FshStatus launcher_begin_child(const Launcher *launcher, pid_t parent, FshError *error)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* the parent ended before that was set */
        (void)raise(SIGTERM);
    return sigprocmask(SIG_SETMASK, &launcher->before, NULL)
               ? fsh_error_system(error, errno, "signals cannot be taken")
               : FSH_OK;
}

static FshStatus begin_rank(const Launcher *launcher, const RankPlace *host, int rank, int count,
                            pid_t parent, FshError *error)
{
    const PlaceVariables variables = place_variables(launcher, host, rank, count);
    FshStatus status = launcher_begin_child(launcher, parent, error);
    return status ? status : set_variables(&variables, error);
}

FshStatus launcher_foresee(const RankPlace *host, int count, FshError *error)
{
    const PlaceVariables variables = place_variables(&(Launcher){0}, host, 0, count);
    return set_variables(&variables, error);
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

/* Returns the seconds that the others get after a rank has ended in this way. */
static double notice_seconds(const Ranks *ranks, int rank, int status)
{
    if (WIFSIGNALED(status))
        return notice_death_seconds;
    return atomic_load(&ranks->launcher->reports[rank]) == FSH_ERR_INTERRUPTED
               ? COMMUNICATOR_PATIENCE_SECONDS
               : ranks->launcher->notice_seconds;
}

/* Sets when the others are sent the next signal, now that this rank has failed: never later than was set. */
static void start_clock(Ranks *ranks, int rank, int status)
{
    const double then = progress_now_seconds() + notice_seconds(ranks, rank, status);
    if (ranks->next_step_seconds == 0 || (!ranks->pressed && then < ranks->next_step_seconds))
        ranks->next_step_seconds = then;
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
    if (!code)
        return;
    judge_end(ranks, rank, status);
    start_clock(ranks, rank, status);
    if (!ranks->end.exit_status)
        ranks->end.exit_status = code;
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
    *launcher = (Launcher){.notice_seconds = usual_notice_seconds};
    if (getrandom(&launcher->name, sizeof launcher->name, 0) != (ssize_t)sizeof launcher->name)
        return fsh_error_system(error, errno, "no random name for the ranks' job");
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
    PlaceVariables variables = place_variables(launcher, host, 0, count);
    if (rank_place_find(&place, NULL, find_variable, &variables, NULL) == FSH_OK && place.world_size > 1)
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
            return begin_rank(launcher, host, rank, count, parent, error);
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
