#include "trainer/ranks/hub_meeting.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/interrupt.h"
#include "common/progress.h"
#include "trainer/ranks/hub_sockets.h"

enum { PENDING_MAX = 64, LOOK_MILLISECONDS = 50 };
static const double hello_seconds = 5, port_seconds = 3, attempt_seconds = 3, answer_seconds = 2;

/* Who has connected, and has not said hello yet. */
typedef struct Pending {
    int socket;
    double until;
    char from[HUB_ADDRESS_TEXT_MAX];
    HubChallenge challenge;
    HubHello hello;
    size_t got; /* bytes of the hello */
} Pending;

/* A meeting of the first host. */
typedef struct Hall {
    const RankPlace *place;
    const char *secret;
    HubMeeting *meeting;
    int listening;
    Pending pending[PENDING_MAX];
    size_t pending_count;
    HubHello *hellos;                               /* of meeting->links */
    char note[HUB_TEXT_MAX + HUB_ADDRESS_TEXT_MAX]; /* about the last stranger; "": none */
} Hall;

/* How long a meeting may take. */
typedef struct Clock {
    double start, most;
    const CommunicatorHint *hint; /* NULL: it has been given, or there is none */
} Clock;

static Clock clock_of(const HubOptions *options)
{
    const CommunicatorHint *hint = &options->hint;
    return (Clock){.start = progress_now_seconds(),
                   .most = hint->most_seconds > 0 ? hint->most_seconds : COMMUNICATOR_HOSTS_SECONDS,
                   .hint = hint->tell ? hint : NULL};
}

static double seconds_left(const Clock *clock)
{
    return clock->start + clock->most - progress_now_seconds();
}

/* Looks for reasons to stop waiting on this host. */
static FshStatus look_here(const HubOptions *options, FshError *error)
{
    if (interrupt_requested())
        return fsh_error_set(error, FSH_ERR_INTERRUPTED, "interrupted while waiting for the other hosts");
    int signal_number = 0;
    return options->look ? options->look(options->context, &signal_number, error) : FSH_OK;
}

static void give_hint(Clock *clock, const char *text)
{
    if (!clock->hint || progress_now_seconds() - clock->start < clock->hint->after_seconds)
        return;
    clock->hint->tell(clock->hint->context, text);
    clock->hint = NULL;
}

/* ---- the first host: who is there ---- */

/* Returns the link that has the rank; NULL: none. */
static const HubLink *link_of(const HubMeeting *meeting, uint64_t rank)
{
    for (uint64_t i = 0; i < meeting->link_count; i++)
        if (rank >= meeting->links[i].first && rank - meeting->links[i].first < meeting->links[i].count)
            return &meeting->links[i];
    return NULL;
}

/* Writes the ranks that are missing to text: "2 to 3, 6". Returns how many they are. */
static uint64_t name_missing(const Hall *hall, char *text, size_t text_bytes)
{
    uint64_t count = 0;
    size_t length = 0;
    text[0] = '\0';
    for (uint64_t rank = hall->place->local_world; rank < hall->place->world_size && length < text_bytes;) {
        const uint64_t first = rank;
        while (rank < hall->place->world_size && !link_of(hall->meeting, rank))
            rank++;
        count += rank - first;
        if (rank > first + 1)
            length += (size_t)snprintf(text + length, text_bytes - length, "%s%" PRIu64 " to %" PRIu64,
                                       length ? ", " : "", first, rank - 1);
        else if (rank > first)
            length +=
                (size_t)snprintf(text + length, text_bytes - length, "%s%" PRIu64, length ? ", " : "", first);
        else
            rank++;
    }
    return count;
}

/* Tells a host that it cannot join, or why the meeting fails. */
static void refuse(const Hall *hall, int socket, const HubHello *hello, HubVerdict verdict, const char *text)
{
    HubWelcome welcome = {.verdict = verdict};
    if (verdict == HUB_INTERRUPTED)
        welcome.signal_number = (uint64_t)interrupt_signal();
    (void)snprintf(welcome.text, sizeof welcome.text, "%.*s", HUB_TEXT_MAX - 1, text);
    hub_welcome_make(&welcome, hello, hall->secret);
    hub_send_frame(socket, &welcome, sizeof welcome);
}

static void drop_pending(Hall *hall, size_t index)
{
    if (hall->pending[index].socket >= 0)
        (void)close(hall->pending[index].socket);
    hall->pending[index] = hall->pending[--hall->pending_count];
}

/* Lets a host go that has given up. */
static void drop_link(Hall *hall, uint64_t index)
{
    HubMeeting *meeting = hall->meeting;
    (void)close(meeting->links[index].socket);
    meeting->link_count--;
    meeting->links[index] = meeting->links[meeting->link_count];
    hall->hellos[index] = hall->hellos[meeting->link_count];
}

/* Fails the meeting on all hosts, with the same status where they wait as here. */
static FshStatus fail_all(Hall *hall, FshStatus status, const char *text, FshError *error)
{
    const HubVerdict verdict = status == FSH_ERR_USAGE         ? HUB_REFUSED
                               : status == FSH_ERR_INTERRUPTED ? HUB_INTERRUPTED
                                                               : HUB_FAILED;
    for (uint64_t i = 0; i < hall->meeting->link_count; i++)
        refuse(hall, hall->meeting->links[i].socket, &hall->hellos[i], verdict, text);
    return fsh_error_set(error, status, "%s", text);
}

/* Counts a host whose hello is well. */
static FshStatus admit(Hall *hall, Pending *pending, FshError *error)
{
    const HubHello *hello = &pending->hello;
    HubMeeting *meeting = hall->meeting;
    char text[HUB_TEXT_MAX];
    for (uint64_t rank = hello->first; rank < hello->first + hello->count; rank++) {
        const HubLink *other = rank < hall->place->local_world ? NULL : link_of(meeting, rank);
        if (rank >= hall->place->local_world && !other)
            continue;
        (void)snprintf(
            text, sizeof text,
            "host %.60s has ranks %" PRIu64 " to %" PRIu64 ", and rank %" PRIu64
            " is on host %.60s already: give each host a number of its own; the ranks of a host must "
            "follow each other (mpirun --map-by slot, srun --distribution block)",
            hello->host, hello->first, hello->first + hello->count - 1, rank,
            other ? other->host : hall->place->address);
        refuse(hall, pending->socket, hello, HUB_REFUSED, text);
        return fail_all(hall, FSH_ERR_USAGE, text, error);
    }
    HubLink *link = &meeting->links[meeting->link_count];
    *link = (HubLink){
        .socket = pending->socket, .first = hello->first, .count = hello->count, .process = hello->process};
    memcpy(link->host, hello->host, sizeof link->host);
    hall->hellos[meeting->link_count] = *hello;
    meeting->link_count++;
    pending->socket = -1; /* the link's now */
    return FSH_OK;
}

/* Takes a whole hello. */
static FshStatus take_hello(Hall *hall, size_t index, FshError *error)
{
    Pending *pending = &hall->pending[index];
    char text[HUB_TEXT_MAX];
    FshStatus status = FSH_OK;
    switch (hub_hello_check(&pending->hello, hall->place, &pending->challenge, hall->secret, text)) {
    case HUB_WELL:
        status = admit(hall, pending, error);
        break;
    case HUB_STRANGER:
        refuse(hall, pending->socket, &pending->hello, HUB_REFUSED, text);
        (void)snprintf(hall->note, sizeof hall->note, "%s: %s", pending->from, text);
        break;
    case HUB_MISFIT:
        refuse(hall, pending->socket, &pending->hello, HUB_REFUSED, text);
        status = fail_all(hall, FSH_ERR_USAGE, text, error);
        break;
    }
    drop_pending(hall, index);
    return status;
}

/* ---- the first host: serving ---- */

static size_t oldest_pending(const Hall *hall)
{
    size_t oldest = 0;
    for (size_t i = 1; i < hall->pending_count; i++)
        if (hall->pending[i].until < hall->pending[oldest].until)
            oldest = i;
    return oldest;
}

static void accept_some(Hall *hall)
{
    for (;;) {
        Pending pending = {.until = progress_now_seconds() + hello_seconds};
        pending.socket = hub_accept(hall->listening, pending.from);
        if (pending.socket < 0)
            return;
        if (hall->pending_count == PENDING_MAX)
            drop_pending(hall, oldest_pending(hall));
        if (hub_challenge_make(&pending.challenge, NULL) == FSH_OK)
            hub_send_frame(pending.socket, &pending.challenge, sizeof pending.challenge);
        hall->pending[hall->pending_count++] = pending;
    }
}

static FshStatus serve_pending(Hall *hall, FshError *error)
{
    for (size_t i = hall->pending_count; i-- > 0;) {
        Pending *pending = &hall->pending[i];
        const bool open =
            hub_read_some(pending->socket, &pending->hello, sizeof pending->hello, &pending->got);
        FshStatus status = FSH_OK;
        if (pending->got == sizeof pending->hello)
            status = take_hello(hall, i, error);
        else if (!open || progress_now_seconds() > pending->until) {
            (void)snprintf(hall->note, sizeof hall->note, "%s: connected, and said nothing that ftrain says",
                           pending->from);
            drop_pending(hall, i);
        }
        if (status)
            return status;
    }
    return FSH_OK;
}

/* Lets hosts go that have ended, or say what they must not. */
static void look_at_links(Hall *hall)
{
    for (uint64_t i = hall->meeting->link_count; i-- > 0;) {
        char byte;
        const ssize_t got = recv(hall->meeting->links[i].socket, &byte, 1, MSG_DONTWAIT);
        if (got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            drop_link(hall, i);
    }
}

static void wait_for_words(const Hall *hall)
{
    struct pollfd polled[1 + PENDING_MAX];
    polled[0] = (struct pollfd){.fd = hall->listening, .events = POLLIN};
    for (size_t i = 0; i < hall->pending_count; i++)
        polled[1 + i] = (struct pollfd){.fd = hall->pending[i].socket, .events = POLLIN};
    (void)poll(polled, 1 + hall->pending_count, LOOK_MILLISECONDS);
}

/* Fails the meeting for the ranks that are missing, if there are any. */
static FshStatus say_missing(Hall *hall, const Clock *clock, FshError *error)
{
    char text[1024], missing[160];
    const uint64_t count = name_missing(hall, missing, sizeof missing);
    if (count == 0)
        return FSH_OK;
    (void)snprintf(
        text, sizeof text,
        "rank%s %.120s of %" PRIu64
        " %s not come within %.0f seconds to port %u of '%.60s'; is ftrain started on every host%s%s",
        count > 1 ? "s" : "", missing, hall->place->world_size, count > 1 ? "have" : "has", clock->most,
        (unsigned)hall->place->port, hall->place->address,
        hall->note[0] ? "? The last that was turned away, " : "?", hall->note);
    return fail_all(hall, FSH_ERR_PEER, text, error);
}

/* Serves whoever comes until all hosts are there. */
static FshStatus gather(Hall *hall, Clock *clock, const HubOptions *options, FshError *error)
{
    char missing[160], text[320];
    FshStatus status = FSH_OK;
    for (uint64_t count; !status && (count = name_missing(hall, missing, sizeof missing)) > 0;) {
        (void)snprintf(text, sizeof text, "rank%s %s of %" PRIu64 " %s waited for, %.0f seconds at most",
                       count > 1 ? "s" : "", missing, hall->place->world_size, count > 1 ? "are" : "is",
                       clock->most);
        give_hint(clock, text);
        wait_for_words(hall);
        accept_some(hall);
        status = serve_pending(hall, error);
        look_at_links(hall);
        if (!status)
            status = look_here(options, error);
        if (status && status != FSH_ERR_USAGE && error)
            (void)fail_all(hall, status, error->message, NULL);
        if (!status && seconds_left(clock) < 0)
            status = say_missing(hall, clock, error);
    }
    return status;
}

static int compare_links(const void *a, const void *b)
{
    const HubHello *left = a, *right = b;
    return left->first < right->first ? -1 : 1;
}

/* Sorts the hosts by their ranks and tells them that all are there. */
static void welcome_all(Hall *hall)
{
    HubMeeting *meeting = hall->meeting;
    HubLink sorted[RANKS_MAX];
    char name[HUB_HOST_MAX] = "";
    (void)gethostname(name, sizeof name - 1);
    qsort(hall->hellos, meeting->link_count, sizeof *hall->hellos, compare_links);
    meeting->host_count = meeting->link_count + 1;
    for (uint64_t i = 0; i < meeting->link_count; i++) {
        HubWelcome welcome = {.verdict = HUB_TOGETHER,
                              .host = i + 1,
                              .host_count = meeting->host_count,
                              .process = (uint64_t)getpid()};
        sorted[i] = *link_of(meeting, hall->hellos[i].first);
        memcpy(welcome.name, name, sizeof name);
        hub_welcome_make(&welcome, &hall->hellos[i], hall->secret);
        hub_send_frame(sorted[i].socket, &welcome, sizeof welcome);
    }
    memcpy(meeting->links, sorted, meeting->link_count * sizeof *sorted);
}

/* Listens at the place. A port may still be that of an attempt of this run that is just ending. */
static FshStatus listen_there(Hall *hall, const HubOptions *options, FshError *error)
{
    const double most = clock_of(options).most;
    const double until = progress_now_seconds() + (most < port_seconds ? most : port_seconds);
    struct addrinfo *list = NULL;
    bool later = false, everywhere = false;
    char text[RANK_ADDRESS_MAX + 128];
    FshStatus status = hub_resolve(hall->place, &list, &later, error);
    while (!status) {
        status = hub_listen(hall->place, list, &hall->listening, &everywhere, error);
        if (status != FSH_ERR_USAGE || progress_now_seconds() > until || look_here(options, NULL))
            break;
        (void)poll(NULL, 0, LOOK_MILLISECONDS);
        status = FSH_OK;
    }
    if (list)
        freeaddrinfo(list);
    if (!status && everywhere && options->hint.tell) {
        (void)snprintf(text, sizeof text,
                       "'%s' is no address at which other hosts reach this one: port %u is open on all of "
                       "its addresses until "
                       "the hosts have met",
                       hall->place->address, (unsigned)hall->place->port);
        options->hint.tell(options->hint.context, text);
    }
    return status;
}

static FshStatus hold_as_first(HubMeeting *meeting, const RankPlace *place, const HubOptions *options,
                               FshError *error)
{
    Clock clock = clock_of(options);
    Hall *hall = calloc(1, sizeof *hall);
    HubHello *hellos = calloc(RANKS_MAX, sizeof *hellos);
    FshStatus status =
        hall && hellos ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for the hosts");
    if (!status) {
        *hall = (Hall){.place = place,
                       .secret = options->secret ? options->secret : "",
                       .meeting = meeting,
                       .listening = -1,
                       .hellos = hellos};
        status = listen_there(hall, options, error);
    }
    if (!status)
        status = gather(hall, &clock, options, error);
    if (!status)
        welcome_all(hall);
    while (hall && hall->pending_count > 0)
        drop_pending(hall, 0);
    if (hall && hall->listening >= 0)
        (void)close(hall->listening);
    free(hellos);
    free(hall);
    return status;
}

/* ---- the other hosts ---- */

/* One attempt to join. */
typedef struct Visit {
    const RankPlace *place;
    const HubOptions *options;
    const char *secret;
    HubMeeting *meeting;
    int socket;
    HubHello hello;
    HubWelcome welcome;
    char why[HUB_TEXT_MAX]; /* the last attempt has failed */
} Visit;

/* Reads a whole frame, for the rest of the meeting at most and answer_seconds more, in which the first host
 * may still say what is wrong. Returns FSH_OK with *open_ret false if the connection has ended. */
static FshStatus read_frame(Visit *visit, void *frame, size_t byte_count, double seconds, bool *open_ret,
                            FshError *error)
{
    const double until = progress_now_seconds() + seconds;
    size_t got = 0;
    FshStatus status = FSH_OK;
    *open_ret = true;
    while (!status && *open_ret && got < byte_count && progress_now_seconds() < until) {
        struct pollfd polled = {.fd = visit->socket, .events = POLLIN};
        (void)poll(&polled, 1, LOOK_MILLISECONDS);
        *open_ret = hub_read_some(visit->socket, frame, byte_count, &got);
        status = look_here(visit->options, error);
    }
    *open_ret = got == byte_count;
    return status;
}

/* Ends the meeting here as the first host has ended it. A signal that has come to it counts as if it had come
 * here. */
static FshStatus follow(const Visit *visit, FshError *error)
{
    const HubWelcome *welcome = &visit->welcome;
    const uint64_t signal_number = welcome->signal_number;
    FshStatus status = welcome->verdict == HUB_FAILED ? FSH_ERR_PEER : FSH_ERR_USAGE;
    if (welcome->verdict == HUB_INTERRUPTED)
        status = signal_number > 0 && signal_number < NSIG ? FSH_ERR_INTERRUPTED : FSH_ERR_PEER;
    if (status == FSH_ERR_INTERRUPTED && !interrupt_signal())
        interrupt_simulate((int)signal_number);
    return fsh_error_set(error, status, "the first host ('%.60s', port %u) ends the meeting: %s",
                         visit->place->address, (unsigned)visit->place->port, visit->why);
}

/* Takes the first host's answer. Returns FSH_OK without a host_count if another attempt may do better. */
static FshStatus take_welcome(Visit *visit, FshError *error)
{
    HubLink *link = visit->meeting->links;
    switch (hub_welcome_check(&visit->welcome, &visit->hello, visit->secret, visit->why)) {
    case HUB_STRANGER:
        return FSH_OK;
    case HUB_MISFIT:
        return follow(visit, error);
    case HUB_WELL:
        break;
    }
    *link = (HubLink){.socket = visit->socket, .first = 0, .process = visit->welcome.process};
    memcpy(link->host, visit->welcome.name, sizeof link->host);
    visit->socket = -1;
    visit->meeting->link_count = 1;
    visit->meeting->host_count = visit->welcome.host_count;
    return FSH_OK;
}

/* Speaks with what answers. Returns FSH_OK without a host_count if it is not the first host, or has gone. */
static FshStatus speak(Visit *visit, const Clock *clock, FshError *error)
{
    const double left = seconds_left(clock);
    HubChallenge challenge;
    char name[HUB_HOST_MAX] = "";
    bool open = false;
    (void)gethostname(name, sizeof name - 1);
    (void)snprintf(visit->why, sizeof visit->why, "what answers there says nothing that ftrain says");
    FshStatus status = read_frame(visit, &challenge, sizeof challenge,
                                  left < hello_seconds ? left : hello_seconds, &open, error);
    if (status || !open || !hub_challenge_check(&challenge, visit->why))
        return status;
    status = hub_hello_make(&visit->hello, visit->place, name, &challenge, visit->secret, error);
    if (status)
        return status;
    hub_send_frame(visit->socket, &visit->hello, sizeof visit->hello);
    (void)snprintf(visit->why, sizeof visit->why, "it answers, and waits for other hosts");
    status = read_frame(visit, &visit->welcome, sizeof visit->welcome, seconds_left(clock) + answer_seconds,
                        &open, error);
    return status || !open ? status : take_welcome(visit, error);
}

/* Tries once. */
static FshStatus visit_once(Visit *visit, const struct addrinfo *list, const Clock *clock, FshError *error)
{
    const double left = seconds_left(clock);
    visit->socket = hub_connect(list, left < attempt_seconds ? left : attempt_seconds);
    if (visit->socket < 0) {
        (void)snprintf(visit->why, sizeof visit->why, "%s", strerror(errno));
        return FSH_OK;
    }
    FshStatus status = speak(visit, clock, error);
    if (visit->socket >= 0)
        (void)close(visit->socket);
    return status;
}

static FshStatus join_first(HubMeeting *meeting, const RankPlace *place, const HubOptions *options,
                            FshError *error)
{
    Clock clock = clock_of(options);
    Visit visit = {.place = place,
                   .options = options,
                   .secret = options->secret ? options->secret : "",
                   .meeting = meeting,
                   .socket = -1};
    struct addrinfo *list = NULL;
    FshStatus status = FSH_OK;
    while (!status && meeting->host_count == 0 && seconds_left(&clock) > 0) {
        bool later = false;
        status = list ? FSH_OK : hub_resolve(place, &list, &later, error);
        if (!status)
            status = visit_once(&visit, list, &clock, error);
        else if (later && seconds_left(&clock) > 1)
            status = FSH_OK;
        if (!status)
            status = look_here(options, error);
        if (!status && meeting->host_count == 0)
            (void)poll(NULL, 0, 2 * LOOK_MILLISECONDS);
    }
    if (list)
        freeaddrinfo(list);
    if (status || meeting->host_count > 0)
        return status;
    return fsh_error_set(
        error, FSH_ERR_PEER,
        "the first host ('%s', port %u), where the ranks of all hosts meet, has not joined this "
        "one within %.0f seconds: %s; is rank 0 started there, and is the port open between the "
        "hosts?",
        place->address, (unsigned)place->port, clock.most, visit.why);
}

FshStatus hub_meeting_hold(HubMeeting *meeting, const RankPlace *place, const HubOptions *options,
                           FshError *error)
{
    meeting->link_count = 0;
    meeting->host_count = 0;
    return place->rank == 0 ? hold_as_first(meeting, place, options, error)
                            : join_first(meeting, place, options, error);
}
