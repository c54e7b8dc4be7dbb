/* communicator.c - reductions through a file in /dev/shm that all ranks map: a head with one cell for each
 * rank, a slot of SLOT_BYTES for each rank, and one slot for results.
 *
 * A reduction goes through the slots in pieces: every rank copies its piece into its slot; barrier; every
 * rank adds up its share of the piece over all slots into the result; barrier; every rank copies the result
 * out. Two barriers are enough: a slot is overwritten only after the second barrier, and the result only
 * after the first barrier of the next piece. So whatever is written before a first barrier goes into a slot,
 * never into the result, which other ranks may still be copying.
 *
 * Every rank holds a lock (fcntl) on its own byte of the file as long as it lives. The kernel releases it
 * however the process ends, and it works across pid name spaces, where asking for a pid would not. Byte 0 is
 * the gate: its holder may make the file anew or take a place in it. A file without a held place is left over
 * from a run that was killed. */
#include "trainer/ranks/communicator.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"

enum { SLOT_BYTES = 512 * 1024, HEAD_BYTES = 16384, SPINS = 1000, GATE_BYTE = 0, FIRST_RANK_BYTE = 1 };
static const double look_seconds = 0.1; /* between two checks that the awaited ranks still live */

enum RankState { RANK_ABSENT, RANK_THERE, RANK_LEFT };

typedef struct RankCell {
    atomic_int process;
    atomic_int state; /* RankState */
} RankCell;

typedef struct SharedHead {
    atomic_uint arrived;    /* ranks at the current barrier */
    atomic_uint generation; /* barriers passed; a futex */
    RankCell ranks[RANKS_MAX];
} SharedHead;
_Static_assert(sizeof(SharedHead) <= HEAD_BYTES, "the head has its own pages");

struct Communicator {
    RankPlace place;
    char name[RANK_JOB_MAX + 40]; /* of the file, for shm_open */
    int descriptor;
    SharedHead *head; /* the mapping */
    size_t bytes;     /* of it */
    bool lost;        /* a rank has ended: every call fails */
    char loss[200];   /* the message about it */
};

/* ---- places ---- */

static char *slot_of(const Communicator *communicator, uint64_t rank)
{
    return (char *)communicator->head + HEAD_BYTES + rank * SLOT_BYTES;
}

static char *result_of(const Communicator *communicator)
{
    return slot_of(communicator, communicator->place.world_size);
}

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
    return hint && hint->most_seconds > 0 ? hint->most_seconds : COMMUNICATOR_GATHERING_SECONDS;
}

/* Waits for the gate. Ranks of the job hold it only for a moment: a process that stays is a stranger. */
static FshStatus enter_gate(const Communicator *communicator, const CommunicatorHint *hint, FshError *error)
{
    struct flock lock = lock_of(F_WRLCK, GATE_BYTE, 1);
    const struct timespec pause = {.tv_nsec = 2000000};
    const double start = progress_now_seconds(), most = most_seconds(hint);
    char text[sizeof communicator->name + 96];
    while (fcntl(communicator->descriptor, F_SETLK, &lock) < 0) {
        const double waited = progress_now_seconds() - start;
        long process = 0;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return fsh_error_system(error, errno, "/dev/shm%s: cannot be locked", communicator->name);
        (void)is_held(communicator->descriptor, GATE_BYTE, 1, &process);
        (void)snprintf(text, sizeof text, "/dev/shm%s, through which the ranks meet, is held by process %ld",
                       communicator->name, process);
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while waiting: %s", text);
        if (waited > most)
            return fsh_error_set(error, FSH_ERR_SYSTEM,
                                 "%s, which does not let go of it; end that process, or give the run another "
                                 "port or job",
                                 text);
        if (hint && waited > hint->after_seconds) {
            hint->tell(hint->context, text);
            hint = NULL;
        }
        (void)nanosleep(&pause, NULL);
    }
    return FSH_OK;
}

static void leave_gate(const Communicator *communicator)
{
    struct flock lock = lock_of(F_UNLCK, GATE_BYTE, 1);
    (void)fcntl(communicator->descriptor, F_SETLK, &lock);
}

/* ---- making and joining ---- */

/* Opens the file and waits in its gate. A file that was unlinked meanwhile belongs to a complete job; then
 * opens a new one. Never waits for another user's file. */
static FshStatus open_file(Communicator *communicator, const CommunicatorHint *hint, struct stat *status_ret,
                           FshError *error)
{
    for (;;) {
        communicator->descriptor = shm_open(communicator->name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (communicator->descriptor < 0)
            return fsh_error_system(error, errno, "/dev/shm%s: cannot be made", communicator->name);
        if (fstat(communicator->descriptor, status_ret) == 0 && status_ret->st_uid != geteuid())
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "/dev/shm%s: is another user's; give the run another port or job",
                                 communicator->name);
        FshStatus status = enter_gate(communicator, hint, error);
        if (status)
            return status;
        if (fstat(communicator->descriptor, status_ret) < 0)
            return fsh_error_system(error, errno, "/dev/shm%s", communicator->name);
        if (status_ret->st_nlink > 0)
            return FSH_OK;
        (void)close(communicator->descriptor);
    }
}

/* Allocates the file's memory now, so that a full /dev/shm is an error message and not a signal in the middle
 * of a step. */
static FshStatus make_room(const Communicator *communicator, FshError *error)
{
    if (ftruncate(communicator->descriptor, 0) < 0)
        return fsh_error_system(error, errno, "/dev/shm%s: cannot be made anew", communicator->name);
    const int code = posix_fallocate(communicator->descriptor, 0, (off_t)communicator->bytes);
    return code ? fsh_error_system(error, code,
                                   "/dev/shm%s: no room for the %zu bytes through which %" PRIu64
                                   " ranks talk; make /dev/shm larger",
                                   communicator->name, communicator->bytes, communicator->place.world_size)
                : FSH_OK;
}

static FshStatus take_place(Communicator *communicator, const struct stat *file, FshError *error)
{
    const RankPlace *place = &communicator->place;
    const off_t own = FIRST_RANK_BYTE + (off_t)place->rank;
    long process = 0;
    FshStatus status = FSH_OK;
    if (!is_held(communicator->descriptor, FIRST_RANK_BYTE, RANKS_MAX, NULL))
        status = make_room(communicator, error);
    else if (file->st_size != (off_t)communicator->bytes)
        status =
            fsh_error_set(error, FSH_ERR_USAGE,
                          "rank %" PRIu64 " of %" PRIu64
                          ": ranks of a run of another size are waiting under the same job; give each run a "
                          "port or job of its own",
                          place->rank, place->world_size);
    if (status)
        return status;
    if (is_held(communicator->descriptor, own, 1, &process))
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "rank %" PRIu64 " is there already (process %ld); give each process a rank, and "
                             "each run a port or job of its own",
                             place->rank, process);
    struct flock lock = lock_of(F_WRLCK, own, 1);
    if (fcntl(communicator->descriptor, F_SETLK, &lock) < 0)
        return fsh_error_system(error, errno, "/dev/shm%s: cannot be locked", communicator->name);
    void *memory =
        mmap(NULL, communicator->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, communicator->descriptor, 0);
    if (memory == MAP_FAILED)
        return fsh_error_system(error, errno, "/dev/shm%s: cannot be mapped", communicator->name);
    communicator->head = memory;
    atomic_store(&communicator->head->ranks[place->rank].process, (int)getpid());
    atomic_store(&communicator->head->ranks[place->rank].state, RANK_THERE);
    return FSH_OK;
}

/* Returns whether a rank was there and died. The lock is tested first: a rank that leaves in order says so
 * before it releases the lock. */
static bool has_died(const Communicator *communicator, uint64_t rank)
{
    return !is_held(communicator->descriptor, FIRST_RANK_BYTE + (off_t)rank, 1, NULL) &&
           atomic_load(&communicator->head->ranks[rank].state) == RANK_THERE;
}

static FshStatus set_lost(Communicator *communicator, uint64_t rank, const char *what, FshError *error)
{
    if (!communicator->lost)
        (void)snprintf(communicator->loss, sizeof communicator->loss,
                       "rank %" PRIu64 " of %" PRIu64 " (process %d) %s", rank,
                       communicator->place.world_size, atomic_load(&communicator->head->ranks[rank].process),
                       what);
    communicator->lost = true;
    return fsh_error_set(error, FSH_ERR_SYSTEM, "%s", communicator->loss);
}

/* Fails with the first rank that will not come any more. One that died is named before those that left, who
 * may have left because of it. */
static FshStatus look_for_losses(Communicator *communicator, FshError *error)
{
    const RankPlace *place = &communicator->place;
    for (uint64_t rank = 0; rank < place->world_size; rank++)
        if (rank != place->rank && has_died(communicator, rank))
            return set_lost(communicator, rank, "has ended", error);
    for (uint64_t rank = 0; rank < place->world_size; rank++)
        if (rank != place->rank && atomic_load(&communicator->head->ranks[rank].state) == RANK_LEFT)
            return set_lost(communicator, rank, "has ended", error);
    return FSH_OK;
}

static uint64_t first_absent(const Communicator *communicator)
{
    uint64_t rank = 0;
    while (rank < communicator->place.world_size &&
           atomic_load(&communicator->head->ranks[rank].state) != RANK_ABSENT)
        rank++;
    return rank;
}

static void give_hint(const Communicator *communicator, const CommunicatorHint *hint, uint64_t absent)
{
    char text[96];
    for (uint64_t rank = 0; rank < communicator->place.rank; rank++)
        if (atomic_load(&communicator->head->ranks[rank].state) != RANK_ABSENT)
            return; /* that rank gives the hint */
    (void)snprintf(text, sizeof text, "rank %" PRIu64 " of %" PRIu64 " is waited for, %.0f seconds at most",
                   absent, communicator->place.world_size, most_seconds(hint));
    hint->tell(hint->context, text);
}

static FshStatus wait_for_all(Communicator *communicator, const CommunicatorHint *hint, FshError *error)
{
    const uint64_t world_size = communicator->place.world_size;
    const struct timespec pause = {.tv_nsec = 2000000};
    const double start = progress_now_seconds(), most = most_seconds(hint);
    double next_look = start + look_seconds;
    uint64_t absent;
    while ((absent = first_absent(communicator)) < world_size) {
        const double now = progress_now_seconds();
        if (interrupt_requested())
            return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while waiting for rank %" PRIu64,
                                 absent);
        if (now - start > most)
            return fsh_error_set(error, FSH_ERR_SYSTEM,
                                 "rank %" PRIu64 " of %" PRIu64
                                 " has not come within %.0f seconds; are all %" PRIu64
                                 " started, on this host, by the same user?",
                                 absent, world_size, most, world_size);
        if (hint && now - start > hint->after_seconds) {
            give_hint(communicator, hint, absent);
            hint = NULL;
        }
        if (now > next_look) {
            for (uint64_t rank = 0; rank < world_size; rank++)
                if (rank != communicator->place.rank && has_died(communicator, rank))
                    return set_lost(communicator, rank, "has ended", error);
            next_look = now + look_seconds;
        }
        (void)nanosleep(&pause, NULL);
    }
    return FSH_OK;
}

/* Removes the name, which only serves to meet. Removes it only if it still belongs to the open file: another
 * job may have taken the name. */
static void remove_name(const Communicator *communicator)
{
    struct stat file, named;
    char path[sizeof communicator->name + 16];
    (void)snprintf(path, sizeof path, "/dev/shm%s", communicator->name);
    if (fstat(communicator->descriptor, &file) == 0 && stat(path, &named) == 0 &&
        file.st_ino == named.st_ino && file.st_dev == named.st_dev)
        (void)shm_unlink(communicator->name);
}

FshStatus communicator_open(Communicator **communicator_ret, const RankPlace *place,
                            const CommunicatorHint *hint, FshError *error)
{
    struct stat file;
    bool in_gate = false;
    Communicator *communicator = calloc(1, sizeof *communicator);
    *communicator_ret = NULL;
    if (!communicator)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a communicator");
    communicator->place = *place;
    communicator->descriptor = -1;
    communicator->bytes = HEAD_BYTES + (size_t)(place->world_size + 1) * SLOT_BYTES;
    (void)snprintf(communicator->name, sizeof communicator->name, "/fshard-%lu-%s", (unsigned long)geteuid(),
                   place->job);
    FshStatus status = open_file(communicator, hint, &file, error);
    in_gate = !status;
    if (!status)
        status = take_place(communicator, &file, error);
    if (!status) {
        leave_gate(communicator);
        in_gate = false;
        status = wait_for_all(communicator, hint, error);
        if (status || place->rank == 0)
            remove_name(communicator);
    }
    if (in_gate && !is_held(communicator->descriptor, FIRST_RANK_BYTE, RANKS_MAX, NULL))
        remove_name(communicator); /* no rank waits in a file that could not be made */
    if (status)
        communicator_close(&communicator);
    *communicator_ret = communicator;
    return status;
}

void communicator_close(Communicator **communicator_ret)
{
    Communicator *communicator = *communicator_ret;
    if (!communicator)
        return;
    if (communicator->head) {
        atomic_store(&communicator->head->ranks[communicator->place.rank].state, RANK_LEFT);
        (void)munmap(communicator->head, communicator->bytes);
    }
    if (communicator->descriptor >= 0)
        (void)close(communicator->descriptor); /* releases all locks */
    free(communicator);
    *communicator_ret = NULL;
}

const RankPlace *communicator_place(const Communicator *communicator)
{
    return &communicator->place;
}

static bool has_left(const Communicator *communicator, uint64_t rank)
{
    return atomic_load(&communicator->head->ranks[rank].state) == RANK_LEFT;
}

static FshStatus say_ended(const Communicator *communicator, uint64_t rank, FshError *error)
{
    return fsh_error_set(error, FSH_ERR_SYSTEM, "rank %" PRIu64 " of %" PRIu64 " (process %d) has ended",
                         rank, communicator->place.world_size,
                         atomic_load(&communicator->head->ranks[rank].process));
}

FshStatus communicator_check(Communicator *communicator, FshError *error)
{
    for (uint64_t rank = 0; rank < communicator->place.world_size; rank++)
        if (rank != communicator->place.rank && has_died(communicator, rank))
            return say_ended(communicator, rank, error);
    return FSH_OK;
}

FshStatus communicator_check_all_there(Communicator *communicator, FshError *error)
{
    FshStatus status = communicator_check(communicator, error);
    for (uint64_t rank = 0; rank < communicator->place.world_size && !status; rank++)
        if (rank != communicator->place.rank && has_left(communicator, rank))
            status = say_ended(communicator, rank, error);
    return status;
}

bool communicator_is_broken(const Communicator *communicator)
{
    return communicator->lost;
}

/* ---- the barrier ---- */

static void sleep_on(atomic_uint *futex, unsigned value)
{
    const struct timespec time = {.tv_nsec = (long)(look_seconds * 1e9)};
    (void)syscall(SYS_futex, futex, FUTEX_WAIT, value, &time, NULL, 0);
}

static void wake_all(atomic_uint *futex)
{
    (void)syscall(SYS_futex, futex, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

FshStatus communicator_barrier(Communicator *communicator, FshError *error)
{
    SharedHead *head = communicator->head;
    if (communicator->lost)
        return fsh_error_set(error, FSH_ERR_SYSTEM, "%s", communicator->loss);
    const unsigned generation = atomic_load(&head->generation);
    if (atomic_fetch_add(&head->arrived, 1) + 1 == communicator->place.world_size) {
        atomic_store(&head->arrived, 0);
        atomic_fetch_add(&head->generation, 1);
        wake_all(&head->generation);
        return FSH_OK;
    }
    for (int i = 0; i < SPINS; i++)
        if (atomic_load(&head->generation) != generation)
            return FSH_OK;
    const double start = progress_now_seconds();
    while (atomic_load(&head->generation) == generation) {
        sleep_on(&head->generation, generation);
        if (atomic_load(&head->generation) != generation)
            break;
        FshStatus status = look_for_losses(communicator, error);
        /* The last rank may have passed the barrier and left since the last check. */
        if (status && atomic_load(&head->generation) != generation) {
            communicator->lost = false;
            break;
        }
        if (status)
            return status;
        if (progress_now_seconds() - start > COMMUNICATOR_PATIENCE_SECONDS)
            return set_lost(communicator, communicator->place.rank, "has waited for the others for too long",
                            error);
    }
    return FSH_OK;
}

/* ---- reductions ---- */

/* Combines result[i] with slot[i] for from <= i < to, for instance as a sum. */
typedef void (*Combine)(void *result, const void *slot, size_t from, size_t to);

static void add_f64(void *result, const void *slot, size_t from, size_t to)
{
    double *sums = result;
    const double *values = slot;
    for (size_t i = from; i < to; i++)
        sums[i] += values[i];
}

static void add_f32(void *result, const void *slot, size_t from, size_t to)
{
    float *sums = result;
    const float *values = slot;
    for (size_t i = from; i < to; i++)
        sums[i] += values[i];
}

static void add_u64(void *result, const void *slot, size_t from, size_t to)
{
    uint64_t *sums = result;
    const uint64_t *values = slot;
    for (size_t i = from; i < to; i++)
        sums[i] += values[i];
}

static void max_u64(void *result, const void *slot, size_t from, size_t to)
{
    uint64_t *most = result;
    const uint64_t *values = slot;
    for (size_t i = from; i < to; i++)
        most[i] = values[i] > most[i] ? values[i] : most[i];
}

/* Combines this rank's share of a piece over all slots, in the order of the ranks. */
static void combine_share(const Communicator *communicator, size_t count, size_t element_bytes,
                          Combine combine)
{
    const uint64_t rank = communicator->place.rank, world_size = communicator->place.world_size;
    const size_t from = count * rank / world_size, to = count * (rank + 1) / world_size;
    char *result = result_of(communicator);
    memcpy(result + from * element_bytes, slot_of(communicator, 0) + from * element_bytes,
           (to - from) * element_bytes);
    for (uint64_t other = 1; other < world_size; other++)
        combine(result, slot_of(communicator, other), from, to);
}

static FshStatus reduce(Communicator *communicator, void *values, size_t count, size_t element_bytes,
                        Combine combine, FshError *error)
{
    const size_t piece = SLOT_BYTES / element_bytes;
    FshStatus status = FSH_OK;
    for (size_t at = 0; at < count && !status; at += piece) {
        const size_t now = count - at < piece ? count - at : piece;
        char *own = (char *)values + at * element_bytes;
        memcpy(slot_of(communicator, communicator->place.rank), own, now * element_bytes);
        status = communicator_barrier(communicator, error);
        if (!status) {
            combine_share(communicator, now, element_bytes, combine);
            status = communicator_barrier(communicator, error);
        }
        if (!status)
            memcpy(own, result_of(communicator), now * element_bytes);
    }
    return status;
}

FshStatus communicator_sum_f64(Communicator *communicator, double *values, size_t count, FshError *error)
{
    return reduce(communicator, values, count, sizeof *values, add_f64, error);
}

FshStatus communicator_sum_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error)
{
    return reduce(communicator, values, count, sizeof *values, add_u64, error);
}

FshStatus communicator_max_u64(Communicator *communicator, uint64_t *values, size_t count, FshError *error)
{
    return reduce(communicator, values, count, sizeof *values, max_u64, error);
}

FshStatus communicator_mean_f32(Communicator *communicator, float *values, size_t count, FshError *error)
{
    const float share = (float)(1.0 / (double)communicator->place.world_size);
    FshStatus status = reduce(communicator, values, count, sizeof *values, add_f32, error);
    for (size_t i = 0; i < count && !status; i++)
        values[i] *= share;
    return status;
}

FshStatus communicator_broadcast(Communicator *communicator, uint64_t root, void *bytes, size_t byte_count,
                                 FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t at = 0; at < byte_count && !status; at += SLOT_BYTES) {
        const size_t now = byte_count - at < SLOT_BYTES ? byte_count - at : SLOT_BYTES;
        if (communicator->place.rank == root)
            memcpy(slot_of(communicator, root), (char *)bytes + at, now);
        status = communicator_barrier(communicator, error);
        if (!status && communicator->place.rank != root)
            memcpy((char *)bytes + at, slot_of(communicator, root), now);
        if (!status)
            status = communicator_barrier(communicator, error);
    }
    return status;
}
