#include "tools/job/read_ahead.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

bool read_ahead_is_due(ReadAhead *ahead)
{
    struct rusage used = {0};
    (void)getrusage(RUSAGE_THREAD, &used);
    const uint64_t blocks = (uint64_t)used.ru_inblock;
    if (ahead->has_looked && blocks != ahead->blocks)
        ahead->left = READ_AHEAD_PLACES;
    else if (ahead->left)
        ahead->left--;
    ahead->has_looked = true;
    ahead->blocks = blocks;
    return ahead->left > 0;
}

void read_ahead_ask(int folder, const char *path)
{
    /* O_NONBLOCK: a pipe in the file's place must not hold us. */
    const int descriptor = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0)
        return;
    (void)posix_fadvise(descriptor, 0, READ_AHEAD_BYTES, POSIX_FADV_WILLNEED);
    (void)close(descriptor);
}
