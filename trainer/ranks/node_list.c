#include "trainer/ranks/node_list.h"

#include <ctype.h>
#include <string.h>

enum { DIGITS_MAX = 9 };

/* Returns the length of the digits at text. */
static size_t digits_at(const char *text)
{
    size_t length = 0;
    while (isdigit((unsigned char)text[length]))
        length++;
    return length;
}

/* Copies the first number of a bracket, at text, to name from *length_ret on. Returns what follows the
 * bracket; NULL: it is no bracket of numbers, or does not fit. */
static const char *take_bracket(const char *text, char *name, size_t name_bytes, size_t *length_ret)
{
    const size_t digits = digits_at(text + 1);
    const size_t inside = strspn(text + 1, "0123456789-,");
    if (!digits || text[1 + inside] != ']' || *length_ret + digits >= name_bytes)
        return NULL;
    memcpy(name + *length_ret, text + 1, digits);
    *length_ret += digits;
    return text + inside + 2;
}

bool node_list_first(const char *list, char *name, size_t name_bytes)
{
    size_t length = 0;
    while (list && *list && *list != ',') {
        if (*list == '[')
            list = take_bracket(list, name, name_bytes, &length);
        else if (length + 1 < name_bytes && (isalnum((unsigned char)*list) || strchr("-._", *list)))
            name[length++] = *list++;
        else
            list = NULL;
    }
    if (!list)
        length = 0;
    if (name_bytes)
        name[length] = '\0';
    return length > 0;
}

/* Reads a number of at most DIGITS_MAX digits. Returns what follows it; NULL: there is none. */
static const char *take_number(const char *text, uint64_t *number_ret)
{
    const size_t digits = digits_at(text);
    *number_ret = 0;
    for (size_t i = 0; i < digits && digits <= DIGITS_MAX; i++)
        *number_ret = *number_ret * 10 + (uint64_t)(text[i] - '0');
    return digits && digits <= DIGITS_MAX ? text + digits : NULL;
}

/* Reads "2(x3)" or "2". Returns what follows; NULL: it is neither. */
static const char *take_group(const char *text, uint64_t *tasks_ret, uint64_t *hosts_ret)
{
    *hosts_ret = 1;
    text = take_number(text, tasks_ret);
    if (!text || strncmp(text, "(x", 2) != 0)
        return text;
    text = take_number(text + 2, hosts_ret);
    return text && *text == ')' && *hosts_ret ? text + 1 : NULL;
}

bool node_list_tasks(const char *list, uint64_t index, NodeTasks *tasks_ret)
{
    uint64_t tasks = 0, hosts = 0;
    *tasks_ret = (NodeTasks){0};
    for (;;) {
        list = take_group(list, &tasks, &hosts);
        if (!list || (*list && *list != ','))
            return false;
        if (index < hosts)
            break;
        index -= hosts;
        tasks_ret->before += hosts * tasks;
        if (!*list++)
            return false;
    }
    tasks_ret->before += index * tasks;
    tasks_ret->count = tasks;
    return true;
}
