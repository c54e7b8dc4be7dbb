#include "trainer/session/session_alike.h"

#include <stdio.h>
#include <string.h>

#include "common/progress.h"
#include "trainer/session/ranks_alike.h"
#include "trainer/session/ranks_weights.h"

/* Returns the dataset as a fact: its id, and the path, or its end, with the id. */
static json_t *dataset_fact(const TrainingData *data)
{
    enum { PATH_TOLD = 170 };
    char told[PATH_TOLD + 64];
    if (!data->dataset)
        return json_pack("[s, s]", "", "none");
    const char *path = fsh_path(data->dataset), *id = fsh_manifest(data->dataset)->id;
    const size_t length = strlen(path), from = length > PATH_TOLD ? length - PATH_TOLD : 0;
    (void)snprintf(told, sizeof told, "%s%s (id %.32s)", from ? "…" : "", path + from, id);
    return json_pack("[s, s]", id, told);
}

/* Returns the labels beside the dataset as a fact: their digest, and the path with it. */
static json_t *labels_fact(const TrainingLabels *labels)
{
    enum { PATH_TOLD = 170 };
    char told[PATH_TOLD + 64] = "none";
    if (labels->path)
        (void)snprintf(told, sizeof told, "%.*s (digest %s)", PATH_TOLD, labels->path, labels->digest);
    return json_pack("[s, s]", labels->digest, told);
}

FshStatus session_check_alike(const Session *session, FshError *error)
{
    const TrainPlan *plan = &session->plan;
    json_t *facts = json_pack(
        "{s:s, s:o, s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "version of ftrain",
        FSHARD_VERSION, "dataset", dataset_fact(&session->data), "file of labels",
        labels_fact(&session->data.labels), "choice of samples",
        session->data.choice.made ? session->data.choice.digest : "all", "network", plan->model->name,
        "device", train_device_name(plan->device), "precision", plan_amp_name(plan->recipe.compute_type),
        "set of fusions", (json_int_t)plan->recipe.fusions, "number of training samples",
        (json_int_t)plan->train_count, "number of samples to evaluate", (json_int_t)plan->evaluation_count,
        "batch size", (json_int_t)plan->train_spec.batch, "batch size of evaluation",
        (json_int_t)plan->evaluation_spec.batch, "image size of evaluation",
        (json_int_t)plan->evaluation_augmentation.size);
    return ranks_check_facts(session->communicator, facts, error);
}

FshStatus session_check_first_weights(Session *session, bool verbose, FshError *error)
{
    const double start = progress_now_seconds();
    FshStatus status =
        ranks_check_weights(session->communicator, session->network.state, network_graph(&session->network),
                            " at the start; --weights must name the same file on all hosts", error);
    if (!status && verbose && session->place.rank == 0)
        console_line(&session->console, "weights: the same on all ranks, compared in %.0f ms",
                     1000 * (progress_now_seconds() - start));
    return status;
}
