#include "trainer/session/host_team.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/session/ranks_agree.h"

enum { ROOM_BYTES = 64 << 20 }; /* for each rank, on the way to a GPU */

/* The memory that a host's first rank has made: where others find it, and what proves that it is the same. */
typedef struct Offer {
    int process, descriptor; /* descriptor -1: it could not be made */
    uint64_t device, file;
} Offer;

/* Makes the memory. Returns its descriptor; -1: *why tells the reason. */
static int make_memory(size_t bytes, Offer *offer, char why[256])
{
    struct stat status;
    const int descriptor = memfd_create("fshard-pixels", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* It keeps its length: no rank reads beyond the end. */
    if (descriptor < 0 || ftruncate(descriptor, (off_t)bytes) ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) || fstat(descriptor, &status)) {
        (void)snprintf(why, 256, "the system gives no shared memory: %s", strerror(errno));
        if (descriptor >= 0)
            (void)close(descriptor);
        return -1;
    }
    *offer = (Offer){.process = (int)getpid(),
                     .descriptor = descriptor,
                     .device = (uint64_t)status.st_dev,
                     .file = (uint64_t)status.st_ino};
    return descriptor;
}

/* Opens the memory that another rank offers. Returns its descriptor; -1: *why tells the reason. */
static int open_memory(const Offer *offer, size_t bytes, char why[256])
{
    char path[64];
    struct stat status;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", offer->process, offer->descriptor);
    const int descriptor = offer->descriptor < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
        (void)snprintf(why, 256, "%s: %s", path, offer->descriptor < 0 ? "there is none" : strerror(errno));
        return -1;
    }
    if (fstat(descriptor, &status) == 0 && (uint64_t)status.st_dev == offer->device &&
        (uint64_t)status.st_ino == offer->file && (size_t)status.st_size == bytes)
        return descriptor;
    (void)close(descriptor);
    (void)snprintf(why, 256, "%s: is of another process; are the ranks in containers of their own?", path);
    return -1;
}

/* Tells all ranks of the first that could not share, if there is one. */
static FshStatus tell_why(HostTeam *team, const char *why, FshError *error)
{
    char text[sizeof team->why] = "";
    const uint64_t rank = communicator_place(team->communicator)->rank;
    if (*why)
        (void)snprintf(text, sizeof text, "rank %llu: %.200s", (unsigned long long)rank, why);
    FshStatus status = ranks_share_text(team->communicator, text, sizeof text, error);
    if (!status)
        memcpy(team->why, text, sizeof text);
    return status;
}

static FshStatus share(void *context, size_t bytes, void **memory_ret, FshError *error)
{
    HostTeam *team = context;
    const RankPlace *place = communicator_place(team->communicator);
    char why[256] = "";
    Offer mine = {.descriptor = -1};
    void *memory = NULL;
    Offer all[RANKS_MAX];
    int descriptor = place->local_rank == 0 ? make_memory(bytes, &mine, why) : -1;
    FshStatus status = communicator_gather(team->communicator, &mine, sizeof mine, all, error);
    if (!status && place->local_rank > 0)
        descriptor = open_memory(&all[rank_place_first(place)], bytes, why);
    if (!status && descriptor >= 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (!status && memory == MAP_FAILED) {
        memory = NULL;
        (void)snprintf(why, sizeof why, "the shared memory cannot be mapped: %s", strerror(errno));
    }
    if (!status)
        status = tell_why(team, why, error); /* all have opened it, or it is given up */
    if (descriptor >= 0)
        (void)close(descriptor);
    if (memory && (status || team->why[0])) {
        (void)munmap(memory, bytes);
        memory = NULL;
    }
    *memory_ret = memory;
    return status;
}

static FshStatus agree(void *context, FshStatus mine, FshError *error)
{
    const HostTeam *team = context;
    return ranks_agree(team->communicator, mine, error);
}

void host_team_open(HostTeam *team, Communicator *communicator)
{
    const RankPlace *place = communicator_place(communicator);
    *team = (HostTeam){.team = {.index = place->local_rank,
                                .count = place->local_world,
                                .room_bytes = place->local_world * ROOM_BYTES,
                                .agree = agree,
                                .share = share,
                                .context = team},
                       .communicator = communicator};
}
