/* session_cache.c - brings the pixels of a session's splits into memory, together with the other ranks. */
#include "common/cpu.h"
#include "trainer/session/session.h"

static FshStatus measure_sources(Session *session, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; i < 2 && !status; i++)
        if (session->sources[i])
            status = pixel_source_measure(session->sources[i], error);
    return status;
}

/* Checks that the decoded splits fit this host's free memory. Called between two agreements: all ranks know
 * what they want, and none has taken it yet. */
static FshStatus check_room(const Session *session, FshError *error)
{
    const Communicator *communicator = session->communicator;
    const PixelSource *const *sources = (const PixelSource *const *)session->sources;
    const uint64_t ranks = communicator ? communicator_place(communicator)->local_world : 1;
    const uint64_t copies = session->team.why[0] ? ranks : 1; /* else the ranks share one */
    uint64_t bytes = 0;
    if (__builtin_add_overflow(pixel_source_ram_bytes(sources[0]), pixel_source_ram_bytes(sources[1]),
                               &bytes))
        bytes = UINT64_MAX;
    return bytes ? pixel_source_check_room(sources[0] ? sources[0] : sources[1], bytes, copies,
                                           cpu_free_memory_bytes(ranks), error)
                 : FSH_OK;
}

/* Tells if the ranks of a host cannot share what they decode. */
static void tell_unshared(Session *session)
{
    if (session->plan.rank == 0 && session->team.why[0])
        console_warning(&session->console,
                        "the ranks of a host cannot share memory (%s): each decodes all images, for itself",
                        session->team.why);
}

static FshStatus load_sources(Session *session, FshError *error)
{
    FshStatus status = FSH_OK;
    for (int i = 0; i < 2 && !status; i++) {
        char line[512] = "";
        if (session->sources[i])
            status = pixel_source_load(session->sources[i], error);
        if (session->sources[i] && !status)
            status = pixel_source_tell(session->sources[i], line, sizeof line, error);
        if (*line)
            console_line(&session->console, "%s", line);
    }
    return status;
}

/* After each phase all ranks exchange their status: a failing rank keeps its message, the others report that
 * one failed. */
FshStatus session_cache_measure(Session *session, FshError *error)
{
    return ranks_agree(session->communicator, measure_sources(session, error), error);
}

FshStatus session_cache_load(Session *session, FshError *error)
{
    Communicator *communicator = session->communicator;
    tell_unshared(session);
    FshStatus status = ranks_agree(communicator, check_room(session, error), error);
    if (!status)
        status = ranks_agree(communicator, load_sources(session, error), error);
    return status;
}

FshStatus session_cache(Session *session, FshError *error)
{
    FshStatus status = session_cache_measure(session, error);
    return status ? status : session_cache_load(session, error);
}
