#include "tests/trainer/plan_case.h"

#include <string.h>

Case make_case(Facts facts)
{
    Case made = {.options = train_options_default()};
    made.options.program.jobs = 4;
    made.split.sample_count = facts.train_count;
    made.data = (TrainingData){.kind = facts.pairs ? FSH_KIND_PAIRS : FSH_KIND_CLASSES,
                               .class_count = facts.pairs ? 0 : 10,
                               .width_min = facts.short_edge,
                               .height_min = facts.short_edge,
                               .width_max = 2 * facts.short_edge,
                               .height_max = facts.short_edge,
                               .channels = facts.channels,
                               .mean = {0.5, 0.25, 1},
                               .standard_deviation = {0.25, 0.25, 0.25},
                               .measured = true,
                               .short_edge = facts.short_edge,
                               .uniform = facts.uniform};
    return made;
}

FshStatus plan_case(Case *made)
{
    const Model *model = NULL;
    made->data.train = &made->split;
    made->data.evaluation = made->only_trains ? NULL : &made->split;
    FshStatus status = plan_model(&made->options, made->data.kind, &model, &made->error);
    return status ? status : plan_make(&made->plan, &made->options, model, &made->data, &made->error);
}

void give(Case *made, const char *name)
{
    Option rows[TRAIN_OPTION_ROWS];
    train_options_rows(&made->options, rows);
    for (Option *row = rows; row->name; row++)
        if (strcmp(row->name, name) == 0) {
            *row->given = true;
            return;
        }
    fail_msg("no option --%s", name);
}
