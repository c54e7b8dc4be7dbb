#include "trainer/session/run_space.h"

#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/progress.h"
#include "common/text.h"
#include "trainer/checkpoint/state_file.h"
#include "trainer/report/run_record.h"

/* Tables, report and TensorBoard events of a run of some hundred epochs. */
static const uint64_t tables_bytes = UINT64_C(2) << 20;

RunSpace run_space_needed(const Session *session, const TrainOptions *options)
{
    const Graph *graph = network_graph(&session->network);
    RunSpace space = {
        .checkpoint_bytes = state_file_bytes(graph, STATE_ALL),
        .weights_bytes = state_file_bytes(graph, STATE_NETWORK),
        .weights_count = 1 + (session->data.evaluation != NULL) + options->update.model_ema +
                         (uint64_t)options->checkpoint.hist,
    };
    space.total_bytes = 2 * space.checkpoint_bytes + space.weights_count * space.weights_bytes + tables_bytes;
    return space;
}

FshStatus run_space_check(Session *session, const TrainOptions *options, const char *folder, FshError *error)
{
    const RunSpace space = run_space_needed(session, options);
    struct statvfs disk;
    char total[32], checkpoint[32], weights[32], free_text[32], text[sizeof((FshError *)NULL)->message];
    if (statvfs(folder, &disk) || disk.f_blocks == 0)
        return FSH_OK; /* unknown: a full disk will show when a file is written */
    const uint64_t held = record_held_bytes(folder);
    const uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize + held;
    if (space.total_bytes <= free_bytes)
        return FSH_OK;
    (void)snprintf(text, sizeof text,
                   "%s: the run needs %s there (its checkpoint %s, twice while it is replaced, %" PRIu64
                   " file%s of weights of %s, tables and report), and %s are free%s",
                   folder, progress_format_bytes(total, sizeof total, space.total_bytes),
                   progress_format_bytes(checkpoint, sizeof checkpoint, space.checkpoint_bytes),
                   space.weights_count, text_plural(space.weights_count),
                   progress_format_bytes(weights, sizeof weights, space.weights_bytes),
                   progress_format_bytes(free_text, sizeof free_text, free_bytes),
                   held ? " with the files that it replaces" : "");
    if (!options->force)
        return fsh_error_set(
            error, FSH_ERR_SYSTEM,
            "%s; make room, choose a folder on another disk, or use --force to train all the "
            "same",
            text);
    console_warning(&session->console, "%s; training begins all the same (--force)", text);
    return FSH_OK;
}
