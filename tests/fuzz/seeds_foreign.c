#include <archive.h>
#include <archive_entry.h>

#include "tests/fuzz/seeds.h"
#include "tests/fuzz/seeds_lmdb.h"

typedef struct Text {
    const char *name, *bytes;
    size_t length;
} Text;

static void write_texts(const char *root, const char *target, const Text *texts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        seed_write(root, target, texts[i].name, texts[i].bytes, texts[i].length);
}

#define TEXT(name, bytes)                                                                                    \
    {                                                                                                        \
        name, bytes, sizeof(bytes) - 1                                                                       \
    }
#define ENTRY(key, bytes)                                                                                    \
    {                                                                                                        \
        key, bytes, sizeof(bytes) - 1, false                                                                 \
    }

/* ---- WebDataset's tars ---- */

static void write_tar(const char *root, const char *name, int format, const Text *files, size_t count)
{
    static char tar[1 << 16];
    size_t used = 0;
    struct archive *archive = archive_write_new();
    seed_need(archive && !archive_write_set_format(archive, format) &&
                  !archive_write_set_bytes_in_last_block(archive, 1) &&
                  !archive_write_open_memory(archive, tar, sizeof tar, &used),
              "libarchive begins a tar");
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        seed_need(entry != NULL, "memory");
        archive_entry_set_pathname(entry, files[i].name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)files[i].length);
        seed_need(archive_write_header(archive, entry) >= ARCHIVE_WARN &&
                      archive_write_data(archive, files[i].bytes, files[i].length) ==
                          (la_ssize_t)files[i].length,
                  "libarchive writes a file");
        archive_entry_free(entry);
    }
    seed_need(!archive_write_close(archive), "libarchive ends a tar");
    (void)archive_write_free(archive);
    seed_write(root, "webdataset", name, tar, used);
}

static void write_tars(const char *root)
{
    static const char npy[] =
        "\x93NUMPY\1\0\x4E\0{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 3), }"
        "                \nabcdef";
    static const Text classes[] = {
        TEXT("cat/0.jpg", "\xFF\xD8\xFF first"),
        TEXT("cat/0.cls", " 1\n"),
        TEXT("dog/1.jpg", "\xFF\xD8\xFF second"),
        TEXT("dog/1.json", "{\"label\": 0, \"class_name\": \"d\\u00f6g\"}"),
        TEXT("__meta__/x.jpg", "nothing"),
        TEXT("README", "ignored"),
    };
    static const Text ours[] = {
        TEXT("a%20b.png", "\x89PNG\r\n\x1A\n"),
        TEXT("a%20b.json", "{\"fshard\":1,\"key\":\"a "
                           "b\",\"label\":2,\"class_name\":\"c\",\"width\":3,\"height\":2,\"channels\":3,"
                           "\"codec\":\"png\",\"crc32c\":\"00000000\",\"source\":\"a b.png\"}"),
    };
    static const Text pairs[] = {
        TEXT("x/1.blurry.png", "\x89PNG\r\n\x1A\n"),
        TEXT("x/1.sharp.npy", npy),
        TEXT("x/1.json", "{\"fshard\":1,\"fields\":{\"blurry\":{\"source\":\"x\\\\1\"},\"sharp\":{}}}"),
    };
    write_tar(root, "classes", ARCHIVE_FORMAT_TAR_USTAR, classes, sizeof classes / sizeof *classes);
    write_tar(root, "classes-pax", ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, classes, 4);
    write_tar(root, "classes-gnu", ARCHIVE_FORMAT_TAR_GNUTAR, classes, 2);
    write_tar(root, "ours", ARCHIVE_FORMAT_TAR_USTAR, ours, 2);
    write_tar(root, "pairs", ARCHIVE_FORMAT_TAR_USTAR, pairs, 3);
    seed_write(root, "npy", "rgb", npy, sizeof npy - 1);
}

/* ---- pickles, lists, JSON ---- */

static const Text pickles[] = {
    TEXT("protocol-0", "(S'x'\np0\nI3\ntp1\n."),
    TEXT("protocol-2", "\x80\2U\5imageq\0K\3\x86q\1."),
    TEXT("protocol-3", "\x80\3C\5imageq\0M\1\2\x86q\1."),
    TEXT("protocol-4", "\x80\4\x95\x0E\0\0\0\0\0\0\0C\5image\x94K\3\x86\x94."),
    TEXT("marked", "(T\5\0\0\0imageJ\xFF\xFF\xFF\xFFt."),
    TEXT("long", "\x80\3B\5\0\0\0image\x8A\2\3\0\x86."),
    TEXT("long-line", "(C\5imageL12L\nt."),
    TEXT("reduce", "\x80\3cos\nsystem\nX\4\0\0\0trueR."),
};

static const Text lists[] = {
    TEXT("shapes", "baboon.png (480,500,3) 1\nfolder/x_s001.png (2,3,1) 1\r\n\n"),
    TEXT("names", "a.png\nb\tc.png\n"),
    TEXT("spaces", "a b.png ( 4 , 5 , 3 ) 0"),
    TEXT("wrong", "no dot\n(1,2,3)\n"),
};

static const Text objects[] = {
    TEXT("flat", "{\"a\": 1, \"b\": -2.5e3, \"c\": true, \"d\": null}"),
    TEXT("nested", " {\"x\": {\"y\": [1, {\"z\": \"}\"}]}, \"w\": []}\n"),
    TEXT("escapes", "{\"\\u00e4\\n\\\"\": \"\\ud83d\\ude00\\/\\udcff\"}"),
    TEXT("empty", "{}"),
};

/* ---- folder2lmdb's and BasicSR's databases ---- */

static void write_databases(const char *root)
{
    static const SeedEntry values[] = {
        ENTRY("0", "\x80\4C\6\xFF\xD8\xFFjpg\x94K\0\x86."),
        ENTRY("1", "\x80\4C\6\xFF\xD8\xFFjpg\x94K\1\x86."),
        ENTRY("__keys__", "\x80\3]q\0."),
        ENTRY("__len__", "\x80\3K\2."),
    };
    static const SeedEntry images[] = {
        ENTRY("a%2Eb", "\x89PNG\r\n\x1A\n"),
        ENTRY("baboon", "\xFF\xD8\xFF jpeg"),
    };
    seed_write_lmdb(root, "lmdb_foreign", "folder2lmdb", values, sizeof values / sizeof *values);
    seed_write_lmdb(root, "lmdb_foreign", "basicsr", images, sizeof images / sizeof *images);
}

void seeds_foreign(const char *root)
{
    write_tars(root);
    write_texts(root, "pickle", pickles, sizeof pickles / sizeof *pickles);
    write_texts(root, "meta_info", lists, sizeof lists / sizeof *lists);
    write_texts(root, "json_scan", objects, sizeof objects / sizeof *objects);
    write_databases(root);
}
