/* What comes over a connection between two hosts, however it is cut on its way. */
#include "tests/support/support.h"
#include "trainer/ranks/hub_wire.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAM_MAX = 16384, BYTES = 3000 };

/* Opens a wire at one end of a pair of sockets that do not block. Returns the other end. */
static int open_wire(HubWire *wire)
{
    int ends[2];
    FshError error = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    assert_ok(hub_wire_open(wire, &(HubLink){.socket = ends[0]}, &error), &error);
    return ends[1];
}

/* Writes what a host says to stream: a message, and a loss. Returns the number of bytes. */
static size_t record(char *stream, const char *message, const char *loss, int signal_number)
{
    HubWire wire;
    const int other = open_wire(&wire);
    hub_wire_put(&wire, (HubSubject){.operation = 1, .meaning = 1, .byte_count = BYTES, .has_bytes = 1},
                 message);
    wire.tells_loss = true;
    hub_wire_write(&wire, loss, signal_number);
    const ssize_t got = recv(other, stream, STREAM_MAX, 0);
    assert_true(got > BYTES + HUB_TEXT_MAX && got < STREAM_MAX);
    hub_wire_close(&wire);
    (void)close(other);
    return (size_t)got;
}

/* A part of a loss is no loss: it would be told cut, and without its signal. */
TEST(test_a_loss_counts_once_it_is_whole)
{
    static char message[BYTES], stream[STREAM_MAX];
    static const char loss[HUB_TEXT_MAX] = "rank 3 has\nfallen";
    HubWire wire;
    HubSubject subject;
    memset(message, 'm', sizeof message);
    const size_t count = record(stream, message, loss, SIGTERM);
    const int other = open_wire(&wire);
    for (size_t i = 0; i < count; i++) {
        assert_false(wire.told);
        assert_string_equal(wire.loss, "");
        assert_int_equal(send(other, stream + i, 1, 0), 1);
        (void)hub_wire_read(&wire);
        assert_false(wire.gone);
    }
    assert_true(wire.told);
    assert_string_equal(wire.loss, "rank 3 has?fallen");
    assert_int_equal(wire.loss_signal, SIGTERM);
    assert_true(hub_wire_has(&wire, &subject) && subject.byte_count == BYTES);
    assert_memory_equal(wire.in, message, sizeof message);
    hub_wire_close(&wire);
    (void)close(other);
}
