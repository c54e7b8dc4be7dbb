/* read_fault.c - mappings are kept in a list that only grows: an entry is reused, never freed, so that the
 * handler walks the list without a lock. */
#include "common/read_fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BITS = 64 };

struct ReadFaults {
    atomic_uint version;               /* odd while begin and end change */
    atomic_uintptr_t begin, end;       /* equal: unused */
    _Atomic(_Atomic uint64_t *) pages; /* a bit for each page that failed; NULL: none has */
    struct ReadFaults *next;           /* in the list */
    struct ReadFaults *next_unused;
};

/* State of the process, as the handler is. */
static _Atomic(ReadFaults *) all;
static ReadFaults *unused; /* guarded by lock */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool any_failed;
static size_t page_bytes; /* set before the handler is installed */
static struct sigaction handler_before;

/* ---- mappings ---- */

static size_t bitmap_bytes(size_t length, size_t page)
{
    return (length / page / BITS + 1) * sizeof(uint64_t);
}

static void set_range(ReadFaults *faults, uintptr_t begin, uintptr_t end)
{
    (void)atomic_fetch_add(&faults->version, 1);
    atomic_store(&faults->begin, begin);
    atomic_store(&faults->end, end);
    (void)atomic_fetch_add(&faults->version, 1);
}

ReadFaults *read_faults_add(const void *bytes, size_t length)
{
    (void)pthread_rwlock_wrlock(&lock);
    ReadFaults *faults = unused;
    if (faults) {
        unused = faults->next_unused;
    } else if ((faults = calloc(1, sizeof *faults)) != NULL) {
        faults->next = atomic_load(&all);
        atomic_store(&all, faults);
    }
    if (faults)
        set_range(faults, (uintptr_t)bytes, (uintptr_t)bytes + length);
    (void)pthread_rwlock_unlock(&lock);
    return faults;
}

void read_faults_remove(ReadFaults *faults)
{
    if (!faults)
        return;
    (void)pthread_rwlock_wrlock(&lock);
    const size_t length = atomic_load(&faults->end) - atomic_load(&faults->begin);
    _Atomic uint64_t *pages = atomic_exchange(&faults->pages, NULL);
    set_range(faults, 0, 0);
    if (pages)
        (void)munmap((void *)pages, bitmap_bytes(length, page_bytes));
    faults->next_unused = unused;
    unused = faults;
    (void)pthread_rwlock_unlock(&lock);
}

void read_faults_visit(uintptr_t begin, uintptr_t end, void (*visit)(void *bytes, size_t length))
{
    (void)pthread_rwlock_rdlock(&lock);
    for (ReadFaults *faults = atomic_load(&all); faults; faults = faults->next) {
        const uintptr_t own_begin = atomic_load(&faults->begin), own_end = atomic_load(&faults->end);
        const uintptr_t from = own_begin > begin ? own_begin : begin, to = own_end < end ? own_end : end;
        if (from < to)
            visit((void *)from, to - from);
    }
    (void)pthread_rwlock_unlock(&lock);
}

bool read_faults_any(void)
{
    atomic_thread_fence(memory_order_acquire); /* reads before the question come first */
    return atomic_load_explicit(&any_failed, memory_order_relaxed);
}

bool read_faults_find(const ReadFaults *faults, size_t offset, size_t length, size_t *at_ret)
{
    if (!read_faults_any() || !faults || length == 0)
        return false;
    const _Atomic uint64_t *pages = atomic_load(&faults->pages);
    for (size_t page = offset / page_bytes; pages && page <= (offset + length - 1) / page_bytes; page++) {
        const uint64_t bits = atomic_load(&pages[page / BITS]);
        if (bits == 0) {
            page |= BITS - 1; /* skips to the last of the word */
        } else if (bits >> page % BITS & 1) {
            *at_ret = page * page_bytes > offset ? page * page_bytes : offset;
            return true;
        }
    }
    return false;
}

void read_fault_touch(const void *bytes, size_t length)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const volatile uint8_t *first = bytes;
    if (length == 0)
        return;
    for (size_t at = 0; at < length; at += page - ((uintptr_t)first + at) % page)
        (void)first[at];
}

/* ---- the handler ---- */

/* Returns the mapping that holds the address, or NULL, and sets *begin_ret and *end_ret. */
static ReadFaults *find(uintptr_t address, uintptr_t *begin_ret, uintptr_t *end_ret)
{
    for (ReadFaults *faults = atomic_load(&all); faults; faults = faults->next) {
        const unsigned version = atomic_load(&faults->version);
        *begin_ret = atomic_load(&faults->begin);
        *end_ret = atomic_load(&faults->end);
        /* A mapping that changes meanwhile is not the one being read. */
        if (version % 2 == 0 && version == atomic_load(&faults->version) && address >= *begin_ret &&
            address < *end_ret)
            return faults;
    }
    return NULL;
}

/* Returns the bits of a mapping of `length` bytes, made if necessary; NULL without memory. */
static _Atomic uint64_t *pages_of(ReadFaults *faults, size_t length)
{
    _Atomic uint64_t *pages = atomic_load(&faults->pages), *none = NULL;
    if (pages)
        return pages;
    void *made = mmap(NULL, bitmap_bytes(length, page_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    pages = made;
    if (atomic_compare_exchange_strong(&faults->pages, &none, pages))
        return pages;
    (void)munmap(made, bitmap_bytes(length, page_bytes)); /* another thread was faster */
    return none;
}

/* Maps zeros in place of an unreadable page. Notes it first: a thread that sees the zeros finds the note. */
static bool replace_page(uint8_t *address)
{
    uintptr_t begin = 0, end = 0;
    ReadFaults *faults = find((uintptr_t)address, &begin, &end);
    _Atomic uint64_t *pages = faults ? pages_of(faults, end - begin) : NULL;
    if (!pages)
        return false;
    const size_t offset = (uintptr_t)address - begin, page = offset / page_bytes;
    (void)atomic_fetch_or(&pages[page / BITS], UINT64_C(1) << page % BITS);
    atomic_store(&any_failed, true);
    return mmap(address - offset % page_bytes, page_bytes, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

static void pass_on(int signal_number, siginfo_t *info, void *context)
{
    if (handler_before.sa_flags & SA_SIGINFO) {
        handler_before.sa_sigaction(signal_number, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
        handler_before.sa_handler(signal_number);
    } else if (handler_before.sa_handler == SIG_DFL || info->si_code > 0) {
        (void)signal(SIGBUS, SIG_DFL); /* the fault repeats when this returns, and now ends the process */
        if (info->si_code <= 0)
            (void)raise(SIGBUS); /* a signal that was sent does not repeat */
    }
}

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    const int saved = errno;
    const bool may_be_ours = info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR;
    if (!may_be_ours || !replace_page(info->si_addr))
        pass_on(signal_number, info, context);
    errno = saved;
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &handler_before) == 0)
        (void)sigaction(SIGBUS, &action, NULL);
}

void read_fault_outlive(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install);
}
