/* huffman_speed.c - libjpeg-turbo's reader of Huffman codes and ours (imaging/jpeg_huffman.h), in turn.
 *
 * Every baseline JPEG below a folder is read into memory. First all coefficients are read by both and
 * compared. Then, at each scale, the planes are decoded as fresize has them, with one reader and then the
 * other: what differs is the reader alone.
 *
 *   huffman_speed DIR [ROUNDS]      ROUNDS: 5; the best one counts, in CPU time of this thread
 *
 * prints for coefficients (as jpeg_read_coefficients keeps them) and for planes at 1/8, 1/4, 1/2 and in
 * full the milliseconds of an image by libjpeg's reader, by ours, and their ratio. Files that are not
 * JPEGs, cannot be decoded or are not read by ours are counted on stderr. Exit status 1: coefficients
 * differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "common/walk.h"
#include "imaging/image.h"
#include "imaging/jpeg_huffman.h"

enum { COMPONENTS_MAX = 4, GROUP_ROWS_MAX = 32, ROUNDS_DEFAULT = 5 };

typedef struct Bench {
    JpegGuard guard;
    struct jpeg_decompress_struct cinfo;
    void (*realize_virt_arrays)(j_common_ptr cinfo); /* libjpeg's own */
    JpegHuffman *huffman;
    bool ours;        /* which reader */
    bool attached;    /* ours reads the current file */
    unsigned eighths; /* 0: coefficients */
    const Buffer *file;
    Buffer *coefficients; /* where they are kept to be compared; NULL: not */
    Buffer rows;          /* of one group of planes */
} Bench;

static double cpu_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void on_realize(j_common_ptr common)
{
    Bench *bench = common->client_data;
    if (bench->ours) {
        jpeg_huffman_attach(bench->huffman, &bench->cinfo);
        bench->attached = (void *)bench->cinfo.entropy == (void *)bench->huffman;
    }
    bench->realize_virt_arrays(common);
}

static void step_create(void *context)
{
    Bench *bench = context;
    jpeg_create_decompress(&bench->cinfo);
    bench->cinfo.client_data = bench;
    bench->realize_virt_arrays = bench->cinfo.mem->realize_virt_arrays;
    bench->cinfo.mem->realize_virt_arrays = on_realize;
}

static void read_coefficients(Bench *bench)
{
    struct jpeg_decompress_struct *cinfo = &bench->cinfo;
    jvirt_barray_ptr *arrays = jpeg_read_coefficients(cinfo);
    for (int i = 0; bench->coefficients && i < cinfo->num_components; i++) {
        const jpeg_component_info *component = &cinfo->comp_info[i];
        for (JDIMENSION y = 0; y < component->height_in_blocks; y++) {
            JBLOCKARRAY rows = cinfo->mem->access_virt_barray((j_common_ptr)cinfo, arrays[i], y, 1, FALSE);
            if (buffer_append(bench->coefficients, rows[0], component->width_in_blocks * sizeof(JBLOCK),
                              bench->guard.error))
                jpeg_guard_fail(&bench->guard, FSH_ERR_MEMORY);
        }
    }
}

static void read_planes(Bench *bench)
{
    struct jpeg_decompress_struct *cinfo = &bench->cinfo;
    JSAMPROW rows[COMPONENTS_MAX][GROUP_ROWS_MAX];
    JSAMPARRAY planes[COMPONENTS_MAX];
    cinfo->raw_data_out = TRUE;
    cinfo->scale_num = bench->eighths;
    cinfo->scale_denom = DCTSIZE;
    (void)jpeg_start_decompress(cinfo);
    const size_t stride = (size_t)cinfo->MCUs_per_row * GROUP_ROWS_MAX;
    if (buffer_reserve(&bench->rows, COMPONENTS_MAX * GROUP_ROWS_MAX * stride, bench->guard.error))
        jpeg_guard_fail(&bench->guard, FSH_ERR_MEMORY);
    for (int i = 0; i < COMPONENTS_MAX; i++) {
        planes[i] = rows[i];
        for (int y = 0; y < GROUP_ROWS_MAX; y++)
            rows[i][y] = bench->rows.bytes + (size_t)(i * GROUP_ROWS_MAX + y) * stride;
    }
    while (cinfo->output_scanline < cinfo->output_height)
        (void)jpeg_read_raw_data(cinfo, planes, GROUP_ROWS_MAX);
}

static void step_read(void *context)
{
    Bench *bench = context;
    jpeg_mem_src(&bench->cinfo, bench->file->bytes, bench->file->length);
    (void)jpeg_read_header(&bench->cinfo, TRUE);
    if (bench->eighths)
        read_planes(bench);
    else
        read_coefficients(bench);
    (void)jpeg_finish_decompress(&bench->cinfo);
}

static FshStatus read_file(Bench *bench, const Buffer *file, bool ours, FshError *error)
{
    bench->file = file;
    bench->ours = ours;
    bench->attached = false;
    jpeg_guard_reset(&bench->guard, true);
    FshStatus status = jpeg_guard(&bench->guard, step_read, bench, error);
    if (status)
        jpeg_abort_decompress(&bench->cinfo);
    return status;
}

/* Reads the coefficients both ways and compares them. *kept_ret: the file is one to measure with. Returns
 * false if they differ. */
static bool compare(Bench *bench, const Buffer *file, Buffer coefficients[2], bool *kept_ret)
{
    FshError error = {0};
    *kept_ret = true;
    for (int ours = 0; ours < 2 && *kept_ret; ours++) {
        coefficients[ours].length = 0;
        bench->coefficients = &coefficients[ours];
        *kept_ret = read_file(bench, file, ours, &error) == FSH_OK && bench->attached == ours;
    }
    bench->coefficients = NULL;
    return !*kept_ret || (coefficients[0].length == coefficients[1].length &&
                          memcmp(coefficients[0].bytes, coefficients[1].bytes, coefficients[0].length) == 0);
}

/* Times all files at one scale, in turn, and prints the best rounds. */
static void measure(Bench *bench, const Buffer *files, size_t count, unsigned eighths, long rounds)
{
    static const char *const names[] = {"coefficients", "1/8", "1/4", [4] = "1/2", [8] = "in full"};
    double best[2] = {1e9, 1e9};
    FshError error = {0};
    bench->eighths = eighths;
    for (long round = 0; round < rounds; round++) {
        for (int ours = 0; ours < 2; ours++) {
            const double start = cpu_seconds();
            for (size_t i = 0; i < count; i++)
                (void)read_file(bench, &files[i], ours, &error); /* it was read before */
            const double seconds = cpu_seconds() - start;
            best[ours] = seconds < best[ours] ? seconds : best[ours];
        }
    }
    (void)printf("%-12s libjpeg %.3f ms  ours %.3f ms  ratio %.2f\n", names[eighths],
                 best[0] * 1e3 / (double)count, best[1] * 1e3 / (double)count, best[0] / best[1]);
}

/* Reads the files below root that are to be measured with, *count_ret of them and one buffer more. Counts
 * those whose coefficients differ. */
static FshStatus take_files(Bench *bench, const char *root, Buffer **files_ret, size_t *count_ret,
                            unsigned *differ_ret, FshError *error)
{
    FileList list = {0};
    Buffer coefficients[2] = {{0}};
    FshStatus status = walk_files(root, 1, &list, error);
    Buffer *files = status ? NULL : calloc(list.count + 1, sizeof *files);
    size_t count = 0;
    if (!status && !files)
        status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for the list of files");
    for (uint64_t i = 0; !status && i < list.count; i++) {
        char *name = NULL;
        FshError of_file = {0};
        bool kept = false;
        if (asprintf(&name, "%s/%s", root, list.files[i].path) < 0) {
            status = fsh_error_set(error, FSH_ERR_MEMORY, "no memory for a path");
            break;
        }
        Buffer *file = &files[count];
        if (!file_read(name, file, &of_file) && image_sniff(file->bytes, file->length) == IMAGE_JPEG &&
            !compare(bench, file, coefficients, &kept)) {
            (void)fprintf(stderr, "huffman_speed: %s: coefficients differ\n", name);
            ++*differ_ret;
        }
        count += kept;
        free(name);
    }
    (void)fprintf(stderr, "huffman_speed: %zu photographs, %llu left out\n", count,
                  (unsigned long long)(list.count - count));
    buffer_free(&coefficients[0]);
    buffer_free(&coefficients[1]);
    *files_ret = files;
    *count_ret = count;
    file_list_free(&list);
    return status;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    const long rounds = argc == 3 ? strtol(argv[2], &end, 10) : ROUNDS_DEFAULT;
    if (argc < 2 || argc > 3 || (end && *end) || rounds < 1 || rounds > 1000) {
        (void)fprintf(stderr, "usage: huffman_speed DIR [ROUNDS]\n");
        return 2;
    }
    Bench bench = {0};
    Buffer *files = NULL;
    size_t count = 0;
    unsigned differ = 0;
    FshError error = {0};
    jpeg_guard_init(&bench.guard);
    bench.cinfo.err = &bench.guard.manager;
    FshStatus status = jpeg_huffman_new(&bench.huffman, &error);
    if (!status)
        status = jpeg_guard(&bench.guard, step_create, &bench, &error);
    if (!status)
        status = take_files(&bench, argv[1], &files, &count, &differ, &error);
    for (unsigned eighths = 0; !status && count && eighths <= DCTSIZE; eighths += eighths ? eighths : 1)
        measure(&bench, files, count, eighths, rounds);
    if (status)
        (void)fprintf(stderr, "huffman_speed: %s\n", error.message);
    for (size_t i = 0; i <= count && files; i++)
        buffer_free(&files[i]);
    free(files);
    buffer_free(&bench.rows);
    jpeg_destroy_decompress(&bench.cinfo);
    jpeg_huffman_free(&bench.huffman);
    return status || differ || !count ? 1 : 0;
}
