#include "trainer/checkpoint/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/support.h"

/* ---- writing what is read back ---- */

static const float weight[2 * 3] = {1, -2, 3.5F, 0, 1e-20F, 65504};
static const float bias[3] = {0.1F, 0.2F, 0.3F};
static const int64_t counter = 1234567890123;

static const SafetensorsTensor tensors[] = {
    {"layer.bias", SAFETENSORS_F32, 1, {3}},
    {"layer.weight", SAFETENSORS_F32, 2, {2, 3}},
    {"layer.num_batches_tracked", SAFETENSORS_I64, 0, {0}},
    {"layer.empty", SAFETENSORS_F32, 2, {0, 4}},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };
static const SafetensorsMetadata metadata[] = {{"format", "pt"}, {"model", "a \"quoted\" näme"}};

static FshStatus give_tensor(size_t number, void *values, void *context, FshError *error)
{
    (void)context;
    (void)error;
    const void *const sources[TENSORS] = {bias, weight, &counter, bias};
    const size_t sizes[TENSORS] = {sizeof bias, sizeof weight, sizeof counter, 0};
    memcpy(values, sources[number], sizes[number]);
    return FSH_OK;
}

static FshStatus give_failure(size_t number, void *values, void *context, FshError *error)
{
    (void)context;
    if (number == 2)
        return fsh_error_set(error, FSH_ERR_LIBRARY, "the device is gone");
    return give_tensor(number, values, context, error);
}

static void write_example(const char *path)
{
    FshError error = {0};
    assert_ok(safetensors_write(path, tensors, TENSORS, metadata, 2, give_tensor, NULL, &error), &error);
}

TEST_IN_FOLDER(test_what_is_written_is_read_back, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    write_example(path);
    Safetensors *file = NULL;
    FshError error = {0};
    assert_ok(safetensors_open(&file, path, &error), &error);
    assert_int_equal(safetensors_count(file), TENSORS);
    const SafetensorsEntry *entry = safetensors_find(file, "layer.weight");
    assert_non_null(entry);
    assert_int_equal(entry->rank, 2);
    assert_int_equal(entry->shape[0], 2);
    assert_int_equal(entry->shape[1], 3);
    float values[6];
    assert_ok(safetensors_read_f32(entry, values, 6, &error), &error);
    assert_memory_equal(values, weight, sizeof weight);
    entry = safetensors_find(file, "layer.num_batches_tracked");
    assert_int_equal(entry->type, SAFETENSORS_I64);
    assert_int_equal(entry->rank, 0);
    assert_memory_equal(entry->data, &counter, sizeof counter);
    assert_int_equal(safetensors_find(file, "layer.empty")->count, 0);
    assert_null(safetensors_find(file, "layer"));
    assert_string_equal(safetensors_metadata(file, "model"), "a \"quoted\" näme");
    assert_null(safetensors_metadata(file, "epoch"));
    safetensors_close(&file);
    assert_null(file);
}

TEST_IN_FOLDER(test_every_tensor_is_aligned_to_its_elements, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    write_example(path);
    Safetensors *file = NULL;
    FshError error = {0};
    assert_ok(safetensors_open(&file, path, &error), &error);
    assert_int_equal((uintptr_t)safetensors_find(file, "layer.num_batches_tracked")->data % 8, 0);
    assert_int_equal((uintptr_t)safetensors_find(file, "layer.weight")->data % 4, 0);
    safetensors_close(&file);
}

/* ---- checksums ---- */

/* Opens the file and compares its checksums, as whoever reads weights does. */
static FshStatus open_and_check(const char *path, FshError *error)
{
    Safetensors *file = NULL;
    FshStatus status = safetensors_open(&file, path, error);
    if (!status)
        status = safetensors_check(file, path, error);
    safetensors_close(&file);
    return status;
}

TEST_IN_FOLDER(test_every_flipped_bit_is_told, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    size_t length = 0;
    write_example(path);
    char *bytes = test_file_read(path, &length);
    uint64_t header_bytes = 0;
    FshError error = {0};
    memcpy(&header_bytes, bytes, sizeof header_bytes);
    assert_ok(open_and_check(path, &error), &error);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        error = (FshError){0};
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        test_file_write(path, bytes, length);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        if (!open_and_check(path, &error))
            fail_msg("bit %zu of byte %zu: nothing is told", bit % 8, bit / 8);
        assert_contains(error.message, "a.safetensors: ");
        if (bit / 8 >= 8 + header_bytes)
            assert_contains(error.message, "damaged: tensor layer.");
    }
    free(bytes);
}

TEST_IN_FOLDER(test_a_damaged_tensor_is_named, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    FshError error = {0};
    write_example(path);
    test_file_flip_byte(path, -1); /* tensors lie in the order of the caller's list, wide elements first */
    assert_int_equal(open_and_check(path, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "damaged: tensor layer.weight does not match its checksum");
}

/* As PyTorch's safetensors and older files are. */
TEST_IN_FOLDER(test_files_without_checksums_are_read, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    static const char *const keys[] = {"fshard.header_xxh3", "fshard.tensors_xxh3"};
    size_t length = 0;
    write_example(path);
    char *bytes = test_file_read(path, &length);
    for (size_t i = 0; i < 2; i++) {
        char *key = memmem(bytes, length, keys[i], strlen(keys[i]));
        FshError error = {0};
        assert_non_null(key);
        key[0] = 'F';
        test_file_write(path, bytes, length);
        if (i == 0) /* one alone is damage */
            assert_int_equal(open_and_check(path, &error), FSH_ERR_CORRUPT);
        else
            assert_ok(open_and_check(path, &error), &error);
    }
    free(bytes);
}

TEST_IN_FOLDER(test_a_wrong_count_or_type_is_refused, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    write_example(path);
    Safetensors *file = NULL;
    FshError error = {0};
    float values[8];
    assert_ok(safetensors_open(&file, path, &error), &error);
    const SafetensorsEntry *entry = safetensors_find(file, "layer.weight");
    assert_int_equal(safetensors_read_f32(entry, values, 5, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "layer.weight has 6 numbers, 5 are wanted");
    entry = safetensors_find(file, "layer.num_batches_tracked");
    assert_int_equal(safetensors_read_f32(entry, values, 1, &error), FSH_ERR_MISMATCH);
    assert_contains(error.message, "is I64");
    safetensors_close(&file);
}

TEST_IN_FOLDER(test_a_failure_while_writing_leaves_the_old_file, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    write_example(path);
    size_t before_bytes = 0, after_bytes = 0;
    char *before = test_file_read(path, &before_bytes);
    FshError error = {0};
    assert_int_equal(safetensors_write(path, tensors, TENSORS, NULL, 0, give_failure, NULL, &error),
                     FSH_ERR_LIBRARY);
    char *after = test_file_read(path, &after_bytes);
    assert_int_equal(after_bytes, before_bytes);
    assert_memory_equal(after, before, before_bytes);
    assert_int_equal(test_count_files(folder->path), 1);
    free(before);
    free(after);
}

/* ---- other floating-point types ---- */

/* Writes a file of this header, a C string, and these data; returns its path. */
static const char *write_raw(TestFolder *folder, const char *header, const void *data, size_t data_bytes)
{
    const char *path = test_path(folder, "raw.safetensors");
    size_t header_length = strlen(header);
    uint64_t header_bytes = header_length;
    size_t bytes = sizeof header_bytes + header_length + data_bytes;
    uint8_t *file = malloc(bytes);
    assert_non_null(file);
    memcpy(file, &header_bytes, sizeof header_bytes);
    for (size_t i = 0; i < header_length; i++)
        file[sizeof header_bytes + i] = (uint8_t)header[i];
    if (data_bytes)
        memcpy(file + sizeof header_bytes + header_length, data, data_bytes);
    test_file_write(path, file, bytes);
    free(file);
    return path;
}

static void assert_values(TestFolder *folder, const char *header, const void *data, size_t data_bytes,
                          const float *expected, size_t count)
{
    const char *path = write_raw(folder, header, data, data_bytes);
    Safetensors *file = NULL;
    FshError error = {0};
    float values[8];
    assert_ok(safetensors_open(&file, path, &error), &error);
    assert_ok(safetensors_read_f32(safetensors_find(file, "x"), values, count, &error), &error);
    assert_memory_equal(values, expected, count * sizeof *values);
    safetensors_close(&file);
}

TEST_IN_FOLDER(test_half_precision_is_read, folder)
{
    /* 1, -2, largest, smallest normal, smallest subnormal, -0, infinity */
    const uint16_t data[] = {0x3C00, 0xC000, 0x7BFF, 0x0400, 0x0001, 0x8000, 0x7C00};
    const float expected[] = {1, -2, 65504, 0x1p-14F, 0x1p-24F, -0.0F, INFINITY};
    assert_values(folder, "{\"x\":{\"dtype\":\"F16\",\"shape\":[7],\"data_offsets\":[0,14]}}", data,
                  sizeof data, expected, 7);
}

TEST_IN_FOLDER(test_bfloat16_and_double_are_read, folder)
{
    const uint16_t brain[] = {0x3F80, 0xC000, 0x7F80};
    const float brain_expected[] = {1, -2, INFINITY};
    assert_values(folder, "{\"x\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[0,6]}}", brain,
                  sizeof brain, brain_expected, 3);
    const double wide[] = {0.1, -1e300};
    const float wide_expected[] = {0.1F, -INFINITY};
    assert_values(folder, "{\"x\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", wide,
                  sizeof wide, wide_expected, 2);
}

/* ---- hostile files ---- */

TEST_IN_FOLDER(test_hostile_headers_are_refused, folder)
{
    /* With 8 bytes of data each. */
    static const struct {
        const char *header;
        FshStatus status;
        const char *part;
    } cases[] = {
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", FSH_OK, ""},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}", FSH_ERR_CORRUPT,
         "no JSON object"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         FSH_ERR_CORRUPT, "duplicate"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", FSH_ERR_CORRUPT,
         "which is not its shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", FSH_ERR_CORRUPT,
         "does not lie within"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", FSH_ERR_CORRUPT,
         "does not lie within"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", FSH_ERR_CORRUPT,
         "does not lie within"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", FSH_ERR_CORRUPT,
         "does not lie within"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0.0,8.0]}}", FSH_ERR_CORRUPT,
         "does not lie within"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", FSH_ERR_CORRUPT, "does not lie within"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", FSH_ERR_CORRUPT,
         "impossible shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,8]}}",
         FSH_ERR_CORRUPT, "impossible shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,1],\"data_offsets\":[0,8]}}",
         FSH_ERR_CORRUPT, "which is not its shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", FSH_ERR_CORRUPT, "has no shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}",
         FSH_ERR_UNSUPPORTED, "9 dimensions"},
        {"{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", FSH_ERR_UNSUPPORTED,
         "F8_E4M3"},
        {"{\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}}", FSH_ERR_CORRUPT, "has no dtype"},
        {"{\"x\":[1,2]}", FSH_ERR_CORRUPT, "has no dtype"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", FSH_ERR_CORRUPT,
         "belong to no tensor"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", FSH_ERR_CORRUPT, "leaves a gap"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         FSH_ERR_CORRUPT, "overlaps"},
        {"{\"__metadata__\":[],\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         FSH_ERR_CORRUPT, "__metadata__ is no object"},
        {"{\"__metadata__\":{\"a\":1},\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         FSH_ERR_CORRUPT, "__metadata__ a is no string"},
        {"{}", FSH_ERR_CORRUPT, "belong to no tensor"},
        {"[1]", FSH_ERR_CORRUPT, "not a safetensors file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = write_raw(folder, cases[i].header, "12345678", 8);
        Safetensors *file = NULL;
        FshError error = {0};
        FshStatus status = safetensors_open(&file, path, &error);
        if (status != cases[i].status)
            fail_msg("%s: status %d, message '%s'", cases[i].header, status, error.message);
        assert_contains(error.message, cases[i].part);
        assert_true((file != NULL) == (status == FSH_OK));
        safetensors_close(&file);
    }
}

TEST_IN_FOLDER(test_lengths_beyond_the_file_are_refused, folder)
{
    const char *path = test_path(folder, "short.safetensors");
    const uint64_t lengths[] = {3, 1000, 100000001, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t bytes[10] = {[8] = '{', [9] = '}'};
        memcpy(bytes, &lengths[i], 8);
        test_file_write(path, bytes, sizeof bytes);
        Safetensors *file = NULL;
        FshError error = {0};
        assert_int_equal(safetensors_open(&file, path, &error), FSH_ERR_CORRUPT);
        assert_null(file);
    }
    /* A whole page, so that reading on past it would be noticed. */
    enum { PAGE = 4096 };
    char page[PAGE];
    const uint64_t beyond = 2 * (uint64_t)PAGE;
    memset(page, ' ', sizeof page);
    memcpy(page, &beyond, sizeof beyond);
    page[8] = '{';
    test_file_write(path, page, sizeof page);
    Safetensors *file = NULL;
    FshError error = {0};
    assert_int_equal(safetensors_open(&file, path, &error), FSH_ERR_CORRUPT);
    assert_contains(error.message, "cut short");
}

TEST_IN_FOLDER(test_a_file_cut_anywhere_is_refused, folder)
{
    const char *path = test_path(folder, "a.safetensors");
    write_example(path);
    for (uint64_t length = test_file_size(path); length > 0; length--) {
        test_file_truncate(path, (int64_t)length - 1);
        Safetensors *file = NULL;
        FshError error = {0};
        assert_int_equal(safetensors_open(&file, path, &error), FSH_ERR_CORRUPT);
        assert_contains(error.message, "a.safetensors: ");
    }
}

TEST_IN_FOLDER(test_a_missing_file_is_not_found, folder)
{
    Safetensors *file = NULL;
    FshError error = {0};
    assert_int_equal(safetensors_open(&file, test_path(folder, "none"), &error), FSH_ERR_NOT_FOUND);
}

/* ---- the format, as another program reads it ---- */

TEST_IN_FOLDER(test_numpy_reads_what_is_written, folder)
{
    const char *path = test_path(folder, "a.safetensors"), *script = test_path(folder, "read.py");
    write_example(path);
    test_file_write_text(
        script,
        "import json, struct, sys\n"
        "try:\n"
        "    import numpy as np\n"
        "except ImportError:\n"
        "    sys.exit(77)\n"
        "raw = open(sys.argv[1], 'rb').read()\n"
        "n = struct.unpack('<Q', raw[:8])[0]\n"
        "assert n % 8 == 0, n\n"
        "header = json.loads(raw[8:8 + n])\n"
        "assert header.pop('__metadata__')['format'] == 'pt'\n"
        "types = {'F32': '<f4', 'I64': '<i8'}\n"
        "end = 0\n"
        "t = {}\n"
        "for name, e in sorted(header.items(), key=lambda kv: kv[1]['data_offsets']):\n"
        "    a, b = e['data_offsets']\n"
        "    assert a == end, (name, a, end)\n"
        "    end = b\n"
        "    t[name] = np.frombuffer(raw[8 + n + a:8 + n + b], types[e['dtype']]).reshape(e['shape'])\n"
        "assert 8 + n + end == len(raw)\n"
        "assert (t['layer.weight'] == np.float32([[1, -2, 3.5], [0, 1e-20, 65504]])).all()\n"
        "assert (t['layer.bias'] == np.float32([.1, .2, .3])).all()\n"
        "assert t['layer.num_batches_tracked'] == 1234567890123\n"
        "assert t['layer.num_batches_tracked'].shape == ()\n"
        "assert t['layer.empty'].shape == (0, 4)\n");
    const char *python = "/usr/bin/python3";
    FILE *there = fopen(python, "rb");
    if (!there)
        skip();
    (void)fclose(there);
    RunResult result = run_program(NULL, python, script, path, NULL);
    int exit_status = result.exit_status;
    if (exit_status != 77)
        assert_string_equal(result.err, "");
    run_result_free(&result);
    if (exit_status == 77)
        skip();
    assert_int_equal(exit_status, 0);
}
