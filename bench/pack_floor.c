/* pack_floor.c - times libjpeg alone decoding a tree of photographs on several threads: nearly a lower bound
 * for fpack --store raw. With OUT it also writes each image's pixels to that file, which fpack must do too.
 *
 *   pack_floor DIR JOBS [OUT]
 *
 * prints "COUNT SECONDS CPU BYTES": JPEGs decoded, by the clock, CPU seconds of all threads, bytes of their
 * pixels. Files are read before the clock starts. Files that are not JPEGs, or damaged, are skipped. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/file.h"
#include "common/pool.h"
#include "common/progress.h"
#include "common/walk.h"
#include "imaging/image.h"
#include "imaging/jpeg_guard.h"

typedef struct FloorThread {
    JpegGuard guard;
    struct jpeg_decompress_struct decompress;
    bool ready;
    Image image;
    const Buffer *file; /* the current one */
    uint64_t count, bytes;
} FloorThread;

typedef struct Floor {
    Buffer *files;
    FloorThread *threads;
    int out; /* -1: pixels are not written */
    _Atomic uint64_t out_bytes;
} Floor;

static void decode(void *context)
{
    FloorThread *own = context;
    struct jpeg_decompress_struct *cinfo = &own->decompress;
    jpeg_mem_src(cinfo, own->file->bytes, own->file->length);
    (void)jpeg_read_header(cinfo, TRUE);
    cinfo->out_color_space = cinfo->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    (void)jpeg_start_decompress(cinfo);
    if (image_reserve(&own->image, cinfo->output_width, cinfo->output_height,
                      (uint32_t)cinfo->output_components, own->guard.error))
        jpeg_guard_fail(&own->guard, FSH_ERR_MEMORY);
    const size_t row_bytes = (size_t)cinfo->output_width * (size_t)cinfo->output_components;
    while (cinfo->output_scanline < cinfo->output_height) {
        JSAMPROW row = own->image.pixels + cinfo->output_scanline * row_bytes;
        (void)jpeg_read_scanlines(cinfo, &row, 1);
    }
    (void)jpeg_finish_decompress(cinfo);
    own->count++;
    own->bytes += row_bytes * cinfo->output_height;
}

static void create(void *context)
{
    FloorThread *own = context;
    jpeg_create_decompress(&own->decompress);
}

static FshStatus decode_one(uint64_t item, int thread, void *context, FshError *error)
{
    Floor *floor = context;
    FloorThread *own = &floor->threads[thread];
    FshError failure = {0};
    if (!own->ready) {
        jpeg_guard_init(&own->guard);
        own->decompress.err = &own->guard.manager;
        FshStatus status = jpeg_guard(&own->guard, create, own, error);
        if (status)
            return status;
        own->ready = true;
    }
    own->file = &floor->files[item];
    jpeg_guard_reset(&own->guard, true);
    if (jpeg_guard(&own->guard, decode, own, &failure)) {
        jpeg_abort_decompress(&own->decompress);
        return FSH_OK;
    }
    const size_t bytes = (size_t)own->image.width * own->image.height * own->image.channels;
    const uint64_t offset = atomic_fetch_add(&floor->out_bytes, bytes);
    if (floor->out >= 0 && pwrite(floor->out, own->image.pixels, bytes, (off_t)offset) != (ssize_t)bytes)
        return fsh_error_set(error, FSH_ERR_SYSTEM, "cannot write the pixels");
    return FSH_OK;
}

static FshStatus read_files(const char *root, const FileList *list, Floor *floor, FshError *error)
{
    FshStatus status = FSH_OK;
    for (uint64_t i = 0; i < list->count && !status; i++) {
        char path[4096];
        status = file_join(path, sizeof path, root, list->files[i].path, error);
        if (!status)
            status = file_read(path, &floor->files[i], error);
    }
    return status;
}

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    FileList list = {0};
    FshError error = {0};
    Floor floor = {.out = -1};
    const int jobs = argc == 3 || argc == 4 ? atoi(argv[2]) : 0;
    if (jobs < 1) {
        (void)fputs("usage: pack_floor DIR JOBS [OUT]\n", stderr);
        return 2;
    }
    if (argc == 4 && (floor.out = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0) {
        perror(argv[3]);
        return 1;
    }
    FshStatus status = walk_files(argv[1], jobs, &list, &error);
    if (!status) {
        floor.files = calloc(list.count + 1, sizeof *floor.files);
        floor.threads = calloc((size_t)jobs, sizeof *floor.threads);
        if (!floor.files || !floor.threads)
            status = fsh_error_set(&error, FSH_ERR_MEMORY, "out of memory");
    }
    if (!status)
        status = read_files(argv[1], &list, &floor, &error);
    const double begin = progress_now_seconds(), cpu_begin = cpu_seconds();
    if (!status)
        status = pool_run(jobs, list.count, decode_one, &floor, &error);
    const double seconds = progress_now_seconds() - begin, cpu = cpu_seconds() - cpu_begin;
    uint64_t count = 0, bytes = 0;
    for (int i = 0; floor.threads && i < jobs; i++) {
        count += floor.threads[i].count;
        bytes += floor.threads[i].bytes;
        if (floor.threads[i].ready)
            jpeg_destroy_decompress(&floor.threads[i].decompress);
        image_free(&floor.threads[i].image);
    }
    if (status)
        (void)fprintf(stderr, "pack_floor: %s\n", error.message);
    else
        (void)printf("%llu %.4f %.4f %llu\n", (unsigned long long)count, seconds, cpu,
                     (unsigned long long)bytes);
    for (uint64_t i = 0; floor.files && i < list.count; i++)
        buffer_free(&floor.files[i]);
    free(floor.files);
    free(floor.threads);
    file_list_free(&list);
    if (floor.out >= 0)
        (void)close(floor.out);
    return status ? 1 : 0;
}
