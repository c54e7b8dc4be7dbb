/* Hosts that meet over TCP: whom they let in, and what each is told of a meeting that fails. The hosts are
 * processes of this machine. */
#include "tests/support/support.h"
#include "tests/trainer/hub_hosts.h"
#include "trainer/ranks/hub_frames.h"
#include "trainer/ranks/hub_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"

/* ---- meetings that fail ---- */

TEST(test_a_host_that_is_missing_is_named_on_all_that_are_there)
{
    const uint16_t port = test_free_port();
    const RankPlace first = host_place(0, 1, 4, port), second = host_place(1, 1, 4, port);
    begin();
    options.hint.most_seconds = 1.5;
    const pid_t a = rank_process_start(&first, only_open), b = rank_process_start(&second, only_open);
    (void)rank_process_end(a);
    (void)rank_process_end(b);
    expect_message(0, FSH_ERR_PEER, "ranks 2 to 3 of 4 have not come within 2 seconds");
    expect_message(1, FSH_ERR_PEER, "ranks 2 to 3 of 4 have not come within 2 seconds");
    assert_true(report->seconds[0] < 6 && report->seconds[1] < 6);
}

TEST(test_a_single_rank_that_is_missing_is_named)
{
    const RankPlace first = host_place(0, 2, 3, test_free_port());
    begin();
    options.hint.most_seconds = 1;
    (void)rank_process_end(rank_process_start(&first, only_open));
    expect_message(0, FSH_ERR_PEER, "rank 2 of 3 has not come within 1 seconds");
}

/* Tells the test that the first host listens, and is interrupted once the second has waited for a while. */
static FshStatus look_as_first(void *context, int *signal_ret, FshError *error)
{
    (void)context, (void)signal_ret, (void)error;
    report->ready[2] = true;
    if (report->lost[1])
        interrupt_simulate(SIGTERM);
    return FSH_OK;
}

static FshStatus look_as_second(void *context, int *signal_ret, FshError *error)
{
    static int looks;
    (void)context, (void)signal_ret, (void)error;
    report->lost[1] = ++looks > 20;
    return FSH_OK;
}

static int be_interrupted(const RankPlace *place)
{
    interrupt_install();
    options.look = place->rank == 0 ? look_as_first : look_as_second;
    (void)only_open(place);
    report->signal_number[place->rank] = interrupt_signal();
    return 0;
}

TEST(test_hosts_that_wait_end_as_the_first_does_after_a_signal)
{
    const uint16_t port = test_free_port();
    const RankPlace first = host_place(0, 1, 3, port), second = host_place(1, 1, 3, port);
    begin();
    const pid_t a = rank_process_start(&first, be_interrupted);
    for (int turn = 0; turn < 3000 && !report->ready[2]; turn++)
        sleep_seconds(0.01);
    const pid_t b = rank_process_start(&second, be_interrupted);
    (void)rank_process_end(a);
    (void)rank_process_end(b);
    expect_message(0, FSH_ERR_INTERRUPTED, "interrupted while waiting");
    expect_message(1, FSH_ERR_INTERRUPTED, "interrupted while waiting");
    assert_int_equal(report->signal_number[1], SIGTERM);
}

TEST(test_an_address_that_does_not_answer_is_told)
{
    const RankPlace place = host_place(1, 1, 2, test_free_port());
    begin();
    options.hint.most_seconds = 1;
    (void)only_open(&place);
    expect_message(1, FSH_ERR_PEER, "within 1 seconds: Connection refused");
    assert_true(report->seconds[1] < 5);
}

TEST(test_a_name_that_does_not_resolve_is_told_at_once)
{
    RankPlace place = host_place(1, 1, 2, 4711);
    begin();
    (void)snprintf(place.address, sizeof place.address, "no such host");
    (void)only_open(&place);
    expect_message(1, FSH_ERR_USAGE,
                   "'no such host', where the ranks of all hosts are to meet, is no address");
    assert_true(report->seconds[1] < 10);
}

/* Returns a socket that listens on the port, and says nothing. */
static int listen_on(uint16_t port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(made >= 0 && bind(made, (const struct sockaddr *)&address, sizeof address) == 0 &&
                listen(made, 8) == 0);
    return made;
}

TEST(test_a_port_that_is_taken_is_told_on_both_hosts)
{
    const uint16_t port = test_free_port();
    const int taken = listen_on(port);
    begin();
    options.hint.most_seconds = 1;
    const RankPlace first = host_place(0, 1, 2, port), second = host_place(1, 1, 2, port);
    (void)only_open(&first);
    (void)only_open(&second);
    expect_message(0, FSH_ERR_USAGE, "is taken on this host by another program");
    expect_message(1, FSH_ERR_PEER, "what answers there says nothing that ftrain says");
    (void)close(taken);
}

/* Fills the queue of a socket that listens, so that whoever connects hears nothing. Returns how many sockets
 * that took. */
static int fill_queue(uint16_t port, int *sockets, int most)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int count = 0;
    for (bool full = false; !full && count < most; count++) {
        struct pollfd wanted = {.events = POLLOUT};
        sockets[count] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(sockets[count], (const struct sockaddr *)&address, sizeof address);
        wanted.fd = sockets[count];
        full = poll(&wanted, 1, 300) == 0;
    }
    return count;
}

TEST(test_the_second_address_of_a_name_is_tried_too)
{
    enum { CALLS = 32 };
    const uint16_t silent_port = test_free_port();
    const int silent = listen_on(silent_port);
    const uint16_t port = test_free_port();
    const int open = listen_on(port);
    struct sockaddr_in first = {
        .sin_family = AF_INET, .sin_port = htons(silent_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in second = first;
    int sockets[CALLS];
    second.sin_port = htons(port);
    struct addrinfo rest = {
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&second, .ai_addrlen = sizeof second};
    const struct addrinfo list = {.ai_family = AF_INET,
                                  .ai_addr = (struct sockaddr *)&first,
                                  .ai_addrlen = sizeof first,
                                  .ai_next = &rest};
    const int count = fill_queue(silent_port, sockets, CALLS);
    const double start = progress_now_seconds();
    const int made = hub_connect(&list, 1);
    const double took = progress_now_seconds() - start;
    for (int i = 0; i < count; i++)
        (void)close(sockets[i]);
    (void)close(silent);
    (void)close(open);
    assert_true(count < CALLS && made >= 0);
    assert_true(took > 0.4); /* the first address was waited for */
    (void)close(made);
}

static void note_notice(void *context, const char *text)
{
    note_loss(context, text, 0);
}

TEST(test_an_address_of_no_host_here_listens_everywhere_and_says_so)
{
    static const char *const addresses[] = {"203.0.113.7"};
    const uint16_t port = test_free_port();
    begin();
    options.hint.most_seconds = 10;
    options.hint.after_seconds = 100;
    options.hint.tell = note_notice;
    RankPlace first = host_place(0, 1, 2, port), second = host_place(1, 1, 2, port);
    (void)snprintf(first.address, sizeof first.address, "%s", addresses[0]);
    const pid_t a = rank_process_start(&first, only_open);
    const pid_t b = rank_process_start(&second, only_open);
    (void)rank_process_end(a);
    (void)rank_process_end(b);
    assert_true(report->status[0] == FSH_OK && report->status[1] == FSH_OK);
    assert_true(report->lost[0]); /* told */
}

static int with_other_secret(const RankPlace *place)
{
    options.secret = "other";
    return only_open(place);
}

static int with_secret(const RankPlace *place)
{
    options.secret = "open sesame";
    return only_open(place);
}

/* Runs the first host with one work, the second with another. */
static void run_two(RankPlace first, RankPlace second, RankWork work_of_first, RankWork work_of_second)
{
    const pid_t a = rank_process_start(&first, work_of_first),
                b = rank_process_start(&second, work_of_second);
    (void)rank_process_end(a);
    (void)rank_process_end(b);
}

TEST(test_a_shared_secret_keeps_those_out_who_do_not_know_it)
{
    uint16_t port = test_free_port();
    begin();
    options.hint.most_seconds = 1;
    run_two(host_place(0, 1, 2, port), host_place(1, 1, 2, port), with_secret, with_secret);
    assert_true(report->status[0] == FSH_OK && report->status[1] == FSH_OK);
    port = test_free_port();
    run_two(host_place(0, 1, 2, port), host_place(1, 1, 2, port), with_secret, with_other_secret);
    expect_message(1, FSH_ERR_USAGE, "FSHARD_SECRET differs");
    expect_message(0, FSH_ERR_PEER, "FSHARD_SECRET differs");
    port = test_free_port();
    run_two(host_place(0, 1, 2, port), host_place(1, 1, 2, port), only_open, with_secret);
    expect_message(1, FSH_ERR_USAGE, "FSHARD_SECRET differs");
}

TEST(test_hosts_that_were_started_otherwise_are_told)
{
    uint16_t port = test_free_port();
    RankPlace other = host_place(1, 1, 2, port);
    begin();
    options.hint.most_seconds = 1;
    other.run = 8;
    run_two(host_place(0, 1, 2, port), other, only_open, only_open);
    expect_message(1, FSH_ERR_USAGE, "is of another job");
    expect_message(0, FSH_ERR_PEER, "is of another job");
    port = test_free_port();
    run_two(host_place(0, 1, 2, port), host_place(1, 1, 3, port), only_open, only_open);
    expect_message(0, FSH_ERR_USAGE, "was started with 3 ranks in all, and the first host with 2");
    expect_message(1, FSH_ERR_USAGE, "was started with 3 ranks in all, and the first host with 2");
    port = test_free_port();
    run_two(host_place(0, 2, 4, port), host_place(1, 2, 4, port), only_open, only_open);
    expect_message(0, FSH_ERR_USAGE, "must follow each other");
    expect_message(1, FSH_ERR_USAGE, "must follow each other");
}

/* ---- strangers ---- */

/* Connects to the port, in so many tries. Returns the socket; -1: nobody listens. */
static int call_port(uint32_t host, uint16_t port, int tries)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(host)};
    for (int turn = 0; turn < tries; turn++) {
        const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (made >= 0 && connect(made, (const struct sockaddr *)&address, sizeof address) == 0)
            return made;
        (void)close(made);
        sleep_seconds(0.005);
    }
    return -1;
}

TEST(test_strangers_neither_end_nor_hold_up_a_meeting)
{
    enum { CALLS = 150 };
    static const char garbage[4096] = "GET / HTTP/1.1\r\nHost: fshard\r\n\r\n";
    const uint16_t port = test_free_port();
    const RankPlace first = host_place(0, 1, 2, port), second = host_place(1, 1, 2, port);
    int sockets[CALLS];
    begin();
    const pid_t a = rank_process_start(&first, combine);
    for (int i = 0; i < CALLS; i++) {
        sockets[i] = call_port(INADDR_LOOPBACK, port, 2000);
        assert_true(sockets[i] >= 0);
        if (i % 3 == 0) /* says too much; the others a part, or nothing */
            (void)send(sockets[i], garbage, sizeof garbage, MSG_NOSIGNAL);
        else if (i % 3 == 1)
            (void)send(sockets[i], "fshard\r\n", 8, MSG_NOSIGNAL);
    }
    const pid_t b = rank_process_start(&second, combine);
    assert_int_equal(rank_process_end(a), 0);
    assert_int_equal(rank_process_end(b), 0);
    for (int i = 0; i < CALLS; i++)
        (void)close(sockets[i]);
}

/* 127.0.0.2 is this machine too. */
TEST(test_the_port_is_open_on_the_given_address_alone)
{
    const uint16_t port = test_free_port();
    const RankPlace first = host_place(0, 1, 2, port);
    begin();
    const pid_t process = rank_process_start(&first, only_open);
    const int there = call_port(INADDR_LOOPBACK, port, 2000),
              elsewhere = call_port(INADDR_LOOPBACK + 1, port, 3);
    (void)kill(process, SIGKILL);
    (void)rank_process_end(process);
    assert_true(there >= 0);
    assert_int_equal(elsewhere, -1);
    (void)close(there);
}

static int come_late(const RankPlace *place)
{
    sleep_seconds(1);
    return combine(place);
}

TEST(test_a_host_may_come_late)
{
    uint16_t port = test_free_port();
    begin();
    run_two(host_place(0, 1, 2, port), host_place(1, 1, 2, port), combine, come_late);
    assert_true(report->status[0] == FSH_OK && report->status[1] == FSH_OK && report->seconds[0] > 0.9);
    port = test_free_port();
    run_two(host_place(0, 1, 2, port), host_place(1, 1, 2, port), come_late, combine);
    assert_true(report->status[0] == FSH_OK && report->status[1] == FSH_OK && report->seconds[1] > 0.9);
}

TEST(test_an_interrupt_ends_the_wait)
{
    const RankPlace place = host_place(0, 1, 2, test_free_port());
    begin();
    interrupt_install();
    interrupt_simulate(SIGTERM);
    (void)only_open(&place);
    assert_int_equal(report->status[0], FSH_ERR_INTERRUPTED);
}

/* ---- frames ---- */

static void prove(HubHello *hello, const HubChallenge *challenge, const char *secret)
{
    uint8_t bytes[sizeof *challenge + offsetof(HubHello, proof)];
    memcpy(bytes, challenge, sizeof *challenge);
    memcpy(bytes + sizeof *challenge, hello, offsetof(HubHello, proof));
    hub_proof_make(secret, bytes, sizeof bytes, hello->proof);
}

TEST(test_another_version_is_told_by_both_names)
{
    const RankPlace first = host_place(0, 2, 4, 1), second = host_place(2, 2, 4, 1);
    HubChallenge challenge, later;
    HubHello hello;
    char text[HUB_TEXT_MAX];
    FshError error = {0};
    assert_ok(hub_challenge_make(&challenge, &error), &error);
    assert_ok(hub_challenge_make(&later, &error), &error);
    assert_ok(hub_hello_make(&hello, &second, "gpu08", &challenge, "s", &error), &error);
    assert_int_equal(hub_hello_check(&hello, &first, &challenge, "s", text), HUB_WELL);
    /* what was said in one meeting is of no use in the next */
    assert_int_equal(hub_hello_check(&hello, &first, &later, "s", text), HUB_STRANGER);
    (void)snprintf(hello.version, sizeof hello.version, "0.0.1");
    assert_int_equal(hub_hello_check(&hello, &first, &challenge, "s", text), HUB_STRANGER);
    prove(&hello, &challenge, "s");
    assert_int_equal(hub_hello_check(&hello, &first, &challenge, "s", text), HUB_MISFIT);
    assert_contains(text, "host gpu08 has ftrain 0.0.1, and the first host ftrain " FSHARD_VERSION);
    hello.opening.protocol = 99;
    assert_int_equal(hub_hello_check(&hello, &first, &challenge, "s", text), HUB_STRANGER);
    assert_contains(text, "protocol 99");
}

TEST(test_a_first_host_without_the_secret_is_not_believed)
{
    const RankPlace second = host_place(2, 2, 4, 1);
    HubChallenge challenge;
    HubHello hello;
    HubWelcome welcome = {.verdict = HUB_TOGETHER, .host = 1, .host_count = 2};
    char text[HUB_TEXT_MAX];
    FshError error = {0};
    assert_ok(hub_challenge_make(&challenge, &error), &error);
    assert_ok(hub_hello_make(&hello, &second, "gpu08", &challenge, "s", &error), &error);
    hub_welcome_make(&welcome, &hello, "s");
    assert_int_equal(hub_welcome_check(&welcome, &hello, "s", text), HUB_WELL);
    hub_welcome_make(&welcome, &hello, "t");
    assert_int_equal(hub_welcome_check(&welcome, &hello, "s", text), HUB_STRANGER);
}

/* RFC 4231, test cases 2 and 6. */
TEST(test_proofs_are_those_of_the_standard)
{
    static const uint8_t second[HUB_PROOF_BYTES] = {
        0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
        0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    static const uint8_t sixth[HUB_PROOF_BYTES] = {
        0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26, 0xaa, 0xcb, 0xf5, 0xb7, 0x7f,
        0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28, 0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f, 0x0e, 0xe3, 0x7f, 0x54};
    uint8_t proof[HUB_PROOF_BYTES];
    char key[132] = {0};
    memset(key, 0xAA, sizeof key - 1);
    hub_proof_make("Jefe", "what do ya want for nothing?", 28, proof);
    assert_true(hub_proof_is(proof, second));
    hub_proof_make(key, "Test Using Larger Than Block-Size Key - Hash Key First", 54, proof);
    assert_true(hub_proof_is(proof, sixth));
    assert_false(hub_proof_is(proof, second));
}
