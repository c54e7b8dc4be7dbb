/* One writer at a time in a folder: who comes second is told who came first, and any death lets go. */
#include "common/folder_lock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/support/support.h"

static const char name[] = ".tool-lock";

TEST_IN_FOLDER(test_the_second_is_told_who_writes, folder)
{
    FolderLock first = FOLDER_LOCK_NONE, second = FOLDER_LOCK_NONE;
    FshError error = {0};
    char who[128], host[65] = "";
    assert_ok(folder_lock_take(&first, folder->path, name, "tool", &error), &error);
    assert_true(first.guards);
    assert_int_equal(folder_lock_take(&second, folder->path, name, "tool", &error), FSH_ERR_EXISTS);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    (void)snprintf(who, sizeof who, "another tool is writing there (process %ld on %s, since 2",
                   (long)getpid(), host);
    assert_contains(error.message, folder->path);
    assert_contains(error.message, who);
    assert_int_equal(second.descriptor, -1);
    folder_lock_release(&second);
    assert_true(file_exists(test_path(folder, "%s", name))); /* it was not the second's to remove */
    folder_lock_release(&first);
    assert_int_equal(test_count_files(folder->path), 0);
    assert_ok(folder_lock_take(&second, folder->path, name, "tool", &error), &error);
    folder_lock_release(&second);
    folder_lock_release(&second);
}

TEST_IN_FOLDER(test_a_killed_holder_lets_go, folder)
{
    const char *path = test_path(folder, "%s", name);
    FolderLock lock = FOLDER_LOCK_NONE;
    FshError error = {0};
    int ends[2], status = 0;
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const bool held = folder_lock_take(&lock, folder->path, name, "tool", NULL) == FSH_OK;
        (void)!write(ends[1], held ? "y" : "n", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(folder_lock_take(&lock, folder->path, name, "tool", &error), FSH_ERR_EXISTS);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(file_exists(path)); /* in nobody's way */
    assert_ok(folder_lock_take(&lock, folder->path, name, "tool", &error), &error);
    folder_lock_release(&lock);
    assert_false(file_exists(path));
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Many processes take the lock, let it go and take it again: never do two hold it. The holder's file is all
 * that they share. */
TEST_IN_FOLDER(test_never_two_at_a_time, folder)
{
    enum { PROCESSES = 4, ROUNDS = 400 };
    const char *inside = test_path(folder, "inside");
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] != 0)
            continue;
        int taken = 0;
        while (taken < ROUNDS) {
            FolderLock lock = FOLDER_LOCK_NONE;
            if (folder_lock_take(&lock, folder->path, name, "tool", NULL) != FSH_OK)
                continue;
            FILE *alone = fopen(inside, "wx"); /* fails where another is inside */
            if (!alone)
                _exit(1);
            (void)fclose(alone);
            (void)unlink(inside);
            folder_lock_release(&lock);
            taken++;
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(test_count_files(folder->path), 0);
}

TEST_IN_FOLDER(test_a_folder_that_is_not_there_is_a_failure, folder)
{
    FolderLock lock = FOLDER_LOCK_NONE;
    FshError error = {0};
    assert_int_not_equal(folder_lock_take(&lock, test_path(folder, "none"), name, "tool", &error), FSH_OK);
    assert_contains(error.message, "No such file");
    assert_int_equal(lock.descriptor, -1);
}
