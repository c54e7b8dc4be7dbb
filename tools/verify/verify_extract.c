/* Folders are opened one below the other, each without following a link: what is checked is what is used. */
#include "tools/verify/verify_extract.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "imaging/encode.h"
#include "tools/verify/verify_against.h"
#include "tools/verify/verify_pixels.h"
#include "tools/verify/verify_records.h"

typedef struct ExtractThread {
    PixelReader reader;
    ImageEncoder *encoder;
    Buffer png;
} ExtractThread;

typedef struct Extraction {
    const FshManifest *manifest;
    const FshSplit *split;
    const char *folder; /* for messages */
    int descriptor;     /* of folder */
    SourceSet names;    /* that raw pixels have as PNG, and all others; empty where there are no raw pixels */
    ExtractThread *threads;
    Progress *progress;
    VerifyReport *report;
    ExtractResult *result;
} Extraction;

/* Of one sample. */
typedef struct Extracted {
    FshSample sample;
    bool readable, wrong;
    unsigned field, file_count;
    uint64_t bytes;
    FshError failure;
} Extracted;

/* ---- names ---- */

static const char *codec_extension(FshCodec codec)
{
    static const struct {
        FshCodec codec;
        const char *extension;
    } extensions[] = {{FSH_CODEC_RAW, ".png"},   {FSH_CODEC_JPEG, ".jpg"}, {FSH_CODEC_PNG, ".png"},
                      {FSH_CODEC_WEBP, ".webp"}, {FSH_CODEC_TIFF, ".tif"}, {FSH_CODEC_GIF, ".gif"},
                      {FSH_CODEC_BMP, ".bmp"},   {FSH_CODEC_PNM, ".ppm"},  {FSH_CODEC_Y4M, ".y4m"}};
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        if (extensions[i].codec == codec)
            return extensions[i].extension;
    }
    return "";
}

static bool begins_with_folder(const FshSample *sample, const char *name)
{
    const size_t length = strlen(name);
    return sample->key_bytes > length && memcmp(sample->key, name, length) == 0 && sample->key[length] == '/';
}

/* Returns whether the field's file is of another kind than its source, and is named so. */
static bool is_renamed(const FshField *field)
{
    return field->codec == FSH_CODEC_RAW || field->codec == FSH_CODEC_Y4M;
}

/* Writes the source's path to name. Raw pixels are a PNG: x.jpg becomes x.png or, with keeps_extension,
 * x.jpg.png; planes likewise a Y4M. Returns its length. */
static int name_by_source(const FshField *field, bool keeps_extension, char name[PATH_MAX])
{
    const int length = snprintf(name, PATH_MAX, "%.*s", (int)field->source_bytes, field->source);
    if (!is_renamed(field) || length <= 0 || length >= PATH_MAX)
        return length;
    const char *dot = strrchr(name, '.');
    const int stem = dot && !keeps_extension && image_name_is_image(name) ? (int)(dot - name) : length;
    return snprintf(name + stem, PATH_MAX - (size_t)stem, "%s", codec_extension(field->codec)) + stem;
}

/* Finds which names are wanted twice, in all of the dataset, so that what a file is called depends on no
 * order: x.jpg and x.png of one folder would both be x.png, as pixels. */
static FshStatus gather_names(Extraction *extraction, const FshDataset *dataset, FshError *error)
{
    FshStatus status = FSH_OK;
    bool any_renamed = false;
    for (size_t i = 0; i < extraction->manifest->split_count && !status; i++) {
        const FshSplit *split = fsh_split(dataset, extraction->manifest->splits[i].name);
        for (uint64_t j = 0; j < split->sample_count && !status; j++) {
            FshSample sample = {0};
            if (fsh_sample_get(split, j, &sample, NULL))
                continue; /* a problem, when its turn comes */
            for (unsigned f = 0; f < sample.field_count && !status; f++) {
                char name[PATH_MAX];
                const FshField *field = &sample.fields[f];
                const int length = field->source_bytes ? name_by_source(field, false, name) : 0;
                any_renamed = any_renamed || is_renamed(field);
                if (length > 0 && length < PATH_MAX)
                    status = source_set_add(&extraction->names, name, (size_t)length, false, error);
            }
        }
    }
    if (!any_renamed)
        source_set_free(&extraction->names);
    source_set_sort(&extraction->names);
    return status;
}

/* Makes the name of a field's file, below the folder. */
static FshStatus make_name(const Extraction *extraction, const FshSample *sample, unsigned index,
                           char name[PATH_MAX], FshError *error)
{
    const FshManifest *manifest = extraction->manifest;
    const FshField *field = &sample->fields[index];
    int length = 0;
    if (field->source_bytes) {
        length = name_by_source(field, false, name);
        if (is_renamed(field) && length > 0 && length < PATH_MAX &&
            source_set_has_twice(&extraction->names, name, (size_t)length, false) &&
            !((size_t)length == field->source_bytes && memcmp(name, field->source, field->source_bytes) == 0))
            length = name_by_source(field, true, name);
    } else {
        const char *class_name = sample->label >= 0 && (uint64_t)sample->label < manifest->class_count
                                     ? manifest->class_names[sample->label]
                                     : NULL;
        const bool with_split = manifest->split_count > 1, with_field = sample->field_count > 1;
        const bool with_class = class_name && !begins_with_folder(sample, class_name);
        length =
            snprintf(name, PATH_MAX, "%s%s%s%s%s%s%.*s%s", with_split ? extraction->split->info->name : "",
                     with_split ? "/" : "", with_field ? manifest->field_names[index] : "",
                     with_field ? "/" : "", with_class ? class_name : "", with_class ? "/" : "",
                     (int)sample->key_bytes, sample->key, codec_extension(field->codec));
    }
    if (length <= 0 || length >= PATH_MAX)
        return fsh_error_set(error, FSH_ERR_MISMATCH, "its name is too long for a path");
    if ((field->source_bytes ? memchr(field->source, 0, field->source_bytes)
                             : memchr(sample->key, 0, sample->key_bytes)) ||
        !path_stays_inside(name, (size_t)length))
        return fsh_error_set(error, FSH_ERR_MISMATCH, "its name is no path below %s: not written",
                             extraction->folder);
    return FSH_OK;
}

/* ---- files ---- */

/* Opens the folder of name, made where it is missing. *parent_ret: its descriptor, the caller's; *last_ret:
 * the name in it. */
static FshStatus open_parent(const Extraction *extraction, char *name, int *parent_ret, const char **last_ret,
                             FshError *error)
{
    int parent = dup(extraction->descriptor);
    char *part = name;
    for (char *slash = strchr(part, '/'); slash && parent >= 0; slash = strchr(part, '/')) {
        *slash = '\0';
        const bool made = mkdirat(parent, part, 0777) == 0 || errno == EEXIST;
        const int next = made ? openat(parent, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        const int failed = errno;
        (void)close(parent);
        *slash = '/';
        if (next < 0)
            return fsh_error_system(error, failed, "%.*s: cannot be a folder%s", (int)(slash - name), name,
                                    failed == ELOOP || failed == ENOTDIR ? ": a file or a link has its name"
                                                                         : "");
        parent = next;
        part = slash + 1;
    }
    if (parent < 0)
        return fsh_error_system(error, errno, "%s: cannot open its folder", name);
    *parent_ret = parent;
    *last_ret = part;
    return FSH_OK;
}

static bool write_all(int descriptor, const uint8_t *bytes, size_t length)
{
    while (length) {
        const ssize_t written = write(descriptor, bytes, length);
        if (written < 0 && errno != EINTR)
            return false;
        bytes += written > 0 ? written : 0;
        length -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* Gives the temporary file its name unless that is taken. */
static int rename_new(int parent, const char *temporary, const char *last)
{
    if (renameat2(parent, temporary, parent, last, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    /* A file system without it: a hard link is as careful. */
    return linkat(parent, temporary, parent, last, 0) ? -1 : unlinkat(parent, temporary, 0);
}

static FshStatus write_file(const Extraction *extraction, int thread, char *name, const void *bytes,
                            size_t length, FshError *error)
{
    char temporary[64];
    const char *last = NULL;
    int parent = -1;
    FshStatus status = open_parent(extraction, name, &parent, &last, error);
    if (status)
        return status;
    (void)snprintf(temporary, sizeof temporary, ".fverify.tmp-%ld-%d", (long)getpid(), thread);
    const int descriptor =
        openat(parent, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    bool written = descriptor >= 0 && write_all(descriptor, bytes, length);
    int failed = errno;
    if (descriptor >= 0 && close(descriptor) && written) {
        written = false;
        failed = errno;
    }
    if (!written) {
        status = fsh_error_system(error, failed, "%s: cannot be written", name);
    } else if (rename_new(parent, temporary, last)) {
        failed = errno;
        status = failed == EEXIST
                     ? fsh_error_set(error, FSH_ERR_EXISTS, "%s is there already: not replaced", name)
                     : fsh_error_system(error, failed, "%s: cannot be written", name);
    }
    if (status && descriptor >= 0)
        (void)unlinkat(parent, temporary, 0);
    (void)close(parent);
    return status;
}

/* ---- samples ---- */

static FshStatus extract_field(const Extraction *extraction, int thread, const FshSample *sample,
                               unsigned index, uint64_t *bytes_ret, FshError *error)
{
    ExtractThread *own = &extraction->threads[thread];
    const FshField *field = &sample->fields[index];
    char name[PATH_MAX];
    const void *data = NULL;
    size_t bytes = 0;
    FshStatus status = make_name(extraction, sample, index, name, error);
    if (!status)
        status = pixel_reader_bytes(&own->reader, extraction->split, field, &data, &bytes, error);
    if (!status && field->codec == FSH_CODEC_RAW) {
        const ImageEncodeOptions options = {.format = IMAGE_PNG};
        status = pixel_reader_decode(&own->reader, field, data, bytes, 0, NULL, error);
        if (!status && !own->encoder)
            status = image_encoder_new(&own->encoder, error);
        if (!status)
            status = image_encode(own->encoder, &own->reader.decoded, &options, &own->png, error);
        data = own->png.bytes;
        bytes = own->png.length;
    }
    if (!status)
        status = write_file(extraction, thread, name, data, bytes, error);
    *bytes_ret = bytes;
    return status;
}

static FshStatus extract_sample(uint64_t item, int thread, void *slot, void *context, FshError *error)
{
    const Extraction *extraction = context;
    Extracted *extracted = slot;
    *extracted = (Extracted){0};
    FshError *failure = &extracted->failure;
    FshStatus status = fsh_sample_get(extraction->split, item, &extracted->sample, failure);
    extracted->readable = !status;
    if (!status)
        status = fsh_sample_verify(extraction->split, item, failure);
    for (unsigned i = 0; i < extracted->sample.field_count && !status; i++) {
        uint64_t bytes = 0;
        extracted->field = i;
        status = extract_field(extraction, thread, &extracted->sample, i, &bytes, failure);
        extracted->bytes += status ? 0 : bytes;
        extracted->file_count += !status;
    }
    extracted->wrong = status != FSH_OK;
    if (status == FSH_ERR_MEMORY || status == FSH_ERR_NO_SPACE)
        return fsh_error_set(error, status, "%s: %s", extraction->folder, failure->message);
    return FSH_OK;
}

static FshStatus deliver(uint64_t item, void *slot, void *context, FshError *error)
{
    const Extraction *extraction = context;
    const Extracted *extracted = slot;
    FshStatus status = FSH_OK;
    if (extracted->wrong)
        status = verify_add_sample_problem(extraction->report, extraction->split, item,
                                           extracted->readable ? &extracted->sample : NULL, extracted->field,
                                           &extracted->failure, error);
    extraction->result->file_count += extracted->file_count;
    extraction->result->bytes += extracted->bytes;
    progress_add(extraction->progress, 1, extracted->bytes, extracted->wrong);
    return status;
}

FshStatus verify_extract(const FshDataset *dataset, const char *folder, int jobs, Progress *progress,
                         VerifyReport *report, ExtractResult *result, FshError *error)
{
    Extraction extraction = {.manifest = fsh_manifest(dataset),
                             .folder = folder,
                             .descriptor = -1,
                             .threads = calloc((size_t)jobs, sizeof *extraction.threads),
                             .progress = progress,
                             .report = report,
                             .result = result};
    *result = (ExtractResult){0};
    FshStatus status = extraction.threads ? file_make_folders(folder, error)
                                          : fsh_error_set(error, FSH_ERR_MEMORY, "%s: out of memory", folder);
    if (!status) {
        extraction.descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (extraction.descriptor < 0)
            status = fsh_error_system(error, errno, "%s: cannot be opened", folder);
    }
    if (!status)
        status = gather_names(&extraction, dataset, error);
    for (size_t i = 0; i < extraction.manifest->split_count && !status; i++) {
        extraction.split = fsh_split(dataset, extraction.manifest->splits[i].name);
        status = pool_run_ordered(jobs, extraction.split->sample_count, 0, sizeof(Extracted), extract_sample,
                                  deliver, NULL, &extraction, error);
    }
    if (status == FSH_ERR_INTERRUPTED)
        (void)fsh_error_set(error, status, "%s: interrupted; what is there is whole", folder);
    for (int thread = 0; thread < jobs && extraction.threads; thread++) {
        pixel_reader_free(&extraction.threads[thread].reader);
        image_encoder_free(&extraction.threads[thread].encoder);
        buffer_free(&extraction.threads[thread].png);
    }
    free(extraction.threads);
    source_set_free(&extraction.names);
    if (extraction.descriptor >= 0)
        (void)close(extraction.descriptor);
    return status;
}
