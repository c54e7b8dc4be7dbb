/* hub.c - a message is a row of frames, each a head and a load of a fixed size: LARGE_BYTES or SMALL_BYTES of
 * data, the text of a loss, or nothing. In an operation every other host sends rank 0 one message ("up"), and
 * then rank 0 sends each one ("down"), so that neither side ever has more than one message under way to the
 * other: one buffer for each direction is enough, and what is behind a message in a connection (a loss) is
 * never stuck.
 *
 * The thread does all input and output. The caller puts a message out, wakes the thread, and waits until
 * those of the others are in. */
#include "trainer/ranks/hub.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/progress.h"
#include "trainer/ranks/hub_meeting.h"
#include "trainer/ranks/hub_sockets.h"

enum { LARGE_BYTES = 64 * 1024, SMALL_BYTES = 1024, LOOK_MILLISECONDS = 100 };
static const double beat_seconds = 1, leave_seconds = 2;

typedef enum FrameKind { FRAME_LARGE = 1, FRAME_SMALL, FRAME_BEAT, FRAME_LOSS, FRAME_LEAVE } FrameKind;

typedef struct FrameHead {
    uint32_t kind;      /* FrameKind */
    uint32_t operation; /* of data: counted from 1 */
    uint64_t meaning;   /* of data: what the operation is, and of how many bytes */
} FrameHead;
enum {
    MOST_LARGE = HUB_PIECE_BYTES / LARGE_BYTES,
    MOST_SMALL = LARGE_BYTES / SMALL_BYTES + 1,
    IN_BYTES = HUB_PIECE_BYTES + SMALL_BYTES,
    OUT_BYTES = IN_BYTES + (MOST_LARGE + MOST_SMALL) * (int)sizeof(FrameHead)
};

/* Bytes on their way out. */
typedef struct Outgoing {
    size_t count, sent;
    char *bytes;
} Outgoing;

/* A connection to another host. */
typedef struct Peer {
    HubLink link;
    /* in: the frame that is coming, the message so far, its first frame's head */
    FrameHead head, first;
    size_t head_got, load_got, in_bytes;
    char *in;
    char loss[HUB_TEXT_MAX];
    /* out: the message, and a frame of the hub's own, which goes between two messages */
    Outgoing out, own;
    char own_bytes[sizeof(FrameHead) + HUB_TEXT_MAX];
    bool tells_loss, tells_leave;
    double heard, beat; /* when something was last heard, and sent */
    bool left, gone;    /* has left in order; the connection is of no use any more */
} Peer;

struct Hub {
    RankPlace place;
    HubOptions options;
    uint64_t host_count;
    Peer *peers;
    size_t peer_count;
    uint32_t operation;
    pthread_t thread;
    bool has_thread;
    int wake; /* an eventfd: the caller has put something out */
    /* below: guarded by the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool ends, lost;
    char loss[HUB_TEXT_MAX];
};

/* ---- losses ---- */

static const char *describe(const Hub *hub, const Peer *peer, char text[HOST_RANKS_NAME_MAX])
{
    (void)snprintf(text, HOST_RANKS_NAME_MAX,
                   "rank %" PRIu64 " of %" PRIu64 " (host %.50s, process %" PRIu64 ")", peer->link.first,
                   hub->place.world_size, peer->link.host, peer->link.process);
    return text;
}

/* Ends all communication, with the first loss that is noticed, of which all hosts are told. */
static void lose(Hub *hub, const char *text)
{
    if (hub->lost)
        return;
    hub->lost = true;
    (void)snprintf(hub->loss, sizeof hub->loss, "%.*s", HUB_TEXT_MAX - 1, text);
    for (Peer *peer = hub->peers; peer < hub->peers + hub->peer_count; peer++)
        peer->tells_loss = !peer->gone;
    (void)pthread_cond_broadcast(&hub->changed);
    if (hub->options.lose)
        hub->options.lose(hub->options.context, hub->loss);
}

/* Makes it the loss that a host is gone, or of no use any more. That host is told too, if it still hears. */
static void lose_peer(Hub *hub, const Peer *peer, const char *what)
{
    char name[HOST_RANKS_NAME_MAX], text[HUB_TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s %s", describe(hub, peer, name), what);
    lose(hub, text);
}

/* ---- in ---- */

static size_t load_of(uint32_t kind)
{
    switch (kind) {
    case FRAME_LARGE:
        return LARGE_BYTES;
    case FRAME_SMALL:
        return SMALL_BYTES;
    case FRAME_LOSS:
        return HUB_TEXT_MAX;
    default:
        return 0;
    }
}

/* Returns whether a head that has come is one that may come now. */
static bool is_expected(const Peer *peer)
{
    const FrameHead *head = &peer->head;
    if (head->kind != FRAME_LARGE && head->kind != FRAME_SMALL)
        return head->kind >= FRAME_BEAT && head->kind <= FRAME_LEAVE;
    return peer->in_bytes + load_of(head->kind) <= IN_BYTES &&
           (peer->in_bytes == 0 ||
            (head->operation == peer->first.operation && head->meaning == peer->first.meaning));
}

/* Takes a frame that is complete. */
static void take_frame(Hub *hub, Peer *peer)
{
    const FrameHead head = peer->head;
    peer->head_got = 0;
    peer->load_got = 0;
    if (head.kind == FRAME_LARGE || head.kind == FRAME_SMALL) {
        peer->first = head;
        peer->in_bytes += load_of(head.kind);
        (void)pthread_cond_broadcast(&hub->changed);
    } else if (head.kind == FRAME_LOSS) {
        peer->loss[sizeof peer->loss - 1] = '\0';
        for (char *at = peer->loss; *at; at++)
            *at = (unsigned char)*at < ' ' || (unsigned char)*at > '~' ? '?' : *at;
        lose(hub, peer->loss);
    } else if (head.kind == FRAME_LEAVE) {
        peer->left = true;
        (void)pthread_cond_broadcast(&hub->changed);
    }
}

/* Reads what has come. */
static void read_peer(Hub *hub, Peer *peer)
{
    while (!peer->gone) {
        errno = 0; /* a connection that was ended in order leaves it so */
        const size_t had = peer->head_got + peer->load_got;
        bool open = hub_read_some(peer->link.socket, &peer->head, sizeof peer->head, &peer->head_got);
        if (peer->head_got == sizeof peer->head && !is_expected(peer)) {
            peer->gone = true;
            lose_peer(hub, peer, "says what ftrain would not say at this point");
            return;
        }
        const bool has_head = peer->head_got == sizeof peer->head;
        const size_t load = has_head ? load_of(peer->head.kind) : 0;
        char *to = peer->head.kind == FRAME_LOSS ? peer->loss : peer->in + peer->in_bytes;
        if (open && load > 0)
            open = hub_read_some(peer->link.socket, to, load, &peer->load_got);
        if (peer->head_got + peer->load_got > had)
            peer->heard = progress_now_seconds();
        if (has_head && peer->load_got == load) {
            take_frame(hub, peer);
            continue;
        }
        peer->gone = !open;
        if (!open && !peer->left)
            lose_peer(hub, peer, errno == ETIMEDOUT ? "cannot be reached any more" : "has ended");
        return;
    }
}

/* ---- out ---- */

/* Sends what the connection takes. Returns whether all of it is sent. */
static bool send_some(Peer *peer, Outgoing *outgoing)
{
    while (outgoing->sent < outgoing->count) {
        const ssize_t sent = send(peer->link.socket, outgoing->bytes + outgoing->sent,
                                  outgoing->count - outgoing->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) /* a connection that has ended is noticed when it is read */
            return false;
        outgoing->sent += (size_t)sent;
    }
    return true;
}

/* Puts out the next frame of the hub's own. Returns false if none is due. */
static bool put_own(const Hub *hub, Peer *peer)
{
    FrameHead head = {.kind = FRAME_BEAT};
    size_t load = 0;
    const double now = progress_now_seconds();
    const double every =
        hub->options.timeout_seconds < 4 * beat_seconds ? hub->options.timeout_seconds / 4 : beat_seconds;
    if (peer->tells_loss) {
        head.kind = FRAME_LOSS;
        load = HUB_TEXT_MAX;
        peer->tells_loss = false;
        memcpy(peer->own_bytes + sizeof head, hub->loss, load);
    } else if (peer->tells_leave) {
        head.kind = FRAME_LEAVE;
        peer->tells_leave = false;
    } else if (now - peer->beat < every) {
        return false;
    }
    peer->beat = now;
    memcpy(peer->own_bytes, &head, sizeof head);
    peer->own = (Outgoing){.count = sizeof head + load, .bytes = peer->own_bytes};
    return true;
}

static void write_peer(const Hub *hub, Peer *peer)
{
    while (!peer->gone) {
        if (!send_some(peer, peer->own.sent < peer->own.count ? &peer->own : &peer->out))
            return;
        if (peer->own.sent == peer->own.count && peer->out.sent == peer->out.count && !put_own(hub, peer))
            return;
    }
}

static bool has_output(const Peer *peer)
{
    return !peer->gone && (peer->own.sent < peer->own.count || peer->out.sent < peer->out.count ||
                           peer->tells_loss || peer->tells_leave);
}

/* ---- the thread ---- */

static void wait_for_events(const Hub *hub)
{
    struct pollfd polled[RANKS_MAX + 1];
    polled[hub->peer_count] = (struct pollfd){.fd = hub->wake, .events = POLLIN};
    for (size_t i = 0; i < hub->peer_count; i++) {
        const Peer *peer = &hub->peers[i];
        polled[i] = (struct pollfd){.fd = peer->gone ? -1 : peer->link.socket,
                                    .events = (short)(has_output(peer) ? POLLIN | POLLOUT : POLLIN)};
    }
    (void)poll(polled, hub->peer_count + 1, LOOK_MILLISECONDS);
    uint64_t count;
    (void)!read(hub->wake, &count, sizeof count);
}

/* Reads and writes all connections, and looks for those that are silent. */
static void serve(Hub *hub)
{
    for (size_t i = 0; i < hub->peer_count; i++) {
        Peer *peer = &hub->peers[i];
        char what[64];
        read_peer(hub, peer);
        write_peer(hub, peer);
        if (peer->gone || peer->left || progress_now_seconds() - peer->heard < hub->options.timeout_seconds)
            continue;
        (void)snprintf(what, sizeof what, "has not been heard of for %.0f s", hub->options.timeout_seconds);
        lose_peer(hub, peer, what);
    }
}

static bool all_sent(const Hub *hub)
{
    for (size_t i = 0; i < hub->peer_count; i++)
        if (has_output(&hub->peers[i]))
            return false;
    return true;
}

static void *run_hub(void *context)
{
    Hub *hub = context;
    double looked = 0;
    bool goes_on = true;
    while (goes_on) {
        FshError error = {0};
        FshStatus status = FSH_OK;
        wait_for_events(hub);
        if (hub->options.look && progress_now_seconds() - looked > HUB_LOOK_SECONDS) {
            looked = progress_now_seconds();
            status = hub->options.look(hub->options.context, &error);
        }
        (void)pthread_mutex_lock(&hub->lock);
        if (status)
            lose(hub, error.message);
        serve(hub);
        goes_on = !hub->ends || !all_sent(hub);
        if (hub->ends && all_sent(hub))
            (void)pthread_cond_broadcast(&hub->changed);
        (void)pthread_mutex_unlock(&hub->lock);
    }
    return NULL;
}

static void wake(const Hub *hub)
{
    const uint64_t one = 1;
    (void)!write(hub->wake, &one, sizeof one);
}

/* ---- opening and closing ---- */

static FshStatus start_thread(Hub *hub, FshError *error)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&hub->thread, NULL, run_hub, hub);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    hub->has_thread = code == 0;
    return code ? fsh_error_system(error, code, "no thread for the other hosts") : FSH_OK;
}

/* Makes a peer of each link. */
static FshStatus make_peers(Hub *hub, const HubLink *links, FshError *error)
{
    const double now = progress_now_seconds();
    for (size_t i = 0; i < hub->peer_count; i++) {
        Peer *peer = &hub->peers[i];
        *peer = (Peer){.link = links[i], .in = malloc(IN_BYTES), .heard = now, .beat = now};
        peer->out.bytes = malloc(OUT_BYTES);
        hub_tune(peer->link.socket, hub->options.timeout_seconds);
        if (!peer->in || !peer->out.bytes)
            return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the other hosts");
    }
    return FSH_OK;
}

FshStatus hub_open(Hub **hub_ret, const RankPlace *place, const HubOptions *options, FshError *error)
{
    HubLink links[RANKS_MAX];
    HubMeeting meeting = {.links = links};
    Hub *hub = calloc(1, sizeof *hub);
    *hub_ret = NULL;
    if (!hub)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the other hosts");
    hub->place = *place;
    hub->options = *options;
    (void)pthread_mutex_init(&hub->lock, NULL);
    (void)pthread_cond_init(&hub->changed, NULL);
    hub->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    FshStatus status = hub->wake < 0 ? fsh_error_system(error, errno, "no eventfd")
                                     : hub_meeting_hold(&meeting, place, options, error);
    hub->host_count = meeting.host_count;
    hub->peers = calloc(meeting.link_count + 1, sizeof *hub->peers);
    if (!status && !hub->peers)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the other hosts");
    hub->peer_count = status ? 0 : meeting.link_count;
    for (uint64_t i = 0; i < meeting.link_count && status; i++)
        (void)close(links[i].socket);
    if (!status)
        status = make_peers(hub, links, error);
    if (!status)
        status = start_thread(hub, error);
    if (status)
        hub_close(&hub);
    *hub_ret = hub;
    return status;
}

/* Lets the thread send what is left, and ends it. */
static void end_thread(Hub *hub)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)leave_seconds;
    (void)pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < hub->peer_count; i++)
        hub->peers[i].tells_leave = true;
    hub->ends = true;
    wake(hub);
    while (!all_sent(hub) && pthread_cond_timedwait(&hub->changed, &hub->lock, &until) == 0)
        ;
    for (size_t i = 0; i < hub->peer_count; i++)
        hub->peers[i].gone = hub->peers[i].gone || has_output(&hub->peers[i]);
    (void)pthread_mutex_unlock(&hub->lock);
    wake(hub);
    (void)pthread_join(hub->thread, NULL);
}

/* Ends a connection so that the other side can read all that was sent: data that nobody has read would make
 * the system reset it. */
static void end_connection(const Peer *peer)
{
    char bytes[SMALL_BYTES];
    (void)shutdown(peer->link.socket, SHUT_WR);
    while (recv(peer->link.socket, bytes, sizeof bytes, 0) > 0)
        ;
    (void)close(peer->link.socket);
}

void hub_close(Hub **hub_ret)
{
    Hub *hub = *hub_ret;
    if (!hub)
        return;
    if (hub->has_thread)
        end_thread(hub);
    for (size_t i = 0; i < hub->peer_count; i++) {
        end_connection(&hub->peers[i]);
        free(hub->peers[i].in);
        free(hub->peers[i].out.bytes);
    }
    if (hub->wake >= 0)
        (void)close(hub->wake);
    (void)pthread_cond_destroy(&hub->changed);
    (void)pthread_mutex_destroy(&hub->lock);
    free(hub->peers);
    free(hub);
    *hub_ret = NULL;
}

uint64_t hub_count(const Hub *hub)
{
    return hub->host_count;
}

bool hub_left(Hub *hub, char text[HOST_RANKS_NAME_MAX])
{
    bool left = false;
    (void)pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < hub->peer_count && !left; i++) {
        left = hub->peers[i].left;
        if (left)
            (void)describe(hub, &hub->peers[i], text);
    }
    (void)pthread_mutex_unlock(&hub->lock);
    return left;
}

/* ---- together ---- */

typedef enum Meaning { MEANING_REDUCE = 1, MEANING_EMPTY, MEANING_DATA } Meaning;

static uint64_t meaning_of(Meaning meaning, size_t byte_count)
{
    return (uint64_t)meaning << 32 | byte_count;
}

/* Returns the bytes of the loads of a message. */
static size_t loads_of(size_t byte_count)
{
    const size_t rest = byte_count % LARGE_BYTES;
    const size_t small = (rest + SMALL_BYTES - 1) / SMALL_BYTES;
    return byte_count - rest + (byte_count ? small : 1) * SMALL_BYTES;
}

/* Returns whether the message that comes from a peer says only that it has come this far. */
static bool is_empty(const Peer *peer)
{
    return peer->first.meaning >> 32 == MEANING_EMPTY;
}

/* Puts a message out to a peer. The lock is held, and the one before is sent. */
static void put_message(const Hub *hub, Peer *peer, Meaning meaning, const char *bytes, size_t byte_count)
{
    FrameHead head = {.operation = hub->operation, .meaning = meaning_of(meaning, byte_count)};
    char *to = peer->out.bytes;
    size_t at = 0;
    byte_count = meaning == MEANING_EMPTY ? 0 : byte_count;
    do {
        const size_t left = byte_count - at, load = left >= LARGE_BYTES ? LARGE_BYTES : SMALL_BYTES;
        const size_t now = left < load ? left : load;
        head.kind = load == LARGE_BYTES ? FRAME_LARGE : FRAME_SMALL;
        memcpy(to, &head, sizeof head);
        if (now > 0)
            memcpy(to + sizeof head, bytes + at, now);
        memset(to + sizeof head + now, 0, load - now);
        to += sizeof head + load;
        at += now;
    } while (at < byte_count);
    peer->out.count = (size_t)(to - peer->out.bytes);
    peer->out.sent = 0;
}

/* Waits for a change, or for HUB_LOOK_SECONDS, and looks at this host then. The lock is held. */
static FshStatus wait_for_change(Hub *hub, FshError *error)
{
    struct timespec until;
    FshStatus status = FSH_OK;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(HUB_LOOK_SECONDS * 1e9);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!hub->lost && pthread_cond_timedwait(&hub->changed, &hub->lock, &until) == ETIMEDOUT &&
        hub->options.look) {
        (void)pthread_mutex_unlock(&hub->lock);
        status = hub->options.look(hub->options.context, error);
        (void)pthread_mutex_lock(&hub->lock);
    }
    return hub->lost ? fsh_error_set(error, FSH_ERR_SYSTEM, "%s", hub->loss) : status;
}

/* Waits for a message of the present operation, with one of two meanings. */
static FshStatus await_message(Hub *hub, Peer *peer, Meaning meaning, size_t byte_count, Meaning or_meaning,
                               FshError *error)
{
    const uint64_t wanted = meaning_of(meaning, byte_count), other = meaning_of(or_meaning, byte_count);
    FshStatus status = hub->lost ? fsh_error_set(error, FSH_ERR_SYSTEM, "%s", hub->loss) : FSH_OK;
    while (!status) {
        const bool begun = peer->in_bytes > 0;
        const size_t loads = loads_of(is_empty(peer) ? 0 : byte_count);
        if (begun &&
            (peer->first.operation != hub->operation ||
             (peer->first.meaning != wanted && peer->first.meaning != other) || peer->in_bytes > loads)) {
            lose_peer(hub, peer, "does something else than this one: the hosts are out of step");
        } else if (begun && peer->in_bytes == loads) {
            peer->in_bytes = 0;
            return FSH_OK;
        } else if (peer->left) {
            lose_peer(hub, peer, "has ended");
        }
        status = wait_for_change(hub, error);
    }
    return status;
}

/* Waits until the last message to a peer is sent. */
static FshStatus await_sent(Hub *hub, const Peer *peer, FshError *error)
{
    FshStatus status = FSH_OK;
    while (!status && peer->out.sent < peer->out.count)
        status = wait_for_change(hub, error);
    return status;
}

/* What an operation does with what the hosts send. */
typedef struct Operation {
    Meaning up, down;
    char *bytes;
    size_t byte_count;
    const RankReduction *reduction; /* NULL: the bytes of the one host that has sent some */
} Operation;

/* Collects the messages of all hosts in their order. */
static FshStatus collect(Hub *hub, const Operation *operation, FshError *error)
{
    FshStatus status = FSH_OK;
    for (size_t i = 0; i < hub->peer_count && !status; i++) {
        Peer *peer = &hub->peers[i];
        status = await_message(hub, peer, operation->down, operation->byte_count, MEANING_EMPTY, error);
        if (status)
            break;
        if (operation->reduction)
            operation->reduction->combine(operation->bytes, peer->in, 0,
                                          operation->byte_count / operation->reduction->element_bytes);
        else if (!is_empty(peer) && operation->byte_count > 0)
            memcpy(operation->bytes, peer->in, operation->byte_count);
    }
    return status;
}

static FshStatus operate_as_first(Hub *hub, const Operation *operation, FshError *error)
{
    FshStatus status = collect(hub, operation, error);
    for (size_t i = 0; i < hub->peer_count && !status; i++) {
        status = await_sent(hub, &hub->peers[i], error);
        if (!status)
            put_message(hub, &hub->peers[i], operation->down, operation->bytes, operation->byte_count);
    }
    wake(hub);
    return status;
}

static FshStatus operate_as_other(Hub *hub, const Operation *operation, FshError *error)
{
    Peer *first = &hub->peers[0];
    FshStatus status = await_sent(hub, first, error);
    if (status)
        return status;
    put_message(hub, first, operation->up, operation->bytes, operation->byte_count);
    wake(hub);
    status = await_message(hub, first, operation->down, operation->byte_count, operation->down, error);
    if (!status && operation->byte_count > 0)
        memcpy(operation->bytes, first->in, operation->byte_count);
    return status;
}

static FshStatus operate(Hub *hub, const Operation *operation, FshError *error)
{
    if (operation->byte_count > HUB_PIECE_BYTES)
        return fsh_error_set(error, FSH_ERR_USAGE, "hub: %zu bytes in one piece", operation->byte_count);
    (void)pthread_mutex_lock(&hub->lock);
    hub->operation++;
    FshStatus status = hub->place.rank == 0 ? operate_as_first(hub, operation, error)
                                            : operate_as_other(hub, operation, error);
    (void)pthread_mutex_unlock(&hub->lock);
    return status;
}

FshStatus hub_reduce(Hub *hub, void *values, size_t byte_count, const RankReduction *reduction,
                     FshError *error)
{
    const Operation operation = {.up = MEANING_REDUCE,
                                 .down = MEANING_REDUCE,
                                 .bytes = values,
                                 .byte_count = byte_count,
                                 .reduction = reduction};
    return operate(hub, &operation, error);
}

FshStatus hub_broadcast(Hub *hub, bool is_mine, void *bytes, size_t byte_count, FshError *error)
{
    const Operation operation = {.up = is_mine ? MEANING_DATA : MEANING_EMPTY,
                                 .down = MEANING_DATA,
                                 .bytes = bytes,
                                 .byte_count = byte_count};
    return operate(hub, &operation, error);
}

FshStatus hub_meet(Hub *hub, FshError *error)
{
    const Operation operation = {.up = MEANING_EMPTY, .down = MEANING_EMPTY};
    return operate(hub, &operation, error);
}
