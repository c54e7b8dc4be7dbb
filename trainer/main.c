/* ftrain: trains an image classifier on a dataset that fpack made. */
#include <string.h>

#include "common/program.h"
#include "imaging/decode.h"
#include "trainer/loop/describe.h"
#include "trainer/loop/options.h"
#include "trainer/loop/train.h"

/* SHARDS and OUTPUT, given as arguments or as options, but not as both. */
static FshStatus take_arguments(TrainOptions *options, const OptionArguments *arguments, FshError *error)
{
    size_t next = 0;
    if (!options->shards && next < arguments->count)
        options->shards = arguments->items[next++];
    if (!options->output && next < arguments->count)
        options->output = arguments->items[next++];
    if (next < arguments->count)
        return fsh_error_set(error, FSH_ERR_USAGE,
                             "'%s': one argument too many: SHARDS and OUTPUT are known already",
                             arguments->items[next]);
    return FSH_OK;
}

static FshStatus check_complete(const TrainOptions *options, FshError *error)
{
    if (!options->shards)
        return fsh_error_set(error, FSH_ERR_USAGE, "SHARDS is missing: ftrain SHARDS OUTPUT");
    if (options->evaluate && !options->weights)
        return fsh_error_set(error, FSH_ERR_USAGE, "--evaluate needs --weights FILE");
    if (options->evaluate && options->output)
        return fsh_error_set(error, FSH_ERR_USAGE, "'%s': --evaluate writes nothing; leave OUTPUT out",
                             options->output);
    if (!options->evaluate && !options->program.dry_run && !options->output)
        return fsh_error_set(error, FSH_ERR_USAGE, "OUTPUT is missing: ftrain SHARDS OUTPUT");
    return FSH_OK;
}

static FshStatus run(const ProgramContext *context, bool *partial_ret, FshError *error)
{
    TrainOptions *options = context->settings;
    FshStatus status = take_arguments(options, context->arguments, error);
    if (status)
        return status;
    if (options->list_models)
        return describe_models(options, error);
    status = check_complete(options, error);
    if (status)
        return status;
    if (options->program.dry_run)
        return describe_run(options, error);
    if (options->evaluate)
        return train_evaluate(options, partial_ret, error);
    return train_run(options, partial_ret, error);
}

int main(int argc, char **argv)
{
    TrainOptions options = train_options_default();
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&options, rows);
    const OptionTable table = {.program = "ftrain",
                               .summary = train_summary,
                               .usage = train_usage,
                               .options = rows,
                               .examples = train_examples,
                               .arguments_max = 2};
    /* Naming libvips loads it, which takes longer than all else at the start: only where it is asked for. */
    char versions[160];
    const bool asked = argc == 2 && strcmp(argv[1], "--version") == 0;
    return program_main(argc, argv, &table, &options,
                        asked ? image_library_versions(versions, sizeof versions) : NULL, run);
}
