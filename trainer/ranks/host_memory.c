#include "trainer/ranks/host_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"

enum { GATE_BYTE = 0, FIRST_RANK_BYTE = 1 };
static const struct timespec pause_between_tries = {.tv_nsec = 2000000};

/* ---- locks ---- */

static struct flock lock_of(short type, off_t first, off_t count)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
}

/* Returns whether another process holds a byte of the range. Sets *process_ret to its id; 0 if it is
 * unknown. */
static bool is_held(int descriptor, off_t first, off_t count, long *process_ret)
{
    struct flock lock = lock_of(F_WRLCK, first, count);
    const bool held = fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (process_ret)
        *process_ret = held ? (long)lock.l_pid : 0;
    return held;
}

static double most_seconds(const CommunicatorHint *hint)
{
    return hint->most_seconds > 0 ? hint->most_seconds : COMMUNICATOR_GATHERING_SECONDS;
}

/* Returns whether it is time to give the hint. Sets *told, which was false, when it is: a hint is given
 * once. */
static bool is_time_for(const CommunicatorHint *hint, double waited, bool *told)
{
    const bool now = hint->tell && !*told && waited > hint->after_seconds;
    *told = *told || now;
    return now;
}

/* Waits for the gate. Ranks of the job hold it only for a moment: a process that stays is a stranger. */
static FshStatus enter_gate(const HostMemory *memory, const CommunicatorHint *hint, FshError *error)
{
    struct flock lock = lock_of(F_WRLCK, GATE_BYTE, 1);
    const double start = progress_now_seconds();
    char text[sizeof memory->name + 96];
    bool told = false;
    while (fcntl(memory->descriptor, F_SETLK, &lock) < 0) {
        const double waited = progress_now_seconds() - start;
        long process = 0;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return fsh_error_system(error, errno, "/dev/shm%s: cannot be locked", memory->name);
        (void)is_held(memory->descriptor, GATE_BYTE, 1, &process);
        (void)snprintf(text, sizeof text, "/dev/shm%s, through which the ranks meet, is held by process %ld",
                       memory->name, process);
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while waiting: %s", text);
        if (waited > most_seconds(hint))
            return fsh_error_set(error, FSH_ERR_SYSTEM,
                                 "%s, which does not let go of it; end that process, or give the run another "
                                 "port or job",
                                 text);
        if (is_time_for(hint, waited, &told))
            hint->tell(hint->context, text);
        (void)nanosleep(&pause_between_tries, NULL);
    }
    return FSH_OK;
}

static void leave_gate(const HostMemory *memory)
{
    struct flock lock = lock_of(F_UNLCK, GATE_BYTE, 1);
    (void)fcntl(memory->descriptor, F_SETLK, &lock);
}

/* ---- making and joining ---- */

/* Opens the file and waits in its gate. A file that was unlinked meanwhile belongs to a complete job; then
 * opens a new one. Never waits for another user's file. */
static FshStatus open_file(HostMemory *memory, const CommunicatorHint *hint, struct stat *status_ret,
                           FshError *error)
{
    for (;;) {
        memory->descriptor = shm_open(memory->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (memory->descriptor < 0)
            return fsh_error_system(error, errno, "/dev/shm%s: cannot be made", memory->name);
        if (fstat(memory->descriptor, status_ret) == 0 && status_ret->st_uid != geteuid())
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "/dev/shm%s: is another user's; give the run another port or job",
                                 memory->name);
        FshStatus status = enter_gate(memory, hint, error);
        if (status)
            return status;
        if (fstat(memory->descriptor, status_ret) < 0)
            return fsh_error_system(error, errno, "/dev/shm%s", memory->name);
        if (status_ret->st_nlink > 0)
            return FSH_OK;
        (void)close(memory->descriptor);
    }
}

/* Allocates the file's memory now, so that a full /dev/shm is an error message and not a signal in the
 * middle of a step. */
static FshStatus make_room(const HostMemory *memory, FshError *error)
{
    if (ftruncate(memory->descriptor, 0) < 0)
        return fsh_error_system(error, errno, "/dev/shm%s: cannot be made anew", memory->name);
    const int code = posix_fallocate(memory->descriptor, 0, (off_t)memory->bytes);
    return code ? fsh_error_system(error, code,
                                   "/dev/shm%s: no room for the %zu bytes through which %" PRIu64
                                   " ranks talk; make /dev/shm larger",
                                   memory->name, memory->bytes, memory->count)
                : FSH_OK;
}

/* Maps the file and signs this rank's cell. */
static FshStatus map_file(HostMemory *memory, FshError *error)
{
    void *mapping = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->descriptor, 0);
    if (mapping == MAP_FAILED)
        return fsh_error_system(error, errno, "/dev/shm%s: cannot be mapped", memory->name);
    memory->head = mapping;
    HostRankCell *cell = &memory->head->ranks[memory->index];
    atomic_store(&cell->process, (int)getpid());
    atomic_store(&cell->rank, (int)memory->place.rank);
    atomic_store(&cell->state, HOST_RANK_THERE);
    return FSH_OK;
}

static FshStatus take_place(HostMemory *memory, const struct stat *file, FshError *error)
{
    const RankPlace *place = &memory->place;
    const off_t own = FIRST_RANK_BYTE + (off_t)memory->index;
    struct flock lock = lock_of(F_WRLCK, own, 1);
    long process = 0;
    FshStatus status = FSH_OK;
    if (!is_held(memory->descriptor, FIRST_RANK_BYTE, RANKS_MAX, NULL))
        status = make_room(memory, error);
    else if (file->st_size != (off_t)memory->bytes)
        status =
            fsh_error_set(error, FSH_ERR_USAGE,
                          "rank %" PRIu64 " of %" PRIu64
                          ": ranks of a run of another size are waiting under the same job; give each run a "
                          "port or job of its own",
                          place->rank, place->world_size);
    if (status)
        return status;
    if (is_held(memory->descriptor, own, 1, &process))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "rank %" PRIu64 " is there already (process %ld); give each process a rank, and "
                             "each run a port or job of its own",
                             place->rank, process);
    if (fcntl(memory->descriptor, F_SETLK, &lock) < 0)
        return fsh_error_system(error, errno, "/dev/shm%s: cannot be locked", memory->name);
    return map_file(memory, error);
}

/* Removes the name, which only serves to meet. Removes it only if it still belongs to the open file:
 * another job may have taken the name. */
static void remove_name(const HostMemory *memory)
{
    struct stat file, named;
    char path[sizeof memory->name + 16];
    (void)snprintf(path, sizeof path, "/dev/shm%s", memory->name);
    if (fstat(memory->descriptor, &file) == 0 && stat(path, &named) == 0 && file.st_ino == named.st_ino &&
        file.st_dev == named.st_dev)
        (void)shm_unlink(memory->name);
}

void host_memory_place(HostMemory *memory, const RankPlace *place)
{
    const bool alone = place->local_world == place->world_size;
    *memory = (HostMemory){.place = *place,
                           .index = alone ? place->rank : place->local_rank,
                           .count = place->local_world,
                           .descriptor = -1};
    memory->bytes = HOST_HEAD_BYTES + (size_t)(memory->count + 1) * HOST_SLOT_BYTES;
    (void)snprintf(memory->name, sizeof memory->name, "/fshard-%lu-%s", (unsigned long)geteuid(), place->job);
    if (gethostname(memory->host, sizeof memory->host - 1) || !*memory->host)
        (void)snprintf(memory->host, sizeof memory->host, "?");
}

FshStatus host_memory_open(HostMemory *memory, const RankPlace *place, const CommunicatorHint *hint,
                           FshError *error)
{
    struct stat file;
    host_memory_place(memory, place);
    FshStatus status = open_file(memory, hint, &file, error);
    if (status)
        return status;
    status = take_place(memory, &file, error);
    if (!status)
        leave_gate(memory);
    else if (!is_held(memory->descriptor, FIRST_RANK_BYTE, RANKS_MAX, NULL))
        remove_name(memory); /* no rank waits in a file that could not be made */
    return status;
}

void host_memory_close(HostMemory *memory)
{
    if (memory->head) {
        atomic_store(&memory->head->ranks[memory->index].state, HOST_RANK_LEFT);
        (void)munmap(memory->head, memory->bytes);
    }
    if (memory->descriptor >= 0)
        (void)close(memory->descriptor); /* releases all locks */
    memory->head = NULL;
    memory->descriptor = -1;
}

/* ---- places ---- */

char *host_memory_slot(const HostMemory *memory, uint64_t index)
{
    return (char *)memory->head + HOST_HEAD_BYTES + index * HOST_SLOT_BYTES;
}

char *host_memory_result(const HostMemory *memory)
{
    return host_memory_slot(memory, memory->count);
}

HostRankState host_memory_state(const HostMemory *memory, uint64_t index)
{
    return (HostRankState)atomic_load(&memory->head->ranks[index].state);
}

/* Tests the lock first: a rank that leaves in order says so before it releases the lock. */
bool host_memory_has_died(const HostMemory *memory, uint64_t index)
{
    return !is_held(memory->descriptor, FIRST_RANK_BYTE + (off_t)index, 1, NULL) &&
           host_memory_state(memory, index) == HOST_RANK_THERE;
}

const char *host_memory_describe(const HostMemory *memory, uint64_t index, char text[HOST_RANKS_NAME_MAX])
{
    const HostRankCell *cell = &memory->head->ranks[index];
    return rank_describe(text, HOST_RANKS_NAME_MAX, (uint64_t)atomic_load(&cell->rank),
                         memory->place.world_size, memory->host, (uint64_t)atomic_load(&cell->process));
}

/* ---- waiting for all ---- */

static uint64_t first_absent(const HostMemory *memory)
{
    uint64_t index = 0;
    while (index < memory->count && host_memory_state(memory, index) != HOST_RANK_ABSENT)
        index++;
    return index;
}

/* Writes who has not come yet to text. Which rank of the run that is, only a run on one host knows. */
static void name_absent(const HostMemory *memory, uint64_t absent, char text[HOST_RANKS_NAME_MAX])
{
    if (memory->count == memory->place.world_size)
        (void)snprintf(text, HOST_RANKS_NAME_MAX, "rank %" PRIu64 " of %" PRIu64, absent, memory->count);
    else
        (void)snprintf(text, HOST_RANKS_NAME_MAX, "local rank %" PRIu64 " of %" PRIu64 " on host %s", absent,
                       memory->count, memory->host);
}

/* Tells who is missing, if this is the first rank that is there. */
static void give_hint(const HostMemory *memory, const CommunicatorHint *hint, const char *absent)
{
    char text[HOST_RANKS_NAME_MAX + 64];
    for (uint64_t index = 0; index < memory->index; index++)
        if (host_memory_state(memory, index) != HOST_RANK_ABSENT)
            return; /* that rank gives the hint */
    (void)snprintf(text, sizeof text, "%s is waited for, %.0f seconds at most", absent, most_seconds(hint));
    hint->tell(hint->context, text);
}

/* Fails if a rank that was there has died. */
static FshStatus check_those_there(const HostMemory *memory, FshError *error)
{
    char name[HOST_RANKS_NAME_MAX];
    for (uint64_t index = 0; index < memory->count; index++)
        if (index != memory->index && host_memory_has_died(memory, index))
            return fsh_error_set(error, FSH_ERR_PEER, "%s has ended",
                                 host_memory_describe(memory, index, name));
    return FSH_OK;
}

static FshStatus say_absent(const HostMemory *memory, const char *name, double most, FshError *error)
{
    const bool has_hosts = rank_place_has_hosts(&memory->place);
    return fsh_error_set(
        error, FSH_ERR_PEER,
        "%s has not come within %.0f seconds; are all %" PRIu64 " started, on this host, by the same user%s?",
        name, most, memory->count,
        has_hosts ? ", and do the ranks of a host follow each other (mpirun --map-by slot)" : "");
}

static FshStatus wait_for_all(const HostMemory *memory, const CommunicatorHint *hint, FshError *error)
{
    const double start = progress_now_seconds(), most = most_seconds(hint);
    double next_look = start + HOST_RANKS_LOOK_SECONDS;
    char name[HOST_RANKS_NAME_MAX];
    bool told = false;
    uint64_t absent;
    while ((absent = first_absent(memory)) < memory->count) {
        const double now = progress_now_seconds();
        name_absent(memory, absent, name);
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while waiting for %s", name);
        if (now - start > most)
            return say_absent(memory, name, most, error);
        if (is_time_for(hint, now - start, &told))
            give_hint(memory, hint, name);
        FshStatus status = now > next_look ? check_those_there(memory, error) : FSH_OK;
        if (status)
            return status;
        if (now > next_look)
            next_look = now + HOST_RANKS_LOOK_SECONDS;
        (void)nanosleep(&pause_between_tries, NULL);
    }
    return FSH_OK;
}

FshStatus host_memory_gather(HostMemory *memory, const CommunicatorHint *hint, FshError *error)
{
    FshStatus status = wait_for_all(memory, hint, error);
    if (status || memory->index == 0)
        remove_name(memory);
    return status;
}
