#include "trainer/report/report_options.h"

#include <string.h>

ReportOptions report_options_default(void)
{
    return (ReportOptions){.log_interval = 50, .tensorboard = true, .html = true, .verdict = true};
}

/* clang-format off */
size_t report_options_rows(ReportOptions *o, Option *rows)
{
    const Option own[] = {
        {.name = "log-interval", .kind = OPTION_INTEGER, .value = &o->log_interval, .argument = "N",
         .group = "Log and report",
         .minimum = 1, .maximum = 1e9, .alias = "print-freq",
         .marks = OPTION_FREE | OPTION_ALIKE,
         .help = "steps between two lines of the log"},
        {.name = "profile", .kind = OPTION_INTEGER, .value = &o->profile, .argument = "N", .maximum = 1e6,
         .marks = OPTION_FREE | OPTION_ALIKE, .uses = USE_TRAIN,
         .help = "measure N steps in the middle of training layer by layer, into PROFILE.txt; 0: none"},
        {.name = "tensorboard", .kind = OPTION_FLAG, .value = &o->tensorboard, .marks = OPTION_FREE,
         .help = "write event files for TensorBoard"},
        {.name = "html", .kind = OPTION_FLAG, .value = &o->html, .marks = OPTION_FREE,
         .help = "write report.html while the run goes on, and at its end"},
        {.name = "verdict", .kind = OPTION_FLAG, .value = &o->verdict, .marks = OPTION_FREE,
         .help = "say at the end what bounded the speed, and what to do about it"},
    };
    memcpy(rows, own, sizeof own);
    return sizeof own / sizeof *own;
}
/* clang-format on */
