#include "common/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* error.h defines them as macros for the analyzer. */
#undef fsh_error_set
#undef fsh_error_system
#undef fsh_error_prepend

static void format_message(FshError *error, const char *format, va_list arguments)
{
    /* vsnprintf cuts a message that is too long. */
    (void)vsnprintf(error->message, sizeof error->message, format, arguments);
}

FshStatus fsh_error_set(FshError *error, FshStatus status, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        format_message(error, format, arguments);
        va_end(arguments);
        error->status = status;
        error->system_errno = 0;
    }
    return status;
}

static FshStatus status_of_errno(int system_errno)
{
    switch (system_errno) {
    case ENOSPC:
    case EDQUOT:
        return FSH_ERR_NO_SPACE;
    case ENOENT:
    case ENOTDIR:
        return FSH_ERR_NOT_FOUND;
    case EEXIST:
    case ENOTEMPTY:
        return FSH_ERR_EXISTS;
    case ENOMEM:
        return FSH_ERR_MEMORY;
    default:
        return FSH_ERR_SYSTEM;
    }
}

FshStatus fsh_error_system(FshError *error, int system_errno, const char *format, ...)
{
    FshStatus status = status_of_errno(system_errno);
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        format_message(error, format, arguments);
        va_end(arguments);
        size_t length = strlen(error->message);
        char text[128];
        /* GNU strerror_r: thread-safe, returns the text, in `text` or static. */
        (void)snprintf(error->message + length, sizeof error->message - length, ": %s",
                       strerror_r(system_errno, text, sizeof text));
        error->status = status;
        error->system_errno = system_errno;
    }
    return status;
}

FshStatus fsh_error_prepend(FshError *error, const char *format, ...)
{
    if (!error)
        return FSH_ERR_LIBRARY;
    char tail[sizeof error->message];
    memcpy(tail, error->message, sizeof tail);
    va_list arguments;
    va_start(arguments, format);
    format_message(error, format, arguments);
    va_end(arguments);
    size_t length = strlen(error->message);
    (void)snprintf(error->message + length, sizeof error->message - length, ": %s", tail);
    return error->status;
}

void fsh_error_advise(FshError *error, const char *format, ...)
{
    if (!error)
        return;
    const size_t length = strlen(error->message);
    (void)snprintf(error->message + length, sizeof error->message - length, "; ");
    const size_t begin = strlen(error->message);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error->message + begin, sizeof error->message - begin, format, arguments);
    va_end(arguments);
}

const char *fsh_strerror(FshStatus status)
{
    switch (status) {
    case FSH_OK:
        return "success";
    case FSH_ERR_USAGE:
        return "wrong usage";
    case FSH_ERR_SYSTEM:
        return "system call failed";
    case FSH_ERR_MEMORY:
        return "out of memory";
    case FSH_ERR_NOT_FOUND:
        return "not found";
    case FSH_ERR_EXISTS:
        return "exists already";
    case FSH_ERR_CORRUPT:
        return "corrupt data";
    case FSH_ERR_UNSUPPORTED:
        return "not supported";
    case FSH_ERR_NO_SPACE:
        return "no space left";
    case FSH_ERR_MISMATCH:
        return "does not fit the job";
    case FSH_ERR_LIBRARY:
        return "library failure";
    case FSH_ERR_INTERRUPTED:
        return "interrupted";
    case FSH_ERR_PEER:
        return "another process has failed";
    }
    return "unknown status";
}

int fsh_exit_status(FshStatus status)
{
    switch (status) {
    case FSH_OK:
        return 0;
    case FSH_ERR_USAGE:
        return 2;
    case FSH_ERR_INTERRUPTED:
        return 130;
    default:
        return 1;
    }
}
