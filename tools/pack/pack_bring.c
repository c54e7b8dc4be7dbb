#include "tools/pack/pack_bring.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/file.h"

FshStatus bring_file(const char *from, const char *to, FshError *error)
{
    enum { COPY_BYTES = 1 << 20 };
    if (unlink(to) && errno != ENOENT)
        return fsh_error_system(error, errno, "%s: cannot remove", to);
    if (link(from, to) == 0)
        return FSH_OK;
    AtomicFile target = {.descriptor = -1};
    Buffer buffer = {0};
    FshStatus status = FSH_OK;
    int source = open(from, O_RDONLY | O_CLOEXEC);
    if (source < 0)
        status = fsh_error_system(error, errno, "%s: cannot open", from);
    if (!status)
        status = buffer_reserve(&buffer, COPY_BYTES, error);
    if (!status)
        status = atomic_file_open(&target, to, true, error);
    while (!status) {
        ssize_t got = read(source, buffer.bytes, COPY_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = fsh_error_system(error, errno, "%s: cannot read", from);
        else if (got == 0)
            break;
        else
            status = atomic_file_write(&target, buffer.bytes, (size_t)got, error);
    }
    if (!status)
        status = atomic_file_commit(&target, true, error);
    atomic_file_abandon(&target);
    buffer_free(&buffer);
    if (source >= 0)
        (void)close(source);
    return status;
}
