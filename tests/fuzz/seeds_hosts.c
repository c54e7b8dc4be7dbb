/* Seeds of what several hosts tell each other, and of what Slurm tells them. */
#include <string.h>

#include "tests/fuzz/seeds.h"
#include "trainer/ranks/hub_frames.h"

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

void seeds_hosts(const char *root)
{
    write_lists(root);
    write_frames(root);
}
