#include "trainer/start_runs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "common/cpu.h"
#include "common/file.h"
#include "common/folder_lock.h"
#include "common/interrupt.h"
#include "common/text.h"
#include "trainer/launch_gpus.h"
#include "trainer/plan/recipe.h"
#include "trainer/report/run_record.h"
#include "trainer/session/session.h"
#include "trainer/start_ranks.h"
#include "trainer/study/compare.h"
#include "trainer/study/sweep.h"

static const char lock_name[] = ".ftrain-sweep-lock";

/* A process that does a run, on a GPU of its own. */
typedef struct RunSlot {
    pid_t process;   /* 0: free */
    size_t run;      /* index of the sweep's runs */
    long log_before; /* bytes of the run's log that were there when it began */
} RunSlot;

/* Hashes of the warnings that were told; of more than so many each is told again. */
typedef struct ToldWarnings {
    uint64_t hashes[64];
    size_t count;
} ToldWarnings;

typedef struct Runs {
    Sweep *sweep;
    const TrainOptions *options;
    Launcher launcher; /* holds signals back */
    RankGpus gpus;     /* a slot for each; listed or not, numbers says which, if chooses_gpus */
    bool chooses_gpus;
    RunSlot slots[RANKS_MAX];
    int slot_count, busy;
    size_t next;    /* the next run that may begin */
    int stopped_by; /* a signal; 0: none */
    size_t failed;
    ToldWarnings told;
    char failures[1024]; /* names of the runs that failed, as far as they fit */
} Runs;

/* ---- before anything runs ---- */

/* What a process that plans a run tells. */
typedef struct PlanAnswer {
    FshStatus status;
    char message[sizeof((FshError *)NULL)->message];
} PlanAnswer;

/* Plans a run as far as that goes without its device. The device that --device auto would find decides what
 * options do. */
static void plan_run(const void *about, void *told)
{
    TrainOptions options = *(const TrainOptions *)about;
    PlanAnswer *answer = told;
    Session session;
    FshError error = {0};
    int count = 0;
    options.program.quiet = true;
    if (options.compute.device == OPTION_AUTO)
        options.compute.device =
            backend_device_count("cuda", &count, NULL) == FSH_OK && count > 0 ? DEVICE_CUDA : DEVICE_CPU;
    (void)!freopen("/dev/null", "w", stderr); /* the run will warn by itself */
    answer->status = session_open(&session, &options, SESSION_LOAD, &error);
    if (!answer->status) {
        answer->status = network_foresee(&session.network, &session.plan, &error);
        session_close(&session);
    }
    answer->status = recipe_explain(&options, answer->status, &error);
    (void)snprintf(answer->message, sizeof answer->message, "%s", error.message);
}

/* Plans one run of each combination that is not finished; seeds change no plan. */
static FshStatus plan_runs(const Runs *runs, FshError *error)
{
    const Sweep *sweep = runs->sweep;
    const size_t seeds = sweep->seeds ? sweep->seeds : 1;
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < sweep->count && !status; i++) {
        TrainOptions options = *runs->options;
        PlanAnswer answer = {.status = FSH_OK};
        const LaunchQuestion question = {.what = "planning a run",
                                         .answer = plan_run,
                                         .about = &options,
                                         .told_bytes = sizeof answer,
                                         .seconds = 600};
        if (i % seeds || sweep->runs[i].finished)
            continue;
        status = sweep_apply(sweep, &sweep->runs[i], &options, error);
        if (!status)
            status = launch_ask(&runs->launcher, &question, &answer, error);
        if (!status && answer.status)
            status = fsh_error_set(error, answer.status, "%s: %s", sweep->runs[i].name, answer.message);
    }
    return status;
}

static FshStatus check_alone(const RankPlace *place, FshError *error)
{
    return place->world_size > 1
               ? fsh_error_set(
                     error, FSH_ERR_USAGE,
                     "--sweep: starts processes of its own, and %s has started %llu already; start it once",
                     place->launcher, (unsigned long long)place->world_size)
               : FSH_OK;
}

/* Decides how many runs go on at a time. */
static FshStatus choose_slots(Runs *runs, TrainOptions *options, FshError *error)
{
    runs->slot_count = 1;
    if (!options->ranks.gpus)
        return FSH_OK;
    FshStatus status = start_ranks_gpus(options, &runs->gpus, error);
    if (status)
        return status;
    runs->chooses_gpus = options->compute.device != DEVICE_CPU && (runs->gpus.count > 1 || runs->gpus.listed);
    runs->slot_count = runs->gpus.count;
    return FSH_OK;
}

static void list_runs(const Sweep *sweep)
{
    for (size_t i = 0; i < sweep->count; i++)
        (void)printf("%s%s\n", sweep->runs[i].folder,
                     sweep->runs[i].finished                     ? ": has ended"
                     : study_run_is_there(sweep->runs[i].folder) ? ": goes on"
                                                                 : "");
}

/* ---- a child ---- */

/* Gives the process the GPU of its slot: the one of this number among those that it sees. */
static FshStatus take_gpu(const Runs *runs, int slot, FshError *error)
{
    char text[128];
    int number = runs->gpus.numbers[slot];
    const char *seen = getenv("CUDA_VISIBLE_DEVICES");
    (void)snprintf(text, sizeof text, "%d", number);
    for (; seen && *seen && number > 0; number--) {
        const char *comma = strchr(seen, ',');
        seen = comma ? comma + 1 : "";
    }
    if (seen && *seen)
        (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(seen, ","), seen);
    return setenv("CUDA_VISIBLE_DEVICES", text, 1)
               ? fsh_error_system(error, errno, "CUDA_VISIBLE_DEVICES: cannot be set")
               : FSH_OK;
}

/* Writes the path of the run's log to path. Returns false where it is too long. */
static bool log_path(const SweepRun *run, char *path, size_t path_bytes)
{
    return (size_t)snprintf(path, path_bytes, "%s.log", run->folder) < path_bytes;
}

static FshStatus open_log(const SweepRun *run, FshError *error)
{
    char path[PATH_MAX];
    if (!log_path(run, path, sizeof path))
        return fsh_error_set(error, FSH_ERR_USAGE, "%s: the path is too long", run->folder);
    const int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0 || dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0)
        return fsh_error_system(error, errno, "%s: cannot be written", path);
    (void)close(log);
    return FSH_OK;
}

/* Makes this process that of a run: signals, log, GPU, options. */
static FshStatus become_run(const Runs *runs, int slot, pid_t parent, TrainOptions *options, FshError *error)
{
    const SweepRun *run = &runs->sweep->runs[runs->slots[slot].run];
    FshStatus status = launcher_begin_child(&runs->launcher, parent, error);
    if (!status)
        status = open_log(run, error);
    if (!status && runs->chooses_gpus)
        status = take_gpu(runs, slot, error);
    if (!status)
        status = sweep_apply(runs->sweep, run, options, error);
    options->force |= record_may_begin_again(run->folder); /* where it diverged, or was killed early */
    options->checkpoint.resume = options->force ? NULL : "auto";
    options->ranks.gpus = NULL;
    options->program.json = false;
    if (runs->slot_count > 1 && !options->program.jobs)
        options->program.jobs = cpu_jobs(0) > runs->slot_count ? cpu_jobs(0) / runs->slot_count : 1;
    return status;
}

/* ---- the parent ---- */

FSH_PRINTF(2, 3) static void tell(const Runs *runs, const char *format, ...);

static void tell(const Runs *runs, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!runs->options->program.quiet) {
        (void)vfprintf(stderr, format, arguments);
        (void)fputc('\n', stderr);
    }
    va_end(arguments);
}

static long log_bytes(const SweepRun *run)
{
    char path[PATH_MAX];
    struct stat there;
    return log_path(run, path, sizeof path) && stat(path, &there) == 0 ? (long)there.st_size : 0;
}

/* Starts the next run in a free slot. Returns in the child too, with *child_ret true. */
static FshStatus start_next(Runs *runs, TrainOptions *options, bool *child_ret, FshError *error)
{
    const pid_t parent = getpid();
    int slot = 0;
    while (runs->slots[slot].process)
        slot++;
    RunSlot *own = &runs->slots[slot];
    own->run = runs->next++;
    own->log_before = log_bytes(&runs->sweep->runs[own->run]);
    (void)fflush(NULL); /* otherwise the child would write what is still buffered */
    own->process = fork();
    if (own->process == 0) {
        *child_ret = true;
        return become_run(runs, slot, parent, options, error);
    }
    if (own->process < 0) {
        own->process = 0;
        return fsh_error_system(error, errno, "%s: no process for it", runs->sweep->runs[own->run].name);
    }
    runs->busy++;
    tell(runs, "[%zu/%zu] %s: begins (%s.log)", own->run + 1, runs->sweep->count,
         runs->sweep->runs[own->run].name, runs->sweep->runs[own->run].folder);
    return FSH_OK;
}

/* Writes the last line of the run's log to text and returns it; "" if there is none. */
static const char *last_line(const SweepRun *run, char *text, size_t text_bytes)
{
    char path[PATH_MAX], line[1024];
    text[0] = '\0';
    FILE *log = log_path(run, path, sizeof path) ? fopen(path, "re") : NULL;
    while (log && fgets(line, sizeof line, log)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line && strncmp(line, "Try '", 5) != 0)
            (void)snprintf(text, text_bytes, "%s", line);
    }
    if (log)
        (void)fclose(log);
    return text;
}

/* Returns whether the text is told for the first time, and notes it. */
static bool is_new(ToldWarnings *told, const char *text)
{
    const uint64_t hash = XXH3_64bits(text, strlen(text));
    for (size_t i = 0; i < told->count; i++)
        if (told->hashes[i] == hash)
            return false;
    if (told->count < sizeof told->hashes / sizeof *told->hashes)
        told->hashes[told->count++] = hash;
    return true;
}

/* Tells what the run's log warns of, and no warning twice in a sweep: runs are mostly warned alike. */
static void tell_warnings(Runs *runs, const RunSlot *slot)
{
    static const char warning[] = "warning: ";
    const SweepRun *run = &runs->sweep->runs[slot->run];
    char path[PATH_MAX], line[1024];
    FILE *log = log_path(run, path, sizeof path) ? fopen(path, "re") : NULL;
    if (log && fseek(log, slot->log_before, SEEK_SET) == 0)
        while (fgets(line, sizeof line, log)) {
            line[strcspn(line, "\n")] = '\0';
            if (strncmp(line, warning, sizeof warning - 1) != 0 || !is_new(&runs->told, line))
                continue;
            (void)fprintf(stderr, "[%zu/%zu] %s: ", slot->run + 1, runs->sweep->count, run->name);
            program_print_text(stderr, line);
            (void)fputc('\n', stderr);
        }
    if (log)
        (void)fclose(log);
}

static void tell_result(const Runs *runs, size_t number)
{
    char title[48];
    const SweepRun *run = &runs->sweep->runs[number];
    StudyRun study;
    char value[64] = "no evaluation";
    if (study_run_read(&study, run->folder, NULL))
        return;
    const Spread best = {.mean = study.result.best, .count = study.result.best_epoch >= 0};
    if (best.count)
        (void)comparison_spread_text(&best, MEASURE_BEST, value, sizeof value);
    tell(runs, "[%zu/%zu] %s: %s %s, %.1f s", number + 1, runs->sweep->count, run->name,
         comparison_title(study.task, MEASURE_BEST, title, sizeof title), value, study.result.seconds);
    study_run_free(&study);
}

/* Notes how a run has ended. One that has done all its epochs has ended well, even where its process tells of
 * samples that could not be read. */
static void note_end(Runs *runs, const RunSlot *slot, int status)
{
    SweepRun *run = &runs->sweep->runs[slot->run];
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    const size_t length = strlen(runs->failures);
    char line[1024];
    sweep_look_at(run);
    tell_warnings(runs, slot);
    if (run->finished) {
        tell_result(runs, slot->run);
    } else if (runs->stopped_by) {
        tell(runs, "[%zu/%zu] %s: stopped", slot->run + 1, runs->sweep->count, run->name);
    } else {
        (void)fprintf(stderr, "[%zu/%zu] %s: failed (exit status %d): ", slot->run + 1, runs->sweep->count,
                      run->name, code);
        program_print_text(stderr, last_line(run, line, sizeof line));
        (void)fputc('\n', stderr);
    }
    if (run->finished ? code != 0 : !runs->stopped_by) {
        runs->failed++;
        (void)snprintf(runs->failures + length, sizeof runs->failures - length, "%s%s", length ? " " : "",
                       run->name);
    }
}

static void collect_ended(Runs *runs)
{
    for (int i = 0; i < runs->slot_count; i++) {
        RunSlot *slot = &runs->slots[i];
        int status = 0;
        if (!slot->process || waitpid(slot->process, &status, WNOHANG) != slot->process)
            continue;
        slot->process = 0;
        runs->busy--;
        note_end(runs, slot, status);
    }
}

/* Waits for a signal, at most a second, and passes one that asks to stop on to the runs. The terminal has
 * sent a Ctrl-C (SI_KERNEL) to them too. */
static void wait_a_while(Runs *runs)
{
    const struct timespec second = {.tv_sec = 1};
    siginfo_t info;
    const int signal_number = sigtimedwait(&runs->launcher.watched, &info, &second);
    if (signal_number <= 0 || signal_number == SIGCHLD)
        return;
    if (!runs->stopped_by)
        tell(runs, "ftrain: ends once the runs in hand have ended their steps and saved their states%s",
             signal_number == SIGINT ? "; Ctrl-C again ends all at once" : "");
    runs->stopped_by = signal_number;
    for (int i = 0; i < runs->slot_count; i++)
        if (runs->slots[i].process && !(signal_number == SIGINT && info.si_code == SI_KERNEL))
            (void)kill(runs->slots[i].process, signal_number);
}

/* Does all runs that have not ended. */
static FshStatus do_runs(Runs *runs, TrainOptions *options, bool *child_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    for (;;) {
        while (runs->next < runs->sweep->count && runs->sweep->runs[runs->next].finished)
            runs->next++;
        const bool more = runs->next < runs->sweep->count && !runs->stopped_by && !status;
        if (!more && !runs->busy)
            return status;
        if (more && runs->busy < runs->slot_count) {
            status = start_next(runs, options, child_ret, error);
            if (*child_ret)
                return status;
        } else {
            wait_a_while(runs);
            collect_ended(runs);
        }
    }
}

/* ---- the end ---- */

/* Compares the runs that have left something. */
static FshStatus compare(const Runs *runs, FshError *error)
{
    const Sweep *sweep = runs->sweep;
    const TrainOptions *options = runs->options;
    char page[PATH_MAX];
    size_t count = 0;
    Comparison *comparison = NULL;
    const char **folders = calloc(sweep->count, sizeof *folders);
    FshStatus status = folders ? file_join(page, sizeof page, options->output, compare_page_name, error)
                               : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a comparison");
    for (size_t i = 0; i < sweep->count && !status; i++)
        if (study_run_is_there(sweep->runs[i].folder))
            folders[count++] = sweep->runs[i].folder;
    if (!status && count)
        status = comparison_open(&comparison, folders, count, error);
    if (comparison && !status)
        status = compare_print(comparison, page, options->program.json, stdout, error);
    if (comparison && !status)
        status = comparison_write(comparison, page, options->force, error);
    if (comparison && !status && !options->program.json)
        tell(runs, "page: %s", page);
    comparison_close(&comparison);
    free(folders);
    return status;
}

/* Returns how many runs have ended. */
static size_t count_finished(const Sweep *sweep)
{
    size_t finished = 0;
    for (size_t i = 0; i < sweep->count; i++)
        finished += sweep->runs[i].finished;
    return finished;
}

/* Says how the sweep has ended, and compares its runs. */
static FshStatus end_runs(const Runs *runs, bool *partial_ret, FshError *error)
{
    if (runs->stopped_by) {
        interrupt_install_requeue();
        interrupt_simulate(runs->stopped_by);
        return fsh_error_set(error, FSH_ERR_INTERRUPTED,
                             "interrupted: %zu of %zu runs have ended; the same command goes on",
                             count_finished(runs->sweep), runs->sweep->count);
    }
    FshStatus status = compare(runs, error);
    if (runs->failed)
        (void)fprintf(stderr, "ftrain: %zu of %zu runs failed: %s; the same command tries them again\n",
                      runs->failed, runs->sweep->count, runs->failures);
    *partial_ret = runs->failed > 0;
    return status;
}

/* Claims OUTPUT for this sweep. */
static FshStatus claim(const TrainOptions *options, FolderLock *lock, FshError *error)
{
    FshStatus status = file_make_folders(options->output, error);
    return status ? status : folder_lock_take(lock, options->output, lock_name, "ftrain --sweep", error);
}

/* Plans and does the runs, with signals held back. */
static FshStatus run_sweep(Runs *runs, TrainOptions *options, bool *child_ret, bool *partial_ret,
                           FshError *error)
{
    FolderLock lock = FOLDER_LOCK_NONE;
    FshStatus status = launcher_open(&runs->launcher, error);
    if (status)
        return status;
    status = plan_runs(runs, error);
    if (!status)
        status = claim(options, &lock, error);
    if (!status) {
        tell(runs, "sweep: %zu run%s, %zu ended before; %d at a time", runs->sweep->count,
             text_plural(runs->sweep->count), count_finished(runs->sweep), runs->slot_count);
        status = do_runs(runs, options, child_ret, error);
    }
    if (*child_ret)
        return status; /* signals have their way; the lock is the parent's */
    launcher_close(&runs->launcher);
    if (!status)
        status = end_runs(runs, partial_ret, error);
    folder_lock_release(&lock);
    return status;
}

/* Plans the runs, and lists them if they can begin: for --dry-run. */
static FshStatus foresee_sweep(Runs *runs, FshError *error)
{
    FshStatus status = launcher_open(&runs->launcher, error);
    if (status)
        return status;
    status = plan_runs(runs, error);
    launcher_close(&runs->launcher);
    if (!status)
        list_runs(runs->sweep);
    return status;
}

FshStatus start_runs(TrainOptions *options, const RankPlace *place, Sweep *sweep, bool *child_ret,
                     bool *partial_ret, FshError *error)
{
    Runs runs = {.sweep = sweep, .options = options};
    *child_ret = false;
    FshStatus status = check_alone(place, error);
    if (!status)
        status = sweep_open(sweep, options, error);
    if (!status)
        status = sweep_look(sweep, options, error);
    if (!status)
        status = choose_slots(&runs, options, error);
    if (status)
        return status;
    return options->program.dry_run ? foresee_sweep(&runs, error)
                                    : run_sweep(&runs, options, child_ret, partial_ret, error);
}
