#include "tools/pack/pack_source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

FshStatus source_open(const char *root, int *descriptor_ret, FshError *error)
{
    *descriptor_ret = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return *descriptor_ret < 0 ? fsh_error_system(error, errno, "%s: cannot open the folder", root) : FSH_OK;
}

/* Reads until `most` bytes are there or the file ends. It has ended too when a read comes back short at
 * exactly `expected` bytes: asking again for nothing would be a fourth system call for each file. */
static FshStatus read_up_to(int folder, const char *path, size_t most, uint64_t expected, Buffer *buffer,
                            FshError *error)
{
    buffer->length = 0;
    FshStatus status = buffer_reserve(buffer, most, error);
    if (status)
        return status;
    /* O_NONBLOCK: a pipe put in the file's place since the walk must not hold us. */
    int descriptor = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return fsh_error_system(error, errno, "cannot open");
    while (buffer->length < most && !status) {
        ssize_t got = read(descriptor, buffer->bytes + buffer->length, most - buffer->length);
        if (got > 0)
            buffer->length += (size_t)got;
        else if (got < 0 && errno != EINTR)
            status = fsh_error_system(error, errno, "cannot read");
        if (got == 0 || buffer->length == expected)
            break;
    }
    (void)close(descriptor);
    return status;
}

FshStatus source_read_start(int folder, const char *path, size_t most, Buffer *buffer, FshError *error)
{
    return read_up_to(folder, path, most, UINT64_MAX, buffer, error);
}

FshStatus source_read(int folder, const char *path, uint64_t expected, Buffer *buffer, FshError *error)
{
    if (expected >= SIZE_MAX / 2)
        return fsh_error_set(error, FSH_ERR_MEMORY, "%" PRIu64 " bytes are too many", expected);
    /* One byte more than expected, so that a file that has grown is seen. */
    FshStatus status = read_up_to(folder, path, (size_t)expected + 1, expected, buffer, error);
    if (!status && buffer->length != expected)
        status = fsh_error_set(error, FSH_ERR_MISMATCH,
                               "changed since it was listed: it had %" PRIu64 " bytes", expected);
    return status;
}
