/* Under which names images are written, and who gets a name that two want. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"
#include "imaging/shrink_names.h"

static void expect_target(const char *path, ImageFormat format, const char *expected,
                          ImageFormat expected_format)
{
    char target[PATH_MAX];
    ImageFormat given = IMAGE_OTHER;
    FshError error = {0};
    assert_ok(shrink_name_target(path, format, target, &given, &error), &error);
    assert_string_equal(target, expected);
    assert_int_equal(given, expected_format);
}

TEST(test_kept_formats_keep_their_names)
{
    expect_target("a/b.JPEG", IMAGE_UNKNOWN, "a/b.JPEG", IMAGE_JPEG);
    expect_target("a/b.png", IMAGE_UNKNOWN, "a/b.png", IMAGE_PNG);
    expect_target("a/b.WebP", IMAGE_UNKNOWN, "a/b.WebP", IMAGE_WEBP);
    expect_target("a.b/c.heic", IMAGE_UNKNOWN, "a.b/c.jpg", IMAGE_JPEG);
    expect_target("a/b.tar.gif", IMAGE_UNKNOWN, "a/b.tar.png", IMAGE_PNG);
    expect_target("a.d/noname", IMAGE_UNKNOWN, "a.d/noname", IMAGE_UNKNOWN);
    expect_target("a/b.txt", IMAGE_UNKNOWN, "a/b.txt", IMAGE_UNKNOWN);
}

TEST(test_one_format_changes_extensions_that_promise_another)
{
    expect_target("a/b.JPEG", IMAGE_JPEG, "a/b.JPEG", IMAGE_JPEG);
    expect_target("a/b.png", IMAGE_JPEG, "a/b.jpg", IMAGE_JPEG);
    expect_target("a/b.jpg", IMAGE_WEBP, "a/b.webp", IMAGE_WEBP);
    expect_target("a.d/noname", IMAGE_PNG, "a.d/noname.png", IMAGE_PNG);
    expect_target("b.5", IMAGE_PNG, "b.5.png", IMAGE_PNG); /* no extension of an image: part of the name */
    expect_target(".hidden", IMAGE_PNG, ".hidden.png", IMAGE_PNG);
}

TEST(test_a_name_that_becomes_too_long_is_refused)
{
    char path[PATH_MAX], target[PATH_MAX];
    ImageFormat format;
    FshError error = {0};
    memset(path, 'x', sizeof path);
    path[PATH_MAX - 1] = '\0';
    assert_int_equal(shrink_name_target(path, IMAGE_PNG, target, &format, &error), FSH_ERR_MEMORY);
}

typedef struct Claim {
    const char *path, *target;
    bool taken;
    const char *owner; /* taken: by whom */
} Claim;

static void expect_claims(bool sorted, const Claim *claims, size_t count)
{
    NameClaims *given = NULL;
    FshError error = {0};
    assert_ok(name_claims_new(&given, sorted, &error), &error);
    for (size_t i = 0; i < count; i++) {
        bool taken = false;
        const char *owner = NULL;
        assert_ok(name_claims_take(given, claims[i].path, claims[i].target, &taken, &owner, &error), &error);
        if (taken && sorted)
            assert_string_equal(owner, claims[i].owner);
        if (taken != claims[i].taken)
            fail_msg("%s -> %s: taken is %d", claims[i].path, claims[i].target, taken);
    }
    name_claims_free(&given);
    assert_null(given);
}

TEST(test_the_first_of_two_gets_the_name)
{
    static const Claim claims[] = {
        {"a.bmp", "a.png", false, NULL},
        {"a.c/x.bmp", "a.c/x.png", false, NULL}, /* between the two in byte order */
        {"a.c/x.gif", "a.c/x.png", true, "a.c/x.bmp"},
        {"a.gif", "a.png", true, "a.bmp"},
        {"ab.gif", "ab.png", false, NULL},
        {"b/a.gif", "b/a.png", false, NULL},
        {"b/a.tif", "b/a.png", true, "b/a.gif"},
    };
    expect_claims(true, claims, sizeof claims / sizeof claims[0]);
    expect_claims(false, claims, sizeof claims / sizeof claims[0]);
}

TEST(test_unsorted_names_are_remembered_for_good)
{
    enum { COUNT = 5000 }; /* the table grows several times */
    NameClaims *given = NULL;
    FshError error = {0};
    assert_ok(name_claims_new(&given, false, &error), &error);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            char name[32];
            bool taken = false;
            const char *owner = NULL;
            (void)snprintf(name, sizeof name, "%u.jpg", i * 7919 % COUNT);
            assert_ok(name_claims_take(given, name, name, &taken, &owner, &error), &error);
            assert_int_equal(taken, round);
        }
    }
    name_claims_free(&given);
}
