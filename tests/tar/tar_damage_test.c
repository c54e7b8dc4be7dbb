/* Tars that are hostile, damaged or none. */
#include "tar/tar_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/random.h"
#include "tests/tar/tar_tools.h"
#include "tests/support/support.h"

/* ---- hostile ones ---- */

TEST_IN_FOLDER(test_hostile_names_are_entries_with_a_reason, folder)
{
    char long_name[5001];
    for (size_t i = 0; i < 5000; i++)
        long_name[i] = i % 100 == 99 ? '/' : 'l';
    long_name[5000] = '\0';
    long_name[4999] = 'l';
    const char *inner = test_path(folder, "inner.tar"), *path = test_path(folder, "a.tar");
    TarWriter *writer = tar_begin(inner);
    tar_add(writer, "../x", "x", 1, 0);
    tar_add(writer, "fine", "x", 1, 0);
    tar_finish(&writer);
    writer = tar_begin(path);
    static const char *const names[] = {"../a",        "a/../b",    "a/..",    "/etc/passwd", "//x", ".",
                                        "./.",         "./a",       "a//b",    "a/./b",       "...", "..a/x",
                                        ".git/config", "a/._b.jpg", "a/../.b", "./.DS_Store"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tar_add(writer, names[i], "x", 1, 0);
    tar_add(writer, long_name, "x", 1, 0);
    tar_add_file(writer, "n.tar", inner);
    tar_finish(&writer);
    char expected[6000];
    (void)snprintf(
        expected, sizeof expected,
        "../a: has \"..\" in its name\na/../b: has \"..\" in its name\na/..: has \"..\" in its name\n"
        "/etc/passwd: has an absolute name\n//x: has an absolute name\n.: has no name\n./.: has no name\n"
        "a (1)\na/b (1)\na/b (1)\na/../.b: has \"..\" in its name\n"
        "%s: has a name that is too long\nn/../x: has \"..\" in its name\nn/fine (1)\n5 hidden\n",
        long_name);
    assert_tar_listing(path, expected);
}

TEST_IN_FOLDER(test_what_is_no_file_is_never_followed, folder)
{
    run_shell(folder,
              "cd \"$0\"; mkdir in; cd in; echo x > file; ln -s /etc/passwd link; ln file link2; mkfifo "
              "pipe; mkdir d;"
              "tar -cf ../a.tar d file link link2 pipe");
    /* A device takes root to make: the pipe's kind is changed instead. */
    size_t length = 0;
    const char *path = test_path(folder, "a.tar");
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    assert_tar_listing(
        path, "file (2)\nlink: is a symbolic link\nlink2: is a hard link to file\npipe: is a named pipe\n"
              "0 hidden\n");
    static const struct {
        char kind;
        const char *reason;
    } kinds[] = {{'3', "is a device"}, {'4', "is a device"}};
    for (size_t i = 0; i < 2; i++) {
        uint8_t *pipe = bytes + 5 * 512; /* folder, file and its block, two links */
        assert_string_equal((char *)pipe, "pipe");
        pipe[156] = (uint8_t)kinds[i].kind;
        tar_sign_header(pipe);
        test_file_write(path, bytes, length);
        char *listing = tar_listing(path, true);
        assert_contains(listing, test_path(folder, "pipe: %s", kinds[i].reason) + strlen(folder->path) + 1);
        free(listing);
    }
    free(bytes);
}

/* Old tars give hard links the size of their file and no content, POSIX's may have content. */
TEST_IN_FOLDER(test_a_hard_link_may_have_content, folder)
{
    size_t length = 0;
    const char *path = tar_write_small(folder, "a.tar");
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    bytes[156] = '1';
    memcpy(bytes + 157, "target", sizeof "target");
    tar_sign_header(bytes);
    test_file_write(path, bytes, length);
    const char *expected = "a: is a hard link to target\nb/b (6)\nc (5000)\n0 hidden\n";
    assert_tar_listing(path, expected);
    memmove(bytes + 512, bytes + 1024, length - 1024);
    test_file_write(path, bytes, length - 512);
    assert_tar_listing(path, expected);
    free(bytes);
}

TEST_IN_FOLDER(test_a_wrong_map_of_holes_is_told, folder)
{
    static const char wrong[] = "a (9003)\n  the tar has a wrong map of its holes\nb (6)\n0 hidden\n";
    static const struct {
        const char *map, *listing; /* offset, size, … of the parts */
    } rows[] = {
        {NULL, "a (0)\n  the tar has a wrong map of its holes\nb (6)\n0 hidden\n"}, /* Solaris' */
        {"1,2,9000,3", "a (9003)\nb (6)\n0 hidden\n"},
        {"9000,3,1,2", wrong}, /* out of order */
        {"1,2,9001,3", wrong}, /* beyond the file */
        {"1,2,8000,4", wrong}, /* more than is stored */
        {"1,2,90o0,3",
         "(tar): is damaged at byte 0: a sparse file with a wrong map of its holes\n0 hidden\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char records[100];
        size_t length = 0;
        const char *path = test_path(folder, "a.tar");
        TarWriter *writer = tar_begin(path);
        if (rows[i].map)
            (void)snprintf(records, sizeof records, "24 GNU.sparse.size=9003\n29 GNU.sparse.map=%s\n",
                           rows[i].map);
        else
            (void)snprintf(records, sizeof records, "27 SUN.holesdata= 0 3 9000\n");
        tar_add(writer, "records", records, strlen(records), 0);
        tar_add(writer, "a", "first", 5, 0);
        tar_add(writer, "b", "second", 6, 0);
        tar_finish(&writer);
        uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
        bytes[156] = 'x';
        tar_sign_header(bytes);
        test_file_write(path, bytes, length);
        free(bytes);
        char *listing = tar_listing(path, true);
        assert_string_equal(listing, rows[i].listing);
        free(listing);
    }
}

TEST_IN_FOLDER(test_more_than_is_allowed_is_refused_and_the_walk_goes_on, folder)
{
    const char *path = tar_write_small(folder, "a.tar");
    TarReader *reader = NULL;
    TarEntry entry;
    Buffer content = {0};
    FshError error = {0};
    assert_ok(tar_reader_open(&reader, path, &error), &error);
    assert_int_equal(tar_reader_content(reader, &content, 5, &error), FSH_ERR_USAGE); /* before the first */
    assert_ok(tar_reader_next(reader, &entry, &error), &error);
    assert_int_equal(tar_reader_content(reader, &content, 4, &error), FSH_ERR_MISMATCH);
    assert_string_equal(error.message, "has 5 bytes, more than the 4 allowed");
    assert_ok(tar_reader_next(reader, &entry, &error), &error);
    assert_ok(tar_reader_content(reader, &content, 6, &error), &error);
    assert_memory_equal(content.bytes, "second", 6);
    buffer_free(&content);
    tar_reader_close(&reader);
}

/* A header that claims 4 GB takes no memory for them. */
TEST_IN_FOLDER(test_a_claim_costs_no_memory, folder)
{
    size_t length = 0;
    const char *path = tar_write_small(folder, "a.tar");
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    (void)snprintf((char *)bytes + 2048 + 124, 12, "40000000000"); /* 4 GiB, of "c" */
    tar_sign_header(bytes + 2048);
    test_file_write(path, bytes, length);
    free(bytes);
    run_shell(folder, "cd \"$0\"; gzip -k a.tar");
    static const char *const names[] = {"a.tar", "a.tar.gz"};
    for (size_t i = 0; i < 2; i++) {
        Buffer content = {0};
        FshError error = {0};
        TarEntry entry;
        assert_int_equal(
            tar_read_one(test_path(folder, "%s", names[i]), "c", &content, UINT64_MAX, &entry, &error),
            FSH_ERR_CORRUPT);
        assert_int_equal(entry.bytes, UINT64_C(1) << 32);
        assert_true(content.capacity < 4 << 20);
        buffer_free(&content);
    }
}

/* ---- damaged ones ---- */

TEST_IN_FOLDER(test_a_cut_tar_tells_where, folder)
{
    const char *path = tar_write_small(folder, "a.tar");
    size_t length = 0;
    char *bytes = test_file_read(path, &length);
    static const struct {
        size_t kept;
        const char *listing;
    } cuts[] = {
        {2048 + 100, "a (5)\nb/b (6)\n(tar): is damaged at byte 2048: "}, /* in a header */
        {2048 + 512 + 100, "a (5)\nb/b (6)\nc (5000)\n"},                 /* in content */
        {1024 + 512 + 2, "a (5)\nb/b (6)\n"},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        test_file_write(path, bytes, cuts[i].kept);
        for (int with_content = 0; with_content < 2; with_content++) {
            char *listing = tar_listing(path, with_content);
            assert_int_equal(strncmp(listing, cuts[i].listing, strlen(cuts[i].listing)), 0);
            assert_contains(listing, "(tar): is damaged at byte ");
            if (with_content && i >= 2)
                assert_contains(listing, test_path(folder, "a.tar ends within it: cut short"));
            free(listing);
        }
    }
    free(bytes);
}

/* Some programs write no end marker: a tar without one is whole, and counted. */
TEST_IN_FOLDER(test_a_tar_without_an_end_marker_is_counted, folder)
{
    const char *path = tar_write_small(folder, "a.tar"), *inner = test_path(folder, "b.tar"), *first = NULL;
    TarWriter *writer = tar_begin(inner);
    TarReader *reader = NULL;
    TarEntry entry;
    FshError error = {0};
    test_file_truncate(path, 2048);
    tar_add_file(writer, "x/in.tar", path);
    tar_finish(&writer);
    assert_tar_listing(path, "a (5)\nb/b (6)\n0 hidden\n");
    assert_tar_listing(inner, "x/in/a (5)\nx/in/b/b (6)\n0 hidden\n");
    for (int i = 0; i < 2; i++) {
        assert_ok(tar_reader_open(&reader, i ? inner : path, &error), &error);
        do
            assert_ok(tar_reader_next(reader, &entry, &error), &error);
        while (entry.path);
        assert_int_equal(tar_reader_unmarked(reader, &first), 1);
        assert_string_equal(first, i ? "x/in.tar" : path);
        tar_reader_close(&reader);
    }
}

TEST_IN_FOLDER(test_garbage_ends_the_walk_with_its_place, folder)
{
    const char *path = tar_write_small(folder, "a.tar");
    size_t length = 0;
    uint8_t *bytes = (uint8_t *)test_file_read(path, &length);
    bytes[1024 + 3] ^= 1;
    test_file_write(path, bytes, length);
    char *listing = tar_listing(path, true);
    assert_contains(listing, "a (5)\n(tar): is damaged at byte 1024: ");
    assert_contains_not(listing, "c (");
    free(listing);
    free(bytes);
}

TEST_IN_FOLDER(test_tars_one_behind_the_other_are_one, folder)
{
    (void)tar_write_small(folder, "a.tar");
    run_shell(folder, "cd \"$0\"; dd if=/dev/zero bs=512 count=9 of=zeros 2>/dev/null; cat a.tar zeros a.tar "
                      "zeros > b.tar");
    assert_tar_listing(test_path(folder, "b.tar"),
                       "a (5)\nb/b (6)\nc (5000)\na (5)\nb/b (6)\nc (5000)\n0 hidden\n");
}

TEST_IN_FOLDER(test_damage_in_an_inner_tar_leaves_the_others, folder)
{
    const char *good = tar_write_small(folder, "good.tar"), *path = test_path(folder, "a.tar");
    size_t length = 0;
    char *bytes = test_file_read(good, &length);
    TarWriter *writer = tar_begin(path);
    tar_add(writer, "cut.tar", bytes, 2048 + 100, 0);
    bytes[1024] ^= 1;
    tar_add(writer, "flipped.tar", bytes, length, 0);
    tar_add(writer, "gz.tgz", "\x1F\x8B no gzip at all", 18, 0);
    tar_add_file(writer, "good.tar", good);
    tar_finish(&writer);
    free(bytes);
    run_shell(folder, "cd \"$0\"; gzip -k a.tar");
    static const char *const names[] = {"a.tar", "a.tar.gz"};
    for (size_t i = 0; i < 4; i++) {
        char *listing = tar_listing(test_path(folder, "%s", names[i / 2]), i % 2);
        assert_contains(listing, "cut/a (5)\ncut/b/b (6)\ncut.tar: is damaged at byte 2048: ");
        assert_contains(listing, "flipped/a (5)\nflipped.tar: is damaged at byte 1024: ");
        assert_contains(listing, "gz.tgz: is damaged at byte 0");
        assert_contains(listing, "good/a (5)\ngood/b/b (6)\ngood/c (5000)\n0 hidden\n");
        free(listing);
    }
}

/* Files that are named as tars and are none, in a compressed tar: their first bytes are looked at, wherever
 * the reader's window ends, and their content is read after that. */
TEST_IN_FOLDER(test_files_named_as_tars_in_a_compressed_tar_are_read, folder)
{
    enum { FILES = 60, BYTES = 30011 };
    char *contents = malloc((size_t)FILES * BYTES), name[16];
    Random random;
    assert_non_null(contents);
    random_start(&random, 7, 0);
    for (size_t i = 0; i < (size_t)FILES * BYTES; i++)
        contents[i] = (char)random_u32(&random);
    TarWriter *writer = tar_begin(test_path(folder, "a.tar"));
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(name, sizeof name, "%d.tar", i);
        tar_add(writer, name, contents + (size_t)i * BYTES, BYTES, 0);
    }
    tar_finish(&writer);
    run_shell(folder, "cd \"$0\"; gzip -1 a.tar");
    TarReader *reader = NULL;
    TarEntry entry;
    Buffer content = {0};
    assert_int_equal(tar_reader_open(&reader, test_path(folder, "a.tar.gz"), NULL), FSH_OK);
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(tar_reader_next(reader, &entry, NULL), FSH_OK);
        assert_null(entry.reason);
        assert_int_equal(tar_reader_content(reader, &content, BYTES, NULL), FSH_OK);
        assert_int_equal(content.length, BYTES);
        assert_memory_equal(content.bytes, contents + (size_t)i * BYTES, BYTES);
    }
    tar_reader_close(&reader);
    buffer_free(&content);
    free(contents);
}

TEST_IN_FOLDER(test_a_damaged_compressed_tar_is_told, folder)
{
    enum { BYTES = 200000 };
    uint8_t *noise = malloc(BYTES);
    assert_non_null(noise);
    test_fill_noise(noise, 200, 300, 1);
    TarWriter *writer = tar_begin(test_path(folder, "a.tar"));
    for (int i = 0; i < 5; i++)
        tar_add(writer, "image", noise, 180000, 0);
    tar_finish(&writer);
    free(noise);
    run_shell(
        folder,
        "cd \"$0\"; gzip -k a.tar; xz -k -0 a.tar; cp a.tar.gz cut.tar.gz; truncate -s 500000 cut.tar.gz");
    test_file_flip_byte(test_path(folder, "a.tar.xz"), 150000);
    writer = tar_begin(test_path(folder, "nested.tar"));
    tar_add_file(writer, "n.tar", test_path(folder, "a.tar"));
    tar_finish(&writer);
    run_shell(folder, "cd \"$0\"; gzip -k nested.tar; truncate -s 500000 nested.tar.gz");
    static const char *const names[] = {"cut.tar.gz", "a.tar.xz", "nested.tar.gz"};
    for (size_t i = 0; i < 6; i++) {
        char *listing = tar_listing(test_path(folder, "%s", names[i / 2]), i % 2);
        assert_contains(listing, "image (180000)\n");
        assert_contains(listing, "(tar): is damaged at byte ");
        assert_contains(listing, " of its uncompressed bytes: ");
        assert_contains_not(listing, "INTERNAL"); /* libarchive's word for being asked after a failure */
        if (i == 5)                               /* the outer tells why it broke, not that it cannot go on */
            assert_contains_not(listing, "only 0 available");
        free(listing);
    }
}

/* ---- what is none ---- */

TEST_IN_FOLDER(test_what_is_no_tar_is_refused, folder)
{
    static const uint8_t zeros[4096] = {0};
    uint8_t noise[3 * 64 * 64];
    test_fill_noise(noise, 64, 64, 1);
    test_file_write(test_path(folder, "zeros"), zeros, sizeof zeros);
    test_file_write(test_path(folder, "noise.tar"), noise, sizeof noise);
    test_file_write(test_path(folder, "none.tar"), "", 0);
    test_file_write_text(test_path(folder, "text.tar"), "one line\n");
    test_file_write(test_path(folder, "short.tar"), zeros, 512);
    run_shell(
        folder,
        "cd \"$0\"; gzip -k noise.tar; mkdir d; mkfifo f; printf '\\377\\330\\377\\340\\0\\020JFIF' > a.jpg;"
        "dd if=/dev/zero bs=1000 count=9 >> a.jpg 2>/dev/null; seq 10000 > seq.txt; gzip -k seq.txt");
    static const char *const names[] = {
        "zeros", "noise.tar", "none.tar",   "text.tar", "short.tar", "noise.tar.gz",
        "a.jpg", "seq.txt",   "seq.txt.gz", "d",        "f"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = test_path(folder, "%s", names[i]);
        TarReader *reader = (TarReader *)folder;
        FshError error = {0};
        if (tar_is_tar(path))
            fail_msg("%s is taken for a tar", names[i]);
        assert_int_equal(tar_reader_open(&reader, path, &error), FSH_ERR_UNSUPPORTED);
        assert_null(reader);
        assert_contains(error.message, path);
    }
    TarReader *reader = NULL;
    FshError error = {0};
    assert_false(tar_is_tar(test_path(folder, "missing.tar")));
    assert_int_equal(tar_reader_open(&reader, test_path(folder, "missing.tar"), &error), FSH_ERR_NOT_FOUND);
    test_file_write(test_path(folder, "empty.tar"), zeros, 1024);
    assert_true(tar_is_tar(test_path(folder, "empty.tar")));
    assert_tar_listing(test_path(folder, "empty.tar"), "0 hidden\n");
}

/* A compressed file may be a tar: what says so is the message of the plugin that cannot be loaded. A plain
 * tar needs no plugin, and goes on after a compressed one in it. */
TEST_IN_FOLDER(test_without_libarchive_a_compressed_file_is_told_what_is_missing, folder)
{
    (void)tar_write_small(folder, "a.tar");
    run_shell(folder, "cd \"$0\"; gzip < a.tar > c.img; cp c.img c.tgz; echo text > text.img; mkdir plugins;"
                      "tar -cf nested.tar c.tgz a.tar; echo no library > plugins/libfshard-archive.so");
    const char *path = test_path(folder, "c.img");
    assert_true(tar_is_tar(path)); /* with libarchive */
    assert_int_equal(setenv("FSHARD_PLUGINS", test_path(folder, "plugins"), 1), 0);
    TarReader *reader = NULL;
    FshError error = {0};
    const bool compressed = tar_is_tar(path), text = tar_is_tar(test_path(folder, "text.img"));
    const FshStatus status = tar_reader_open(&reader, path, &error);
    char *listing = tar_listing(test_path(folder, "nested.tar"), true);
    assert_int_equal(unsetenv("FSHARD_PLUGINS"), 0);
    assert_true(compressed);
    assert_false(text);
    assert_int_equal(status, FSH_ERR_UNSUPPORTED);
    assert_contains(error.message, "c.img: reading a compressed tar needs libarchive");
    assert_contains(listing, "c.tgz: reading a compressed tar needs libarchive");
    assert_contains(listing, "\na/a (5)\na/b/b (6)\na/c (5000)\n0 hidden\n");
    free(listing);
}

/* Nothing but an end comes of any bytes. Run under the sanitizers, too. */
TEST_IN_FOLDER(test_bytes_at_random_do_no_harm, folder)
{
    enum { ROUNDS = 3000, MOST_ENTRIES = 1000 };
    const char *inner = tar_write_small(folder, "inner.tar"), *path = test_path(folder, "a.tar");
    run_shell(folder,
              "cd \"$0\"; gzip -k inner.tar; mkdir in; cd in; echo x > file; ln -s file l; printf x > s; "
              "truncate -s 90000 s;"
              "tar -cS --format=pax -f ../pax.tar .; tar -cS --format=gnu -f ../gnu.tar ./$(printf "
              "'%0150d' 1 | tee $(printf "
              "'%0150d' 1)) s; cd ..; tar -cf nested.tar inner.tar inner.tar.gz pax.tar gnu.tar; gzip -k "
              "nested.tar");
    (void)inner;
    static const char *const seeds[] = {"inner.tar",  "pax.tar",       "gnu.tar",
                                        "nested.tar", "nested.tar.gz", "inner.tar.gz"};
    Random random;
    random_start(&random, 7, 0);
    Buffer content = {0};
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = 0;
        char *bytes = test_file_read(test_path(folder, "%s", seeds[round % 6]), &length);
        uint32_t changes = random_below(&random, 6);
        for (uint32_t i = 0; i < changes; i++) {
            size_t at = random_below(&random, (uint32_t)length);
            uint32_t change = random_below(&random, 2) ? random_u32(&random) : 1U << random_below(&random, 8);
            bytes[at] = (char)((unsigned char)bytes[at] ^ change);
            /* Damage after the checksum: only then is more than a sum tested. */
            if (length % 512 == 0 && at % 512 < 500 && random_below(&random, 2))
                tar_sign_header((uint8_t *)bytes + at / 512 * 512);
        }
        if (random_below(&random, 4) == 0)
            length = random_below(&random, (uint32_t)length);
        test_file_write(path, bytes, length);
        free(bytes);
        FshError error = {0};
        TarReader *reader = NULL;
        TarEntry entry = {0};
        int entries = 0;
        if (tar_reader_open(&reader, path, &error))
            continue;
        while (!tar_reader_next(reader, &entry, &error) && entry.path) {
            assert_true(++entries < MOST_ENTRIES);
            if (!entry.reason && random_below(&random, 2))
                (void)tar_reader_content(reader, &content, 1 << 20, &error);
        }
        tar_reader_close(&reader);
    }
    buffer_free(&content);
}
