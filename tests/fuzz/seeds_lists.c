#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "tests/fuzz/seeds.h"
#include "tools/resize/resize_ledger.h"

/* ---- labels ---- */

static void write_labels(const char *root)
{
    static const struct {
        const char *name, *text;
    } files[] = {
        {"tabs", "val_0.JPEG\tn03444034\t0\t32\t44\t62\nval_1.JPEG\tn04067472\t52\t55\t57\t59\n"},
        {"commas",
         "ImageId,PredictionString\nILSVRC2012_val_00000001,n03995372 85 1 499 272 \n\"b,2\",cat\r\n"},
        {"boxes", "a.jpg,n01 1 2 3 4 n01 5 6 7 8\nb.jpg,n02 -1 2.5 3 4\n"},
        {"words", "# Caffe\nILSVRC2012_val_00000001.JPEG 65\n./x/ILSVRC2012_val_00000002.JPEG 970\n\n"},
        {"alone", "\xEF\xBB\xBF"
                  "490\n361\n171\n"},
        {"twice", "a.jpg\tcat\na.jpg\tcat\na.jpg\tdog\n"},
        {"gap", "1\n\n2\n"},
        {"spaces", "image name.png\tgolden retriever\nimg\t\"quoted\"\n"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        seed_write(root, "labels", files[i].name, files[i].text, strlen(files[i].text));
}

static void write_label_files(const char *root)
{
    static const struct {
        const char *name, *text;
    } files[] = {
        {"one", "file_name,label\n./a/1.jpg,cat\n# none\n\"b,\"\"2\"\"\",\"golden retriever\"\r\n"},
        {"several", "a cat|dog\nb.png ;cat\n"},
        {"ragged", "a,cat,dog\nb,dog\n"},
        {"flags", "Image Index\tcat\tdog\n1.png\t1\t0\n2.png\t-1\t1.0\n"},
        {"numbers", "key,age,height\na,1e3,-2.5\nb,0x1p3,4\n"},
        {"lines",
         "{\"file_name\": \"a\\u00e9\", \"labels\": [\"x\\n\", 2, \"x\"]}\n{\"labels\":[],\"key\":\"b\"}\n"},
        {"targets", "{\"id\":\"a\",\"target\":[1, 2.5]}\n{\"id\":\"b\",\"target\":[-3,4]}\n"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        seed_write(root, "label_file", files[i].name, files[i].text, strlen(files[i].text));
}

/* ---- conditions ---- */

static void write_conditions(const char *root)
{
    static const struct {
        const char *name, *text;
    } files[] = {
        {"list", "class in dogs.txt"},
        {"glob", "key ~ 'n0144*'"},
        {"words", "not class = cat and (key !~ \"*_[0-9]?\" or split == val)"},
        {"opposites", "class not in a or class != 'b c' or not not key in 'd'"},
        {"broken", "class on (key = 'x"},
        {"globs", "a*b[!c-e]?[]]**xa.b*d"},
        {"twins", "tenchtench"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        seed_write(root, "condition", files[i].name, files[i].text, strlen(files[i].text));
}

/* ---- tars, by libarchive: all its formats and filters, with all its kinds of entries ---- */

typedef struct TarBytes {
    char bytes[1 << 16];
    size_t used;
} TarBytes;

typedef struct TarFile {
    const char *path, *content, *link;
    size_t length;
    unsigned type;
} TarFile;

static void make_tar(TarBytes *tar, int format, int filter, const TarFile *files, size_t count)
{
    struct archive *archive = archive_write_new();
    seed_need(archive && !archive_write_set_format(archive, format) &&
                  !archive_write_add_filter(archive, filter) &&
                  !archive_write_set_bytes_in_last_block(archive, 1) &&
                  !archive_write_open_memory(archive, tar->bytes, sizeof tar->bytes, &tar->used),
              "libarchive begins a tar");
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        seed_need(entry != NULL, "memory");
        archive_entry_set_pathname(entry, files[i].path);
        archive_entry_set_filetype(entry, files[i].type ? files[i].type : AE_IFREG);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_size(entry, (la_int64_t)files[i].length);
        archive_entry_set_mtime(entry, 1234567890, i % 2 ? 500000000 : 0);
        if (files[i].link)
            archive_entry_set_symlink(entry, files[i].link);
        seed_need(archive_write_header(archive, entry) >= ARCHIVE_WARN, "libarchive writes a header");
        seed_need(archive_write_data(archive, files[i].content, files[i].length) ==
                      (la_ssize_t)files[i].length,
                  "libarchive writes a file");
        archive_entry_free(entry);
    }
    seed_need(!archive_write_close(archive), "libarchive ends a tar");
    (void)archive_write_free(archive);
}

static void write_tars(const char *root)
{
    static TarBytes inner, tar;
    char long_name[200];
    memset(long_name, 'n', sizeof long_name - 1);
    memcpy(long_name + 100, "/x", 2);
    long_name[sizeof long_name - 1] = '\0';
    const TarFile plain[] = {{.path = "cat/1.jpg", .content = "first", .length = 5},
                             {.path = "./b//2.cls", .content = "7", .length = 1},
                             {.path = ".hidden/x", .content = "", .length = 0},
                             {.path = "link", .link = "/etc/passwd", .type = AE_IFLNK},
                             {.path = "folder/", .type = AE_IFDIR},
                             {.path = "../up", .content = "!", .length = 1},
                             {.path = long_name, .content = "long", .length = 4},
                             {.path = "k\303\244fer.jpg", .content = "", .length = 0}};
    const struct {
        const char *name;
        int format, filter;
        size_t count;
    } kinds[] = {
        {"ustar", ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, 3},
        {"pax", ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FILTER_NONE, 8},
        {"gnu", ARCHIVE_FORMAT_TAR_GNUTAR, ARCHIVE_FILTER_NONE, 7},
        {"v7", ARCHIVE_FORMAT_TAR, ARCHIVE_FILTER_NONE, 2},
        {"gz", ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_GZIP, 4},
        {"xz", ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_XZ, 2},
        {"bz2", ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_BZIP2, 2},
        {"zst", ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_ZSTD, 2},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        make_tar(&tar, kinds[i].format, kinds[i].filter, plain, kinds[i].count);
        seed_write(root, "tar", kinds[i].name, tar.bytes, tar.used);
    }
    make_tar(&inner, ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, plain, 2);
    const TarFile nested[] = {{.path = "n01440764.tar", .content = inner.bytes, .length = inner.used},
                              {.path = "n01443537.tar", .content = "no tar", .length = 6},
                              {.path = "after.jpg", .content = "after", .length = 5}};
    make_tar(&tar, ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, nested, 3);
    seed_write(root, "tar", "nested", tar.bytes, tar.used);
    static TarBytes packed;
    make_tar(&packed, ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_GZIP, plain, 2);
    const TarFile nested_gz[] = {{.path = "a.tar.gz", .content = packed.bytes, .length = packed.used},
                                 {.path = "b.tar", .content = inner.bytes, .length = inner.used - 700}};
    make_tar(&tar, ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, nested_gz, 2);
    seed_write(root, "tar", "nested-gz", tar.bytes, tar.used);
}

/* ---- the rest ---- */

static void write_ledgers(const char *root)
{
    static const uint8_t recipe[LEDGER_RECIPE_BYTES] = {1, 2, 3};
    char folder[] = "/tmp/fshard-seeds-XXXXXX", path[64];
    FshError error = {0};
    seed_need(mkdtemp(folder) != NULL, "a folder");
    (void)snprintf(path, sizeof path, "%s/outputs.ledger", folder);
    for (int settled = 0; settled <= 1; settled++) {
        Ledger *ledger = NULL;
        Buffer file = {0};
        const LedgerRow row = {.source_bytes = 3, .bytes = 2};
        bool made = !ledger_open(&ledger, path, recipe, false, &error);
        for (int i = 0; i < 4 && made; i++)
            made = !ledger_add(ledger, i % 2 ? "cat/1.jpg" : "bee/2.jpg", "cat/1.png", &row, &error) &&
                   !ledger_commit(ledger, 512 * (uint64_t)(i + 1), &error);
        seed_need(made && (!settled || !ledger_settle(ledger, &error)) && !file_read(path, &file, &error),
                  error.message);
        seed_write(root, "ledger", settled ? "settled" : "growing", file.bytes, file.length);
        buffer_free(&file);
        ledger_close(&ledger);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

static void write_packings(const char *root)
{
    static const char blueprint[] =
        "{\"classes\":[\"bee\",\"cat\"],\"container\":1,\"dictionary\":[0,0,"
        "\"00000000000000000000000000000000\"],"
        "\"fields\":[\"image\"],\"id\":\"0123456789abcdef0123456789abcdef\",\"kind\":1,\"left_out\":1,"
        "\"provenance\":{\"tool\":\"fpack\"},\"splits\":[[\"train\",2],[\"val\",1]],\"version\":1}";
    static const char sums[] = "[\"00000000000000000000000000000004\",\"00000000000000000000000000000010\","
                               "\"00000000000000000000000000000100\",\"00000000000000000000000000000010\","
                               "\"00000000000000000000000000000100\",\"00000000000000000000000000000010\","
                               "\"00000000000000000000000000000100\"]";
    char resume[2048];
    int length =
        snprintf(resume, sizeof resume,
                 "{\"bytes\":640,\"class_counts\":[1,2],\"hash\":\"0123456789abcdef0123456789abcdef\","
                 "\"id\":\"0123456789abcdef0123456789abcdef\",\"left_out\":[[-31005,\"a.jpg\",\"damaged\"]],"
                 "\"samples\":3,\"source_bytes\":99,\"sources\":\"0123456789abcdef\","
                 "\"statistics\":{\"gray\":%s,\"rgb\":%s,\"sizes\":[3,2,1,9,1,9]}}",
                 sums, sums);
    seed_need(length > 0 && (size_t)length < sizeof resume, "room for a progress file");
    seed_write(root, "blueprint", "classes", blueprint, sizeof blueprint - 1);
    seed_write(root, "resume", "classes", resume, (size_t)length);
}

static void write_tensors(const char *root)
{
    static const char *const headers[] = {
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[8,12]},"
        "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[12,14]},"
        "\"d\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[14,14]},"
        "\"__metadata__\":{\"format\":\"pt\"}}",
        "{\"x\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
        "\"n\":{\"dtype\":\"BOOL\",\"shape\":[6],\"data_offsets\":[8,14]}}",
        /* The first with checksums, which are right: made by Python's xxhash. */
        "{\"__metadata__\":{\"fshard.header_xxh3\":\"94d0bbd1c7cdca41\",\"fshard.tensors_xxh3\":"
        "\"a8a4fb03d37da818 6faecd8536239858 05afb26b0eca56c1 2d06800538d394c2\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[8,12]},"
        "\"c\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[12,14]},"
        "\"d\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[14,14]}}",
    };
    enum { COUNT = sizeof headers / sizeof *headers };
    static const char *const names[COUNT] = {"floats", "others", "checksums"};
    static const uint8_t values[14] = {0, 0, 0x80, 0x3F, 1, 2, 3, 4, 5, 6, 7, 1, 0, 0x7C};
    for (size_t i = 0; i < COUNT; i++) {
        char file[512] = {0};
        size_t header_bytes = strlen(headers[i]);
        file[0] = (char)(header_bytes & 255);
        file[1] = (char)(header_bytes >> 8);
        memcpy(file + 8, headers[i],
               header_bytes); // NOLINT(bugprone-not-null-terminated-result): it has its length
        memcpy(file + 8 + header_bytes, values, sizeof values);
        seed_write(root, "safetensors", names[i], file, 8 + header_bytes + sizeof values);
    }
}

static void write_stores(const char *root)
{
    static const struct {
        const char *name, *text;
    } files[] = {
        {"error", "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message>"
                  "<RequestId>1</RequestId></Error>"},
        {"upload", "<InitiateMultipartUploadResult><Bucket>b</Bucket><UploadId>a/b+c==</UploadId>"
                   "</InitiateMultipartUploadResult>"},
        {"credentials", "[default]\naws_access_key_id = other\n\n[lab]\naws_access_key_id=testkey\r\n"
                        "aws_secret_access_key = test/secret+key\naws_session_token=t\n"},
        {"config", "# ours\n[profile lab]\nregion = eu-north-1\ns3 =\n  max_concurrent_requests = 20\n[x]\n"},
        {"role", "[profile lab]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = lab\nexternal_id = a=b\n"
                 "role_session_name = me\nduration_seconds = 900\nmfa_serial = x\nsso_session = y\n"
                 "credential_source = EcsContainer\nweb_identity_token_file = /t\n"
                 "credential_process = \"a b\" 'c' d\\ e\n"},
        {"process", "{\"Version\": 1, \"AccessKeyId\": \"testkey\", \"SecretAccessKey\": \"s\", "
                    "\"SessionToken\": \"t\", \"Expiration\": \"2099-01-01T00:00:00.5+01:00\"}"},
        {"google", "{\"type\": \"authorized_user\", \"client_id\": \"c\", \"client_secret\": \"s\", "
                   "\"refresh_token\": \"1//r\"}"},
        {"sent", "train-00000-of-00002.fshard\ntrain.lmdb/data.mdb\n../x\n/etc/passwd\n\nval.tar\n"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        seed_write(root, "stores", files[i].name, files[i].text, strlen(files[i].text));
}

void seeds_lists(const char *root)
{
    write_stores(root);
    write_labels(root);
    write_label_files(root);
    write_conditions(root);
    write_tars(root);
    write_ledgers(root);
    write_tensors(root);
    write_packings(root);
}
