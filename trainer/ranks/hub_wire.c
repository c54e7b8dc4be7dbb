#include "trainer/ranks/hub_wire.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/progress.h"
#include "trainer/ranks/hub_sockets.h"

enum { LARGE_BYTES = 64 * 1024, SMALL_BYTES = 1024 };

typedef enum FrameKind { FRAME_LARGE = 1, FRAME_SMALL, FRAME_BEAT, FRAME_LOSS, FRAME_LEAVE } FrameKind;

enum {
    LARGE_MAX = HUB_PIECE_BYTES / LARGE_BYTES,
    SMALL_MAX = LARGE_BYTES / SMALL_BYTES + 1,
    IN_BYTES = HUB_PIECE_BYTES + SMALL_BYTES,
    OUT_BYTES = IN_BYTES + (LARGE_MAX + SMALL_MAX) * (int)sizeof(HubFrameHead)
};

FshStatus hub_wire_open(HubWire *wire, const HubLink *link, FshError *error)
{
    *wire = (HubWire){.link = *link, .in = malloc(IN_BYTES), .beat = progress_now_seconds()};
    wire->message.bytes = malloc(OUT_BYTES);
    return wire->in && wire->message.bytes
               ? FSH_OK
               : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the other hosts");
}

/* Reads what is left before it closes: else the system resets the connection, and the other side loses what
 * it has not read. */
void hub_wire_close(HubWire *wire)
{
    char bytes[SMALL_BYTES];
    (void)shutdown(wire->link.socket, SHUT_WR);
    while (recv(wire->link.socket, bytes, sizeof bytes, 0) > 0)
        continue;
    (void)close(wire->link.socket);
    free(wire->in);
    free(wire->message.bytes);
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

static size_t bytes_of(const HubSubject *subject)
{
    return subject->has_bytes ? subject->byte_count : 0;
}

/* Returns the bytes of the loads of a message. */
static size_t loads_of(const HubSubject *subject)
{
    const size_t byte_count = bytes_of(subject);
    const size_t rest = byte_count % LARGE_BYTES, small = (rest + SMALL_BYTES - 1) / SMALL_BYTES;
    return byte_count - rest + (byte_count ? small : 1) * SMALL_BYTES;
}

static bool is_same(const HubSubject *a, const HubSubject *b)
{
    return a->operation == b->operation && a->meaning == b->meaning && a->byte_count == b->byte_count &&
           a->has_bytes == b->has_bytes;
}

/* Returns whether a head that has come is one that may come now. */
static bool is_expected(const HubWire *wire)
{
    const HubFrameHead *head = &wire->head;
    if (head->kind != FRAME_LARGE && head->kind != FRAME_SMALL)
        return head->kind >= FRAME_BEAT && head->kind <= FRAME_LEAVE;
    return head->subject.operation > 0 && head->subject.byte_count <= HUB_PIECE_BYTES &&
           wire->in_bytes + load_of(head->kind) <= loads_of(&head->subject) &&
           (wire->in_bytes == 0 || is_same(&head->subject, &wire->subject));
}

/* Takes a frame that is complete. */
static void take_frame(HubWire *wire)
{
    const HubFrameHead head = wire->head;
    wire->head_got = 0;
    wire->load_got = 0;
    if (head.kind == FRAME_LARGE || head.kind == FRAME_SMALL) {
        wire->subject = head.subject;
        wire->in_bytes += load_of(head.kind);
    } else if (head.kind == FRAME_LOSS) {
        memcpy(wire->loss, wire->loss_load, sizeof wire->loss);
        hub_text_clean(wire->loss, sizeof wire->loss);
        wire->told = true;
        wire->loss_signal = head.subject.operation < (uint32_t)NSIG ? (int)head.subject.operation : 0;
    } else if (head.kind == FRAME_LEAVE) {
        wire->left = true;
    }
}

HubNews hub_wire_read(HubWire *wire)
{
    HubNews news = HUB_NEWS_NONE;
    while (!wire->gone) {
        const size_t had = wire->head_got + wire->load_got;
        errno = 0; /* a connection that was ended in order leaves it so */
        bool open = hub_read_some(wire->link.socket, &wire->head, sizeof wire->head, &wire->head_got);
        const bool has_head = wire->head_got == sizeof wire->head;
        if (has_head && !is_expected(wire)) {
            wire->gone = true;
            return HUB_NEWS_NONSENSE;
        }
        const size_t load = has_head ? load_of(wire->head.kind) : 0;
        char *to = wire->head.kind == FRAME_LOSS ? wire->loss_load : wire->in + wire->in_bytes;
        if (open && load > 0)
            open = hub_read_some(wire->link.socket, to, load, &wire->load_got);
        if (wire->head_got + wire->load_got > had)
            wire->silent = 0;
        if (has_head && wire->load_got == load) {
            take_frame(wire);
            news = HUB_NEWS_SOME;
            continue;
        }
        wire->gone = !open;
        return open ? news : HUB_NEWS_ENDED;
    }
    return news;
}

bool hub_wire_has(const HubWire *wire, HubSubject *subject_ret)
{
    const bool begun = wire->in_bytes > 0;
    *subject_ret = begun ? wire->subject : (HubSubject){0};
    return begun && wire->in_bytes == loads_of(&wire->subject);
}

void hub_wire_take(HubWire *wire)
{
    wire->in_bytes = 0;
}

/* ---- out ---- */

void hub_wire_put(HubWire *wire, HubSubject subject, const char *bytes)
{
    HubFrameHead head = {.subject = subject};
    char *to = wire->message.bytes;
    const size_t byte_count = bytes_of(&subject);
    size_t at = 0;
    do {
        const size_t left = byte_count - at;
        const size_t load = left >= LARGE_BYTES ? LARGE_BYTES : SMALL_BYTES, now = left < load ? left : load;
        head.kind = load == LARGE_BYTES ? FRAME_LARGE : FRAME_SMALL;
        memcpy(to, &head, sizeof head);
        if (now > 0)
            memcpy(to + sizeof head, bytes + at, now);
        memset(to + sizeof head + now, 0, load - now);
        to += sizeof head + load;
        at += now;
    } while (at < byte_count);
    wire->message.count = (size_t)(to - wire->message.bytes);
    wire->message.sent = 0;
}

bool hub_wire_sent(const HubWire *wire)
{
    return wire->message.sent == wire->message.count;
}

/* Sends what the connection takes. Returns whether all of it is sent. */
static bool send_some(const HubWire *wire, HubOutput *output)
{
    while (output->sent < output->count) {
        const ssize_t sent =
            send(wire->link.socket, output->bytes + output->sent, output->count - output->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) /* a connection that has ended is noticed when it is read */
            return false;
        output->sent += (size_t)sent;
    }
    return true;
}

/* Puts out the next frame of the connection's own. Returns false if none is due. */
static bool put_own(HubWire *wire, const char *loss, int signal_number)
{
    HubFrameHead head = {.kind = FRAME_BEAT};
    size_t load = 0;
    const double now = progress_now_seconds();
    if (wire->tells_loss) {
        head.kind = FRAME_LOSS;
        head.subject.operation = (uint32_t)signal_number;
        load = HUB_TEXT_MAX;
        wire->tells_loss = false;
        memcpy(wire->own_bytes + sizeof head, loss, load);
    } else if (wire->tells_leave) {
        head.kind = FRAME_LEAVE;
        wire->tells_leave = false;
    } else if (now - wire->beat < HUB_BEAT_SECONDS) {
        return false;
    }
    wire->beat = now;
    memcpy(wire->own_bytes, &head, sizeof head);
    wire->own = (HubOutput){.count = sizeof head + load, .bytes = wire->own_bytes};
    return true;
}

void hub_wire_write(HubWire *wire, const char *loss, int signal_number)
{
    while (!wire->gone) {
        if (!send_some(wire, wire->own.sent < wire->own.count ? &wire->own : &wire->message))
            return;
        if (wire->own.sent == wire->own.count && hub_wire_sent(wire) && !put_own(wire, loss, signal_number))
            return;
    }
}

bool hub_wire_has_output(const HubWire *wire)
{
    return !wire->gone && (wire->own.sent < wire->own.count || !hub_wire_sent(wire) || wire->tells_loss ||
                           wire->tells_leave);
}
