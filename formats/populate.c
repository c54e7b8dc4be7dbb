#include "formats/internal.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

FshStatus fsh_populate(const uint8_t *bytes, uint64_t length, FshError *error)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t before = (uintptr_t)bytes & (page - 1); /* madvise wants whole pages; the mapping begins at one */
    const uint8_t *begin = bytes - before, *end = bytes + length;
    size_t span = (size_t)length + before;
    if (length == 0)
        return FSH_OK;
#ifdef MADV_POPULATE_READ
    for (;;) {
        if (madvise((void *)begin, span, MADV_POPULATE_READ) == 0)
            return FSH_OK;
        if (errno == EINTR)
            continue;
        if (errno == EINVAL) /* before Linux 5.14 */
            break;
        if (errno == EFAULT)
            return fsh_error_set(error, FSH_ERR_SYSTEM,
                                 "cannot be read: the disk fails, or the file was cut short meanwhile");
        return fsh_error_system(error, errno, "cannot be read");
    }
#endif
    (void)madvise((void *)begin, span, MADV_WILLNEED);
    volatile uint8_t sink = 0;
    for (const uint8_t *at = begin; at < end; at += page) {
        sink = *(const volatile uint8_t *)at;
    }
    (void)sink;
    return FSH_OK;
}
