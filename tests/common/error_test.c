#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/support.h"

static const FshStatus all_failures[] = {
    FSH_ERR_USAGE,    FSH_ERR_SYSTEM,  FSH_ERR_MEMORY,      FSH_ERR_NOT_FOUND,
    FSH_ERR_EXISTS,   FSH_ERR_CORRUPT, FSH_ERR_UNSUPPORTED, FSH_ERR_NO_SPACE,
    FSH_ERR_MISMATCH, FSH_ERR_LIBRARY, FSH_ERR_INTERRUPTED, FSH_ERR_PEER,
};
enum { FAILURES = sizeof all_failures / sizeof *all_failures };

TEST(test_set_keeps_status_and_message)
{
    FshError error = {.system_errno = 5};
    assert_int_equal(fsh_error_set(&error, FSH_ERR_CORRUPT, "%s: record %d", "a.fshard", 3), FSH_ERR_CORRUPT);
    assert_int_equal(error.status, FSH_ERR_CORRUPT);
    assert_int_equal(error.system_errno, 0);
    assert_string_equal(error.message, "a.fshard: record 3");
}

TEST(test_system_errors_choose_their_status)
{
    static const struct {
        int system_errno;
        FshStatus status;
    } cases[] = {
        {ENOSPC, FSH_ERR_NO_SPACE},   {EDQUOT, FSH_ERR_NO_SPACE}, {ENOENT, FSH_ERR_NOT_FOUND},
        {ENOTDIR, FSH_ERR_NOT_FOUND}, {EEXIST, FSH_ERR_EXISTS},   {ENOTEMPTY, FSH_ERR_EXISTS},
        {ENOMEM, FSH_ERR_MEMORY},     {EACCES, FSH_ERR_SYSTEM},   {EIO, FSH_ERR_SYSTEM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        FshError error = {0};
        assert_int_equal(fsh_error_system(&error, cases[i].system_errno, "%s: cannot write", "x"),
                         cases[i].status);
        assert_int_equal(error.status, cases[i].status);
        assert_int_equal(error.system_errno, cases[i].system_errno);
        char expected[256];
        (void)snprintf(expected, sizeof expected, "x: cannot write: %s", strerror(cases[i].system_errno));
        assert_string_equal(error.message, expected);
    }
}

TEST(test_context_goes_in_front)
{
    FshError error = {0};
    (void)fsh_error_system(&error, EIO, "record 7");
    assert_int_equal(fsh_error_prepend(&error, "train-%05d.fshard", 2), FSH_ERR_SYSTEM);
    assert_string_equal(error.message, "train-00002.fshard: record 7: Input/output error");
    assert_int_equal(error.system_errno, EIO);
}

TEST(test_long_messages_are_cut_and_stay_texts)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    FshError error = {0};
    (void)fsh_error_set(&error, FSH_ERR_CORRUPT, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    (void)fsh_error_system(&error, ENOSPC, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    (void)fsh_error_prepend(&error, "%s", text);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    (void)fsh_error_set(&error, FSH_ERR_CORRUPT, "abc");
    (void)fsh_error_prepend(&error, "in");
    assert_string_equal(error.message, "in: abc");
}

TEST(test_advice_stands_behind_the_message)
{
    FshError error = {0};
    (void)fsh_error_set(&error, FSH_ERR_MEMORY, "no memory");
    fsh_error_advise(&error, "use %d threads", 2);
    assert_string_equal(error.message, "no memory; use 2 threads");
    assert_int_equal(error.status, FSH_ERR_MEMORY);
    for (size_t i = 0; i < sizeof error.message; i++)
        fsh_error_advise(&error, "more");
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

TEST(test_an_error_may_be_absent)
{
    assert_int_equal(fsh_error_set(NULL, FSH_ERR_CORRUPT, "x"), FSH_ERR_CORRUPT);
    assert_int_equal(fsh_error_system(NULL, ENOSPC, "x"), FSH_ERR_NO_SPACE);
    (void)fsh_error_prepend(NULL, "x");
    fsh_error_advise(NULL, "x");
}

TEST(test_every_status_has_its_own_words_and_is_no_errno)
{
    for (size_t i = 0; i < FAILURES; i++) {
        assert_true(all_failures[i] < -4095); /* the kernel's errno end there */
        assert_string_not_equal(fsh_strerror(all_failures[i]), "unknown status");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(fsh_strerror(all_failures[i]), fsh_strerror(all_failures[j]));
    }
    assert_string_equal(fsh_strerror(FSH_OK), "success");
    assert_string_equal(fsh_strerror((FshStatus)-5), "unknown status");
}

TEST(test_exit_statuses)
{
    assert_int_equal(fsh_exit_status(FSH_OK), 0);
    for (size_t i = 0; i < FAILURES; i++) {
        int expected = all_failures[i] == FSH_ERR_USAGE         ? 2
                       : all_failures[i] == FSH_ERR_INTERRUPTED ? 130
                                                                : 1;
        assert_int_equal(fsh_exit_status(all_failures[i]), expected);
    }
}
