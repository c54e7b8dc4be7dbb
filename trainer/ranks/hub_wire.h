/* hub_wire.h - one connection between two hosts that have met: messages of an operation, and beside them
 * signs of life, a loss, and the word that the other side leaves. For hub.c alone.
 *
 * A message is a row of frames, each a head and a load of a fixed size: data in large or small ones, a loss,
 * or nothing. No length is read from the peer: what comes has the size of its kind, and no message is longer
 * than HUB_PIECE_BYTES. Frames of the connection's own go between two messages.
 *
 * In each direction there is at most one message under way. hub_wire_read leaves it whole in `in` until
 * hub_wire_take, so that what comes behind it (a loss) is never stuck.
 *
 * Threads: one at a time. */
#ifndef FSHARD_TRAINER_RANKS_HUB_WIRE_H
#define FSHARD_TRAINER_RANKS_HUB_WIRE_H

#include "trainer/ranks/hub_meeting.h"

/* The same on all hosts, whatever their timeouts: one may wait for a second only. */
#define HUB_BEAT_SECONDS 0.25

/* What a message is: the same on both sides, or the hosts are out of step. */
typedef struct HubSubject {
    uint32_t operation;  /* counted from 1 */
    uint32_t meaning;    /* hub.c's */
    uint32_t byte_count; /* of the operation, HUB_PIECE_BYTES at most */
    uint32_t has_bytes;  /* 1: they follow; 0: the message only says what it is */
} HubSubject;

typedef struct HubFrameHead {
    uint32_t kind; /* hub_wire.c's */
    HubSubject subject;
} HubFrameHead;

/* Bytes on their way out. */
typedef struct HubOutput {
    size_t count, sent;
    char *bytes;
} HubOutput;

typedef struct HubWire {
    HubLink link;
    /* in: the frame that is coming, and the message so far */
    HubFrameHead head;
    size_t head_got, load_got;
    HubSubject subject;
    size_t in_bytes; /* of loads; 0: no message has begun */
    char *in;
    char loss_load[HUB_TEXT_MAX]; /* of a loss that is coming */
    bool told;                    /* the other side has told a loss, with its signal */
    char loss[HUB_TEXT_MAX];
    int loss_signal;
    double silent; /* seconds since something came last: hub.c counts them, hub_wire_read begins anew */
    bool left;     /* the other side has left in order */
    bool gone;     /* the connection has ended, or is of no use */
    /* out */
    HubOutput message, own;
    char own_bytes[sizeof(HubFrameHead) + HUB_TEXT_MAX];
    double beat; /* when something was put out last */
    bool tells_loss, tells_leave;
} HubWire;

/* Takes over a connection. FSH_ERR_MEMORY; hub_wire_close is called anyway. */
FshStatus hub_wire_open(HubWire *wire, const HubLink *link, FshError *error);
/* Ends the connection so that the other side can read all that was sent. */
void hub_wire_close(HubWire *wire);

typedef enum HubNews {
    HUB_NEWS_NONE,
    HUB_NEWS_SOME, /* a message may be whole, a loss may be told, the other side may have left */
    HUB_NEWS_ENDED,
    HUB_NEWS_NONSENSE,
} HubNews;
/* Reads what has come. HUB_NEWS_ENDED, with errno: the connection has ended without a word;
 * HUB_NEWS_NONSENSE: it speaks no ftrain. wire->gone is set after both. */
HubNews hub_wire_read(HubWire *wire);

/* Returns whether a message is whole. Sets *subject_ret to what it is, also of one that has only begun;
 * operation 0: none has. */
bool hub_wire_has(const HubWire *wire, HubSubject *subject_ret);
/* Lets go of the message in `in`; the next may come. */
void hub_wire_take(HubWire *wire);

/* Puts out a message; the one before it is sent (hub_wire_sent). */
void hub_wire_put(HubWire *wire, HubSubject subject, const char *bytes);
bool hub_wire_sent(const HubWire *wire);
/* Sends what the connection takes, and a sign of life every HUB_BEAT_SECONDS. loss and its signal are sent if
 * wire->tells_loss. */
void hub_wire_write(HubWire *wire, const char *loss, int signal_number);
/* Returns whether something is waiting to be sent. */
bool hub_wire_has_output(const HubWire *wire);

#endif
