#include "trainer/loop/run_output.h"

#include <errno.h>
#include <unistd.h>

#include "common/file.h"
#include "trainer/session/run_resume.h"
#include "trainer/report/run_record.h"

bool run_output_goes_on(const TrainOptions *options, const char *checkpoint)
{
    return checkpoint[0] && run_resume_lies_in(checkpoint, options->output);
}

bool run_output_may_empty(const TrainOptions *options, const char *checkpoint)
{
    return options->force ||
           (options->checkpoint.resume && !checkpoint[0] && record_has_only_begun(options->output));
}

/* Returns FSH_OK if the run may write to the folder as it is. */
static FshStatus judge_output(const TrainOptions *options, const char *checkpoint, FshError *error)
{
    return run_output_goes_on(options, checkpoint)
               ? FSH_OK
               : record_check_folder(options->output, run_output_may_empty(options, checkpoint), error);
}

static FshStatus make_output(const TrainOptions *options, bool *made_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    if (!file_exists(options->output)) {
        status = file_make_folders(options->output, error);
        *made_ret = !status;
    }
    if (!status && access(options->output, W_OK | X_OK))
        status = fsh_error_system(error, errno, "%s: cannot be written to", options->output);
    return status;
}

void run_output_warn(Console *console, const FolderLock *lock, const char *folder)
{
    if (lock->descriptor >= 0 && !lock->guards)
        console_warning(console, "%s: its file system knows no locks: nothing keeps a second run out of it",
                        folder);
}

FshStatus run_output_claim(FolderLock *lock, Console *console, const TrainOptions *options,
                           const char *checkpoint, bool *made_ret, FshError *error)
{
    FshStatus status = FSH_OK;
    if (record_has_lock(options->output))
        status = folder_lock_take(lock, options->output, record_lock_name, "ftrain", error);
    if (!status)
        status = judge_output(options, checkpoint, error);
    if (!status)
        status = make_output(options, made_ret, error);
    if (!status && lock->descriptor < 0) {
        status = folder_lock_take(lock, options->output, record_lock_name, "ftrain", error);
        if (!status)
            status = judge_output(options, checkpoint, error);
    }
    if (!status)
        run_output_warn(console, lock, options->output);
    return status;
}
