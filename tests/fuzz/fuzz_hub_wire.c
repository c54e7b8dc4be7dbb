/* What a host that has been let in says: frames, cut on their way as the first byte of the input chooses.
 * Whatever it says, a message keeps to its size, and a loss can be printed. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "trainer/ranks/hub_wire.h"

enum { CUT_MAX = 4096 };

static void look_at(HubWire *wire, bool takes)
{
    HubSubject subject;
    if (hub_wire_has(wire, &subject)) {
        fuzz_expect(subject.operation > 0 && subject.byte_count <= HUB_PIECE_BYTES,
                    "a message has a number, and the size of a piece at most");
        fuzz_touch(wire->in, subject.has_bytes ? subject.byte_count : 0);
        if (takes)
            hub_wire_take(wire);
    }
    if (!wire->told)
        return;
    fuzz_expect(memchr(wire->loss, '\0', sizeof wire->loss) != NULL, "a loss ends");
    for (const char *at = wire->loss; *at; at++)
        fuzz_expect(*at >= ' ' && *at <= '~', "a loss can be printed");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    HubWire wire;
    int ends[2];
    uint32_t choice = length > 0 ? bytes[0] : 0;
    fuzz_expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "sockets");
    const HubLink link = {.socket = ends[0]};
    fuzz_expect_ok(hub_wire_open(&wire, &link, NULL), NULL, "a wire");
    for (size_t at = 1, now; at < length && !wire.gone; at += now) {
        choice = choice * 1664525 + 1013904223;
        now = 1 + (choice >> 16) % CUT_MAX;
        now = now < length - at ? now : length - at;
        fuzz_expect(send(ends[1], bytes + at, now, MSG_NOSIGNAL) == (ssize_t)now, "a cut is sent");
        const HubNews news = hub_wire_read(&wire);
        fuzz_expect(wire.gone == (news == HUB_NEWS_NONSENSE), "who talks nonsense is let go, and none else");
        look_at(&wire, choice >> 31);
    }
    (void)close(ends[1]);
    (void)hub_wire_read(&wire);
    fuzz_expect(wire.gone, "the end is noticed");
    hub_wire_close(&wire);
    return 0;
}
