#include "trainer/ranks/rank_gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the number at *text and advances *text past it. Returns false if there is none, or one of over four
 * digits. */
static bool read_number(const char **text, int *number_ret)
{
    enum { DIGITS_MAX = 4 };
    size_t digits = 0;
    *number_ret = 0;
    while (digits <= DIGITS_MAX && isdigit((unsigned char)(*text)[digits]))
        digits++;
    if (digits == 0 || digits > DIGITS_MAX)
        return false;
    *number_ret = (int)strtol(*text, NULL, 10);
    *text += digits;
    return true;
}

static bool has_number(const RankGpus *gpus, int number)
{
    for (int i = 0; i < gpus->count; i++)
        if (gpus->numbers[i] == number)
            return true;
    return false;
}

/* Reads "0,2,5" or "2,". */
static FshStatus read_list(RankGpus *gpus, const char *text, FshError *error)
{
    gpus->listed = true;
    for (const char *at = text; *at;) {
        int number = 0;
        if (!read_number(&at, &number) || (*at && *at != ','))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--gpus: '%s' is no list: numbers of GPUs with one comma between two, "
                                 "as 0,2,5",
                                 text);
        if (has_number(gpus, number))
            return fsh_error_set(error, FSH_ERR_USAGE,
                                 "--gpus: '%s' names GPU %d twice; each rank takes a GPU of its own", text,
                                 number);
        if (gpus->count == RANKS_MAX)
            return fsh_error_set(error, FSH_ERR_USAGE, "--gpus: '%.40s…' names more than %d GPUs", text,
                                 RANKS_MAX);
        gpus->numbers[gpus->count++] = number;
        at += *at == ',';
    }
    return FSH_OK;
}

FshStatus rank_gpus_read(RankGpus *gpus, const char *text, FshError *error)
{
    const char *end = text;
    *gpus = (RankGpus){.all = strcmp(text, "all") == 0};
    if (gpus->all)
        return FSH_OK;
    if (strchr(text, ','))
        return read_list(gpus, text, error);
    const bool number = read_number(&end, &gpus->count) && !*end;
    if (number && gpus->count == 0)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--gpus: 0 would be no GPU at all; GPU 0 alone is --gpus 0, (a list, with its "
                             "comma), the processor --device cpu");
    if (!number || gpus->count > RANKS_MAX)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "--gpus: '%s' is neither a number from 1 to %d, nor all, nor a list as 0,2,5",
                             text, RANKS_MAX);
    return FSH_OK;
}

/* Refuses what is wanted, with the GPUs that there are. */
static FshStatus refuse(const char *wanted, int there, FshError *error)
{
    const char *shown = getenv("CUDA_VISIBLE_DEVICES");
    return fsh_error_set(error, FSH_ERR_MISMATCH,
                         "--gpus: %s, and there %s %d that this process may use%s%s%s", wanted,
                         there == 1 ? "is" : "are", there, shown ? " (CUDA_VISIBLE_DEVICES is " : "",
                         shown ? shown : "", shown ? ")" : "");
}

FshStatus rank_gpus_settle(RankGpus *gpus, int there, FshError *error)
{
    char wanted[64];
    gpus->there = there;
    if (gpus->all)
        gpus->count = there < RANKS_MAX ? there : RANKS_MAX;
    for (int i = 0; i < gpus->count; i++) {
        gpus->numbers[i] = gpus->listed ? gpus->numbers[i] : i;
        if (gpus->numbers[i] < there)
            continue;
        if (gpus->listed)
            (void)snprintf(wanted, sizeof wanted, "GPU %d is wanted (the first is 0)", gpus->numbers[i]);
        else
            (void)snprintf(wanted, sizeof wanted, "%d", gpus->count);
        return refuse(wanted, there, error);
    }
    return FSH_OK;
}

void rank_gpus_leave_out(RankGpus *gpus, int index)
{
    gpus->count--;
    memmove(&gpus->numbers[index], &gpus->numbers[index + 1],
            (size_t)(gpus->count - index) * sizeof *gpus->numbers);
    gpus->all = false;
    gpus->listed = true;
}
