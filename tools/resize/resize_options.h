/* resize_options.h - what fresize is asked to do. */
#ifndef FSHARD_RESIZE_OPTIONS_H
#define FSHARD_RESIZE_OPTIONS_H

#include "tools/job/part.h"
#include "imaging/shrink.h"
#include "tools/resize/resize_source.h"

typedef struct ResizeOptions {
    ResizeSourceOptions source;
    const char *destination; /* a folder, or a tar if the name ends in ".tar" */
    const char *labels;      /* the file that source.labels came from; NULL: none */
    const char *report;      /* JSON lines; NULL: none */
    ShrinkRecipe recipe;
    Part part;
    bool link;  /* small enough images become hard links of their sources */
    bool force; /* write everything anew */
    bool dry_run;
    bool quiet;
    bool verbose;       /* tell of every image that is left out */
    bool fail_on_error; /* stop at the first image that cannot be read */
    bool skip_unread;   /* the destination is finished without what the system could not read */
    int jobs;
} ResizeOptions;

#endif
