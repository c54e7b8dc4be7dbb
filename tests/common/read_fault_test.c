/* Pages that cannot be read: zeros and a note for those that asked, the old handler or death for all
 * others. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/read_fault.h"
#include "tests/support/support.h"

enum { PAGES = 9, LAST_BYTES = 100 };

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Writes and maps a file of PAGES - 1 pages and LAST_BYTES, all 'x', then cuts the file to `kept` bytes. */
static FileMapping map_cut(TestFolder *folder, const char *name, size_t kept)
{
    static char bytes[PAGES * 65536];
    const char *path = test_path(folder, "%s", name);
    FileMapping mapping;
    FshError error = {0};
    memset(bytes, 'x', sizeof bytes);
    test_file_write(path, bytes, (PAGES - 1) * page_bytes() + LAST_BYTES);
    assert_ok(file_map(path, &mapping, &error), &error);
    test_file_truncate(path, (int64_t)kept);
    return mapping;
}

/* ---- what is not ours; first of all, for these tests want no handler of ours ---- */

/* Reads a page that is gone and is in no FileMapping. */
static void read_foreign_page(TestFolder *folder)
{
    FileMapping mapping = map_cut(folder, "foreign", 0);
    read_faults_remove(mapping.faults); /* as a library's that maps by itself */
    (void)*(const volatile uint8_t *)mapping.bytes;
}

static void leave(int signal_number)
{
    _exit(40 + (signal_number == SIGBUS));
}

static int run_child(TestFolder *folder, bool with_handler, bool installed, bool sent)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGBUS, with_handler ? leave : SIG_DFL);
        if (installed)
            read_fault_outlive();
        if (sent)
            (void)raise(SIGBUS);
        else
            read_foreign_page(folder);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_IN_FOLDER(test_nothing_is_installed_unasked, folder)
{
    struct sigaction now;
    (void)signal(SIGBUS, leave);
    FileMapping mapping = map_cut(folder, "cut", 0);
    assert_int_equal(sigaction(SIGBUS, NULL, &now), 0);
    assert_true(now.sa_handler == leave);
    file_unmap(&mapping);
}

TEST_IN_FOLDER(test_other_faults_go_to_the_handler_before_or_end_the_process, folder)
{
    assert_int_equal(run_child(folder, true, true, false), 41);
    assert_int_equal(run_child(folder, false, true, false), -SIGBUS);
    assert_int_equal(run_child(folder, true, true, true), 41);
    assert_int_equal(run_child(folder, false, true, true), -SIGBUS);
}

/* ---- what is ours ---- */

/* Installs the handler at its first call; cmocka puts one of its own in front of every test. */
static void use_handler(void)
{
    static struct sigaction ours;
    static bool installed;
    if (!installed) {
        read_fault_outlive();
        read_fault_outlive();
        assert_int_equal(sigaction(SIGBUS, NULL, &ours), 0);
        installed = true;
    }
    assert_int_equal(sigaction(SIGBUS, &ours, NULL), 0);
}

TEST_IN_FOLDER(test_bytes_that_are_gone_read_as_zeros_and_are_named, folder)
{
    use_handler();
    const size_t page = page_bytes();
    FshError error = {0};
    FileMapping mapping = map_cut(folder, "cut", 2 * page);
    assert_int_equal(mapping.bytes[page], 'x');
    assert_ok(file_mapping_check(&mapping, 0, mapping.length, &error), &error);
    assert_int_equal(mapping.bytes[3 * page + 5], 0);
    assert_int_equal(mapping.bytes[mapping.length - 1], 0);
    assert_true(read_faults_any());
    /* Only those that somebody has touched. */
    assert_ok(file_mapping_check(&mapping, 0, 3 * page, &error), &error);
    assert_ok(file_mapping_check(&mapping, 4 * page, 4 * page, &error), &error);
    assert_ok(file_mapping_check(&mapping, 3 * page, 0, &error), &error);
    assert_int_equal(file_mapping_check(&mapping, 0, mapping.length, &error), FSH_ERR_SYSTEM);
    char text[64];
    (void)snprintf(text, sizeof text, "byte %zu cannot be read", 3 * page);
    assert_contains(error.message, text);
    assert_int_equal(file_mapping_check(&mapping, 3 * page + 7, 1, &error), FSH_ERR_SYSTEM);
    (void)snprintf(text, sizeof text, "byte %zu cannot be read", 3 * page + 7);
    assert_contains(error.message, text);
    file_unmap(&mapping);
    /* The next mapping begins with nothing noted. */
    mapping = map_cut(folder, "next", (PAGES - 1) * page + LAST_BYTES);
    assert_int_equal(mapping.bytes[3 * page], 'x');
    assert_ok(file_mapping_check(&mapping, 0, mapping.length, &error), &error);
    file_unmap(&mapping);
}

typedef struct Readers {
    FileMapping mappings[4];
    atomic_int missed;
} Readers;

/* Reads one byte; counts a miss where a zero has no note or an 'x' has one. */
static FshStatus read_page(uint64_t item, int thread, void *context, FshError *error)
{
    Readers *readers = context;
    const FileMapping *mapping = &readers->mappings[item % 4];
    const size_t page = page_bytes(), at = (size_t)(item / 8 % PAGES) * page + 3;
    (void)thread;
    (void)error;
    const uint8_t byte = *(const volatile uint8_t *)(mapping->bytes + at);
    const bool noted = file_mapping_check(mapping, at, 1, NULL) != FSH_OK;
    if ((byte == 'x') == noted)
        atomic_fetch_add(&readers->missed, 1);
    return FSH_OK;
}

TEST_IN_FOLDER(test_threads_that_meet_a_page_at_once_all_hear_of_it, folder)
{
    use_handler();
    for (int round = 0; round < 50; round++) {
        Readers readers = {0};
        FshError error = {0};
        for (int i = 0; i < 4; i++) {
            char name[16];
            (void)snprintf(name, sizeof name, "file-%d", i);
            readers.mappings[i] = map_cut(folder, name, (size_t)i * page_bytes());
        }
        assert_ok(pool_run(4, 8 * PAGES, read_page, &readers, &error), &error);
        assert_int_equal(atomic_load(&readers.missed), 0);
        for (int i = 0; i < 4; i++)
            file_unmap(&readers.mappings[i]);
    }
}

TEST_IN_FOLDER(test_a_system_call_that_reads_there_fails_and_is_no_signal, folder)
{
    use_handler();
    FileMapping mapping = map_cut(folder, "cut", page_bytes());
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], mapping.bytes + 2 * page_bytes(), 10), -1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    file_unmap(&mapping);
}
