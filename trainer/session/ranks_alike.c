#include "trainer/session/ranks_alike.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/plan/deciding_options.h"
#include "trainer/session/ranks_agree.h"

enum { SENTENCE_BYTES = 700, TEXT_BYTES_MAX = 1 << 20 };

/* Sets *first_ret to the text of rank 0 on every rank; owned by the caller. `mine` is this rank's. */
static FshStatus share_first(Communicator *communicator, const char *mine, char **first_ret, FshError *error)
{
    uint64_t bytes = strlen(mine) + 1;
    *first_ret = NULL;
    FshStatus status = communicator_broadcast(communicator, 0, &bytes, sizeof bytes, error);
    if (!status && bytes > TEXT_BYTES_MAX)
        status =
            fsh_error_set(error, FSH_ERR_USAGE, "the texts among the options are too long for several ranks");
    if (status)
        return status;
    char *text = calloc(1, bytes > strlen(mine) ? bytes : strlen(mine) + 1);
    if (!text)
        return fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the options of the ranks");
    memcpy(text, mine, strlen(mine)); /* what is broadcast, on rank 0 */
    status = communicator_broadcast(communicator, 0, text, bytes, error);
    text[bytes - 1] = '\0';
    if (status)
        free(text);
    else
        *first_ret = text;
    return status;
}

/* Replaces the facts that are pairs of texts by what is told of them where they differ, and removes those
 * that do not. */
static void choose_told(json_t *mine, json_t *theirs)
{
    void *next;
    const char *name;
    json_t *fact;
    json_object_foreach_safe(mine, next, name, fact)
    {
        json_t *other = json_object_get(theirs, name);
        if (!json_is_array(fact) || !json_is_array(other))
            continue;
        const bool same = json_equal(json_array_get(fact, 0), json_array_get(other, 0));
        json_t *own_told = json_incref(json_array_get(fact, 1)),
               *told = json_incref(json_array_get(other, 1));
        if (same) {
            json_decref(own_told);
            json_decref(told);
            (void)json_object_del(mine, name);
            continue;
        }
        (void)json_object_set_new(theirs, name, told);
        (void)json_object_set_new(mine, name, own_told);
    }
}

/* Compares `mine`, which it may change, with the object of rank 0. before: the word in front of a name. */
static FshStatus compare(Communicator *communicator, json_t *mine, const char *before, bool dashes,
                         FshError *error)
{
    char was[48], sentence[SENTENCE_BYTES] = "";
    char *text = json_dumps(mine, JSON_COMPACT | JSON_REAL_PRECISION(17)), *first = NULL;
    FshStatus status =
        text ? share_first(communicator, text, &first, error)
             : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the options of the ranks");
    if (!status) {
        json_t *theirs = json_loads(first, 0, NULL);
        (void)snprintf(was, sizeof was, " on rank %" PRIu64 " and ", communicator_place(communicator)->rank);
        const DifferenceWords words = {before, " is ", was, " on rank 0", dashes};
        choose_told(mine, theirs);
        deciding_differences(&(DecidedOptions){.options = mine}, &(DecidedOptions){.options = theirs}, NULL,
                             &words, sentence, sizeof sentence);
        json_decref(theirs);
        status = ranks_share_text(communicator, sentence, sizeof sentence, error);
    }
    free(first);
    free(text);
    if (!status && sentence[0]) {
        status = fsh_error_set(error, FSH_ERR_USAGE,
                               "the ranks were not started alike: %s; start all with the same arguments",
                               sentence);
        ranks_leave_to_first(communicator, error);
    }
    return status;
}

FshStatus ranks_check_options(Communicator *communicator, const TrainOptions *options, FshError *error)
{
    if (!communicator)
        return FSH_OK;
    json_t *mine = deciding_options_of_ranks(options);
    FshStatus status = mine ? compare(communicator, mine, "--", true, error)
                            : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the options");
    json_decref(mine);
    return status;
}

FshStatus ranks_check_facts(Communicator *communicator, json_t *facts, FshError *error)
{
    FshStatus status =
        facts ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a comparison");
    if (!status && communicator)
        status = compare(communicator, facts, "the ", false, error);
    json_decref(facts);
    return status;
}
