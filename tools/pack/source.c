#include "tools/pack/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

FshStatus source_read_start(const char *root, const char *path, size_t most, Buffer *buffer, FshError *error)
{
    char full[PATH_MAX];
    buffer->length = 0;
    FshStatus status = file_join(full, sizeof full, root, path, error);
    if (!status)
        status = buffer_reserve(buffer, most, error);
    if (status)
        return status;
    /* O_NONBLOCK: a pipe put in the file's place since the walk must not hold us. */
    int descriptor = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return fsh_error_system(error, errno, "%s: cannot open", full);
    while (buffer->length < most && !status) {
        ssize_t got = read(descriptor, buffer->bytes + buffer->length, most - buffer->length);
        if (got == 0)
            break;
        if (got > 0)
            buffer->length += (size_t)got;
        else if (errno != EINTR)
            status = fsh_error_system(error, errno, "%s: cannot read", full);
    }
    (void)close(descriptor);
    return status;
}

FshStatus source_read(const char *root, const char *path, Buffer *buffer, FshError *error)
{
    char full[PATH_MAX];
    FshStatus status = file_join(full, sizeof full, root, path, error);
    return status ? status : file_read(full, buffer, error);
}
