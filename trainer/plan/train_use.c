#include "trainer/plan/train_use.h"

#include <stdio.h>
#include <string.h>

unsigned train_use(const TrainOptions *options)
{
    return options->study.compare                                         ? USE_COMPARE
           : options->list_models || options->list_recipes                ? USE_LIST
           : options->inference.predict || options->inference.export_path ? USE_PREDICTS
           : options->inference.export_onnx                               ? USE_ONNX
           : options->inference.evaluate                                  ? USE_EVALUATE
           : options->data.bench_loader                                   ? USE_BENCH
           : options->program.dry_run                                     ? USE_DRY_RUN
                                                                          : USE_TRAIN;
}

const char *train_use_name(const TrainOptions *options)
{
    return options->study.compare           ? "--compare"
           : options->list_recipes          ? "--list-recipes"
           : options->list_models           ? "--list-models"
           : options->inference.predict     ? "--predict"
           : options->inference.export_path ? "--export"
           : options->inference.export_onnx ? "--export-onnx"
           : options->inference.evaluate    ? "--evaluate"
           : options->data.bench_loader     ? "--bench-loader"
           : options->program.dry_run       ? "--dry-run"
                                            : "training";
}

/* Returns what an option of these uses is for, where `use` does not read it. */
static const char *purpose(unsigned uses, unsigned use)
{
    return use == USE_IMAGES && (uses & USE_PREDICT) ? "datasets"
           : use == USE_ONNX && (uses & USE_PREDICT) ? "what runs the network"
           : uses & USE_TRAIN                        ? "training"
           : uses & USE_PREDICTS                     ? "--predict and --export"
                                                     : "--bench-loader";
}

/* Copies the value of an option from the same option of another struct. */
static void copy_value(const Option *to, const Option *from)
{
    static const size_t bytes[] = {
        [OPTION_FLAG] = sizeof(bool),         [OPTION_INTEGER] = sizeof(int64_t),
        [OPTION_SIZE] = sizeof(uint64_t),     [OPTION_REAL] = sizeof(double),
        [OPTION_TEXT] = sizeof(const char *), [OPTION_CHOICE] = sizeof(int),
    };
    memcpy(to->value, from->value, bytes[to->kind]);
}

FshStatus train_use_take(TrainOptions *options, unsigned use, FshError *error)
{
    char names[512] = "";
    const char *of = NULL; /* what all of them are for; "": they differ */
    size_t length = 0, count = 0;
    TrainOptions plain = train_options_default();
    Option rows[TRAIN_OPTION_ROWS], plain_rows[TRAIN_OPTION_ROWS];
    train_options_rows(options, rows);
    train_options_rows(&plain, plain_rows);
    for (size_t i = 0; rows[i].name; i++) {
        const Option *row = &rows[i];
        if (!row->uses || (row->uses & use))
            continue;
        if (!*row->typed) {
            if (row->kind == OPTION_LIST) /* its memory stays the option's */
                ((OptionList *)row->value)->count = 0;
            else
                copy_value(row, &plain_rows[i]);
            *row->given = false;
            continue;
        }
        const char *its = purpose(row->uses, use);
        if (length < sizeof names)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s--%s", count ? ", " : "",
                                       row->name);
        of = !count || of == its ? its : "";
        count++;
    }
    if (!count)
        return FSH_OK;
    return fsh_error_set(error, FSH_ERR_USAGE, "%s: %s nothing %s%s%s%s", names, count > 1 ? "do" : "does",
                         use == USE_TRAIN ? "here" : "with ",
                         use == USE_TRAIN    ? ""
                         : use == USE_IMAGES ? "images that nobody has packed"
                                             : train_use_name(options),
                         !*of        ? "; leave them out"
                         : count > 1 ? "; they are for "
                                     : "; it is for ",
                         of);
}
