/* Slurm's lists of hosts and of tasks. A host's name has no character that a name may not have; the tasks of
 * the hosts follow each other. */
#include <ctype.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "trainer/ranks/node_list.h"

static void try_names(const char *list)
{
    char name[40], small[6];
    if (node_list_first(list, name, sizeof name)) {
        fuzz_expect(name[0] != '\0' && strlen(name) < sizeof name, "a name is not empty, and fits");
        for (const char *at = name; *at; at++)
            fuzz_expect(isalnum((unsigned char)*at) || strchr("-._", *at) != NULL,
                        "a name has its characters");
        fuzz_expect(node_list_first(list, small, sizeof small) == (strlen(name) < sizeof small),
                    "a name that does not fit is refused");
    } else {
        fuzz_expect(name[0] == '\0', "no name is left");
    }
}

static void try_tasks(const char *list)
{
    NodeTasks tasks;
    uint64_t before = 0;
    for (uint64_t host = 0; host < 20 && node_list_tasks(list, host, &tasks); host++) {
        fuzz_expect(tasks.before == before, "the hosts follow each other");
        before += tasks.count;
    }
    (void)node_list_tasks(list, UINT64_MAX, &tasks);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    char *list = malloc(length + 1);
    fuzz_expect(list != NULL, "memory for the list");
    memcpy(list, bytes, length);
    list[length] = '\0';
    try_names(list);
    try_tasks(list);
    free(list);
    return 0;
}
