/* Seeds of what several hosts tell each other, and of what Slurm tells them. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/seeds.h"
#include "trainer/ranks/hub_sockets.h"
#include "trainer/ranks/hub_wire.h"

static void write_lists(const char *root)
{
    static const struct {
        const char *name, *text;
    } lists[] = {{"one", "gpu07"},
                 {"range", "gpu[07-09,11],login"},
                 {"racks", "rack[1-2]n[03,5]-ib.cluster"},
                 {"tasks", "2(x3),1,4(x12)"},
                 {"same", "8"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        seed_write(root, "node_list", lists[i].name, lists[i].text, strlen(lists[i].text));
}

static void write_frames(const char *root)
{
    const RankPlace second = {.rank = 2, .world_size = 8, .local_world = 6, .run = 7};
    const HubChallenge challenge = {0};
    const HubHello asked = {.run = 7};
    HubHello hello;
    HubWelcome welcome = {.verdict = HUB_TOGETHER, .host = 1, .host_count = 2, .name = "gpu07"};
    HubWelcome refusal = {.verdict = HUB_REFUSED, .text = "host gpu08 is of another job"};
    seed_need(hub_hello_make(&hello, &second, "gpu08", &challenge, "open sesame", NULL) == FSH_OK, "a hello");
    hub_welcome_make(&welcome, &asked, "open sesame");
    hub_welcome_make(&refusal, &asked, "open sesame");
    seed_write(root, "hub", "hello", &hello, sizeof hello);
    seed_write(root, "hub", "welcome", &welcome, sizeof welcome);
    seed_write(root, "hub", "refusal", &refusal, sizeof refusal);
}

/* Writes what a host says in a run: messages with and without bytes, a loss, and that it leaves. */
static void write_talk(const char *root)
{
    enum { BYTES = 70000, TALK_MAX = 2 * BYTES };
    static char message[BYTES], talk[1 + TALK_MAX];
    static const char loss[HUB_TEXT_MAX] = "rank 5 of 9 has fallen";
    const HubSubject said[] = {{.operation = 1, .meaning = 1, .byte_count = BYTES, .has_bytes = 1},
                               {.operation = 2, .meaning = 2, .byte_count = 8, .has_bytes = 1},
                               {.operation = 3, .meaning = 2, .byte_count = 8}};
    HubWire wire;
    int ends[2];
    size_t got = 1;
    seed_need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "sockets");
    const HubLink link = {.socket = ends[0]};
    seed_need(hub_wire_open(&wire, &link, NULL) == FSH_OK, "a wire");
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        hub_wire_put(&wire, said[i], message);
        wire.tells_loss = i == 1;
        wire.tells_leave = i == 2;
        do {
            hub_wire_write(&wire, loss, 15);
            (void)hub_read_some(ends[1], talk, sizeof talk, &got);
        } while (hub_wire_has_output(&wire));
        (void)hub_read_some(ends[1], talk, sizeof talk, &got);
    }
    (void)close(ends[1]);
    hub_wire_close(&wire);
    seed_write(root, "hub_wire", "talk", talk, got);
    seed_write(root, "hub_wire", "end", talk + BYTES, got - BYTES);
}

void seeds_hosts(const char *root)
{
    write_lists(root);
    write_frames(root);
    write_talk(root);
}
