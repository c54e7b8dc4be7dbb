/* train_profile.c - ftrain --profile: measures N steps in the middle of training layer by layer, and writes
 * PROFILE.txt. */
#include "trainer/loop/train_internal.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "common/text.h"
#include "trainer/report/profile.h"

void training_plan_profile(Training *training, uint64_t steps)
{
    const TrainPlan *plan = &training->session.plan;
    const uint64_t total = plan->total_steps, done = training->state.steps_done;
    training->profile_count = steps < total - done ? steps : total - done;
    training->profile_first = (total - steps) / 2; /* plan_check: there are at least that many */
    if (training->profile_first < done)            /* the middle is over: begin at once */
        training->profile_first = done;
}

bool training_profiles(const Training *training, uint64_t step)
{
    return step >= training->profile_first && step - training->profile_first < training->profile_count;
}

static FshStatus print_profile(const Training *training, NetworkProgram *part, const Profile *profile,
                               FILE *stream)
{
    const Session *session = &training->session;
    const RunState *state = &training->state;
    const BackendRates *rates = &profile->rates;
    const DataType type = session->plan.recipe.compute_type;
    const double before = training->profile_before_count
                              ? training->profile_before / (double)training->profile_before_count
                              : 0;
    (void)fprintf(stream,
                  "%s, %" PRIu64 " step%s of %lld image%s of %lld x %lld pixels, %s: steps %" PRIu64
                  " to %" PRIu64 " of the run\n%s\n",
                  session->plan.model->name, part->measured_runs, text_plural(part->measured_runs),
                  (long long)part->spec.batch, text_plural((uint64_t)part->spec.batch),
                  (long long)part->spec.height, (long long)part->spec.width, data_type_name(type),
                  state->steps_done - training->profile_count, state->steps_done - 1,
                  backend_description(session->network.backend));
    (void)fprintf(
        stream,
        "A layer's floor is the longer of two times: its inputs and outputs once through memory at %.0f GB/s "
        "(measured: a copy, read and written), its operations at %.3g TFLOP/s (measured: a product of %s).\n",
        rates->bytes_per_second / 1e9, rates->product_flops_per_second / 1e12, data_type_name(type));
    if (before > 0)
        (void)fprintf(stream, "Steps that were not measured took %.3f ms, waiting for data included.\n",
                      1e3 * before);
    (void)fprintf(stream, "\n");
    profile_print(profile, stream);
    return ferror(stream) ? FSH_ERR_MEMORY : FSH_OK;
}

static FshStatus write_profile(Training *training, NetworkProgram *part, const Profile *profile,
                               FshError *error)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    FshStatus status = stream ? print_profile(training, part, profile, stream) : FSH_ERR_MEMORY;
    if (stream && fclose(stream))
        status = FSH_ERR_MEMORY;
    if (status)
        (void)fsh_error_set(error, status, "%s: out of memory", record_profile_name);
    if (!status)
        status = record_path(&training->record, path, sizeof path, record_profile_name, error);
    if (!status)
        status = file_write_atomic(path, text, length, true, true, error);
    free(text);
    return status;
}

/* Returns the program that was measured first; if image sizes change in between, the others are left out. */
static NetworkProgram *measured_program(Network *network)
{
    for (size_t i = 0; i < network->plan->edge_count; i++)
        if (network->train[i].measured_runs)
            return &network->train[i];
    return NULL;
}

static FshStatus tell_profile(Training *training, NetworkProgram *part, FshError *error)
{
    Session *session = &training->session;
    const size_t node_count = graph_node_count(part->graph);
    BackendRates rates = {0};
    Profile profile = {0};
    char text[512];
    double *seconds = calloc(node_count + 1, sizeof *seconds);
    FshStatus status = seconds ? FSH_OK : fsh_error_set(error, FSH_ERR_MEMORY, "out of memory for a profile");
    if (!status)
        status = program_profile(part->program, false, seconds, node_count, error);
    if (!status)
        status = backend_rates(session->network.backend, session->plan.recipe.compute_type, &rates, error);
    if (!status)
        status = profile_make(&profile, part->graph, seconds, part->measured_runs, &rates, error);
    if (!status)
        status = write_profile(training, part, &profile, error);
    if (!status)
        console_line(&session->console, "profile: a step is %s; %s/%s has the layers",
                     profile_summary(&profile, text, sizeof text), training->record.folder,
                     record_profile_name);
    profile_free(&profile);
    free(seconds);
    return status;
}

void training_end_profile(Training *training)
{
    FshError error = {0};
    NetworkProgram *part = measured_program(&training->session.network);
    if (part && training_writes(training))
        training_warn_of(training, tell_profile(training, part, &error), &error);
}
