/* Processes that decode a split together: each does a share, and all have what one alone has. The ranks'
 * own way to share memory: train_pixels_test.c. */
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/support.h"
#include "tests/trainer/dataset_support.h"
#include "trainer/data/decoded_split.h"

enum { MOST = 3, SHARES_MOST = 8, CALLS_MOST = 64, SHARE_BYTES = 1 << 20, PART_BYTES = 180000 };

/* ---- a team of processes that a test has forked ---- */

/* What the processes see of each other. */
typedef struct Common {
    pthread_barrier_t barrier;
    atomic_int failures[CALLS_MOST];   /* of each call of agree */
    atomic_int decoded, copied, rooms; /* rooms: of memory, taken from the end by stores of parts */
    alignas(4096) char memory[SHARES_MOST][SHARE_BYTES]; /* for each call of share */
} Common;

typedef struct Member {
    DecodeTeam team;
    Common *common;
    int shares, calls; /* of share and of agree, so far */
    bool separate;     /* nothing can be shared */
} Member;

static Common *common; /* of the running test, for the functions of the form and the store */

static FshStatus agree(void *context, FshStatus mine, FshError *error)
{
    Member *member = context;
    if (member->calls == CALLS_MOST)
        return fsh_error_set(error, FSH_ERR_MEMORY, "the test counts no more calls");
    atomic_int *call = &member->common->failures[member->calls++];
    if (mine)
        (void)atomic_fetch_add(call, 1);
    (void)pthread_barrier_wait(&member->common->barrier);
    const int failures = atomic_load(call);
    return mine ? mine : failures ? fsh_error_set(error, FSH_ERR_SYSTEM, "another has failed") : FSH_OK;
}

static FshStatus share(void *context, size_t bytes, void **memory_ret, FshError *error)
{
    Member *member = context;
    *memory_ret = NULL;
    if (member->separate)
        return FSH_OK;
    if (member->shares == SHARES_MOST || bytes > SHARE_BYTES)
        return fsh_error_set(error, FSH_ERR_MEMORY, "the test has no such memory: %zu bytes", bytes);
    *memory_ret = member->common->memory[member->shares++];
    return FSH_OK;
}

/* ---- forms and stores that count ---- */

static FshStatus measure_image(SampleLoader *samples, unsigned side, uint32_t decoded, DecodedImage *image,
                               FshError *error)
{
    return decoded_rows.measure(samples, side, decoded, image, error);
}

static FshStatus write_image(SampleLoader *samples, unsigned side, uint32_t decoded,
                             const DecodedImage *image, uint8_t *to, FshError *error)
{
    (void)atomic_fetch_add(&common->decoded, 1);
    return decoded_rows.write(samples, side, decoded, image, to, error);
}

static const DecodedForm counting = {.measure = measure_image, .write = write_image};

typedef struct FakeStore {
    PixelStore base;
    uint8_t *pixels;
} FakeStore;

static FshStatus put(PixelStore *store, uint64_t offset, const void *pixels, size_t bytes, FshError *error)
{
    (void)error;
    (void)atomic_fetch_add(&common->copied, 1);
    memcpy(((FakeStore *)store)->pixels + offset, pixels, bytes);
    return FSH_OK;
}

/* Of a store of parts pixels are `own` of the whole, and lie in memory that all see: as another GPU's
 * would. */
typedef struct PartStore {
    FakeStore store;
    PixelStoreKey own;
    uint8_t *parts[MOST];
    uint64_t begins[MOST];
    size_t part_count;
} PartStore;

static FshStatus put_part(PixelStore *store, uint64_t offset, const void *pixels, size_t bytes,
                          FshError *error)
{
    return put(store, offset - ((PartStore *)store)->own.begin_bytes, pixels, bytes, error);
}

static FshStatus new_part(PixelStore **store, Backend *backend, uint64_t bytes, const PixelStoreKey *own,
                          FshError *error)
{
    PartStore *made = calloc(1, sizeof *made);
    const int room = atomic_fetch_add(&common->rooms, 1);
    if (!made || own->bytes > SHARE_BYTES) {
        free(made);
        return fsh_error_set(error, FSH_ERR_MEMORY, "no such memory");
    }
    made->store = (FakeStore){.base = {.backend = backend, .bytes = bytes},
                              .pixels = (uint8_t *)common->memory[SHARES_MOST - 1 - room]};
    made->own = *own;
    *store = &made->store.base;
    return FSH_OK;
}

static FshStatus part_key(PixelStore *store, PixelStoreKey *key_ret, FshError *error)
{
    const PartStore *part = (const PartStore *)store;
    (void)error;
    *key_ret = part->own;
    memcpy(key_ret->handle, &part->store.pixels,
           sizeof part->store.pixels); /* mapped before the fork: the same in all */
    return FSH_OK;
}

static FshStatus join_parts(PixelStore *store, const PixelStoreKey *keys, size_t count, size_t own,
                            FshError *error)
{
    PartStore *part = (PartStore *)store;
    (void)error;
    part->part_count = count;
    for (size_t i = 0; i < count; i++) {
        memcpy(&part->parts[i], keys[i].handle, sizeof part->parts[i]);
        part->begins[i] = keys[i].begin_bytes;
    }
    return part->parts[own] == part->store.pixels ? FSH_OK : FSH_ERR_MISMATCH;
}

static FshStatus free_memory(Backend *backend, uint64_t *bytes_ret, FshError *error)
{
    (void)backend;
    (void)error;
    *bytes_ret = (256 << 20) + PART_BYTES; /* the source leaves 256 MiB alone */
    return FSH_OK;
}

static void free_store(PixelStore *store)
{
    free(store);
}

static const PixelInterface fake_pixels = {.store_put = put};
static const PixelInterface part_pixels = {.store_put = put_part,
                                           .store_new_part = new_part,
                                           .store_key = part_key,
                                           .store_join = join_parts,
                                           .store_free = free_store,
                                           .free_memory = free_memory};
static const BackendInterface part_interface = {.device = "parts", .pixels = &part_pixels};
static Backend part_backend = {.interface = &part_interface};
static const BackendInterface fake_interface = {.device = "fake", .pixels = &fake_pixels};
static Backend fake = {.interface = &fake_interface};

/* ---- one process ---- */

/* What a test asks of its processes. */
typedef struct Case {
    DatasetSpec spec;
    bool into_store, separate, skip_bad;
} Case;

static const DatasetSpec jpegs = {.codec = FSH_CODEC_JPEG,
                                  .width = 17,
                                  .height = 15,
                                  .channels = 3,
                                  .class_count = 4,
                                  .train_count = 300,
                                  .val_count = 5,
                                  .shard_count = 3,
                                  .grow = 3};

/* Decodes the split; *pixels_ret, of split->bytes, belongs to the split or, from a store, to the caller. */
static FshStatus decode(const Case *test, const FshSplit *split, const DecodeTeam *team,
                        DecodedSplit *decoded, uint8_t **pixels_ret, FshError *error)
{
    const bool pairs = test->spec.kind == FSH_KIND_PAIRS;
    PixelSource source = {.type = pixel_source_type("pixels")};
    source.options = (PixelSourceOptions){
        .samples = {.split = split, .kind = pairs ? FSH_KIND_PAIRS : FSH_KIND_CLASSES, .target_field = pairs},
        .channels = 3,
        .threads = 2,
        .skip_bad = test->skip_bad,
        .team = team,
        .backend = &fake};
    FakeStore store = {.base = {.backend = &fake}};
    FshStatus status = decoded_split_measure(decoded, &source.options, &counting, error);
    if (!status && test->into_store) {
        store.base.bytes = decoded->bytes;
        store.pixels = malloc(decoded->bytes + 1);
        status = decoded_split_load_store(decoded, &source.options, &store.base, error);
    } else if (!status) {
        status = decoded_split_load_ram(decoded, &source, error);
    }
    *pixels_ret = test->into_store ? store.pixels : decoded->pixels.bytes;
    return status;
}

/* Returns whether two splits hold the same: places, labels, pixels, and what is wrong with which sample. */
static bool are_same(const DecodedSplit *a, const uint8_t *a_pixels, const DecodedSplit *b,
                     const uint8_t *b_pixels)
{
    bool same =
        a->bytes == b->bytes && (!a->labels || memcmp(a->labels, b->labels, a->sample_count * 8) == 0);
    for (uint64_t i = 0; i < a->sample_count && same; i++) {
        same = !a->problems[i] == !b->problems[i] &&
               (!a->problems[i] || strcmp(a->problems[i], b->problems[i]) == 0);
        for (unsigned side = 0; side < a->sides && same && !a->problems[i]; side++) {
            const DecodedImage *x = decoded_image(a, i, side), *y = decoded_image(b, i, side);
            same = x->offset_bytes == y->offset_bytes && x->bytes == y->bytes && x->width == y->width &&
                   x->height == y->height && x->channels == y->channels &&
                   memcmp(a_pixels + x->offset_bytes, b_pixels + y->offset_bytes, x->bytes) == 0;
        }
    }
    return same;
}

/* Decodes in the team, then alone, and compares. Returns an exit status: 0, or 1 with a message for the
 * log. */
static int decode_and_compare(const Case *test, const char *path, uint64_t index, uint64_t count)
{
    Member member = {
        .team = {.index = index, .count = count, .room_bytes = 60000, .agree = agree, .share = share},
        .common = common,
        .separate = test->separate};
    member.team.context = &member;
    FshDataset *dataset = NULL;
    FshError error = {0};
    DecodedSplit together = {0}, alone = {0};
    uint8_t *pixels = NULL, *own = NULL;
    FshStatus status = fsh_open(&dataset, path, &error);
    if (!status)
        status = decode(test, fsh_split(dataset, "train"), &member.team, &together, &pixels, &error);
    (void)agree(&member, FSH_OK, NULL); /* before what is decoded alone is counted, too */
    const int decoded = atomic_load(&common->decoded);
    (void)agree(&member, FSH_OK, NULL);
    if (!status)
        status = decode(test, fsh_split(dataset, "train"), NULL, &alone, &own, &error);
    const uint64_t images = alone.sample_count * alone.sides, shares = test->separate ? count : 1;
    const bool fair = test->skip_bad || (uint64_t)decoded == images * shares;
    const bool well = !status && fair && are_same(&together, pixels, &alone, own);
    if (!well)
        (void)fprintf(stderr, "process %d: %s; %d decoded\n", (int)index, error.message, decoded);
    return !well; /* memory goes with the process */
}

/* Returns whether the parts of all processes together have the pixels of a split that one has decoded
 * alone. */
static bool parts_have(const DecodedSplit *together, const PartStore *store, const DecodedSplit *alone,
                       const uint8_t *pixels)
{
    bool same = together->bytes == alone->bytes && together->bytes > PART_BYTES && store->part_count > 1;
    for (uint64_t i = 0; i < alone->sample_count && same; i++) {
        const DecodedImage *image = decoded_image(together, i, 0), *own = decoded_image(alone, i, 0);
        size_t part = store->part_count - 1;
        while (store->begins[part] > image->offset_bytes)
            part--;
        same = image->bytes == own->bytes &&
               memcmp(store->parts[part] + (image->offset_bytes - store->begins[part]),
                      pixels + own->offset_bytes, own->bytes) == 0;
    }
    return same;
}

/* Loads --cache gpu where the images do not fit into the store of one process, and compares. */
static int divide_and_compare(const Case *test, const char *path, uint64_t index, uint64_t count)
{
    Member member = {
        .team = {.index = index, .count = count, .room_bytes = 60000, .agree = agree, .share = share},
        .common = common};
    member.team.context = &member;
    FshDataset *dataset = NULL;
    PixelSource *source = NULL;
    FshError error = {0};
    DecodedSplit alone = {0};
    uint8_t *own = NULL;
    FshStatus status = fsh_open(&dataset, path, &error);
    const PixelSourceOptions options = {
        .samples = {.split = fsh_split(dataset, "train"), .kind = FSH_KIND_CLASSES},
        .channels = 3,
        .threads = 2,
        .team = &member.team,
        .backend = &part_backend};
    if (!status)
        status = pixel_source_new(&source, pixel_source_type("gpu"), &options, &error);
    if (!status)
        status = pixel_source_measure(source, &error);
    if (!status)
        status = pixel_source_load(source, &error);
    if (!status)
        status = decode(test, fsh_split(dataset, "train"), NULL, &alone, &own, &error);
    const bool well =
        !status && parts_have(decoded_split_of(source), (const PartStore *)source->store, &alone, own);
    if (!well)
        (void)fprintf(stderr, "process %d: %s\n", (int)index, error.message);
    (void)pthread_barrier_wait(&common->barrier); /* the others look at this one's part */
    return !well;
}

/* Runs the case in 2 and 3 processes. */
static void run_case(TestFolder *folder, const Case *test,
                     int (*run)(const Case *test, const char *path, uint64_t index, uint64_t count))
{
    for (uint64_t count = 2; count <= MOST; count++) {
        const char *path = test_path(folder, "set%d", (int)count);
        pid_t children[MOST];
        dataset_make(path, &test->spec);
        common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        assert_true(common != MAP_FAILED);
        pthread_barrierattr_t across;
        assert_int_equal(pthread_barrierattr_init(&across), 0);
        assert_int_equal(pthread_barrierattr_setpshared(&across, PTHREAD_PROCESS_SHARED), 0);
        assert_int_equal(pthread_barrier_init(&common->barrier, &across, (unsigned)count), 0);
        for (uint64_t i = 0; i < count; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0)
                _exit(run(test, path, i, count));
        }
        for (uint64_t i = 0; i < count; i++) {
            int status = 1;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_int_equal(status, 0);
        }
        assert_int_equal(munmap(common, sizeof *common), 0);
    }
}

/* ---- the tests ---- */

TEST_IN_FOLDER(test_a_team_decodes_each_image_once, folder)
{
    run_case(folder, &(Case){.spec = jpegs}, decode_and_compare);
}

TEST_IN_FOLDER(test_a_team_decodes_each_pair_once, folder)
{
    Case test = {.spec = jpegs};
    test.spec.kind = FSH_KIND_PAIRS;
    run_case(folder, &test, decode_and_compare);
}

/* Fewer images than the team has members, and one that another member has left out: each can say why. */
TEST_IN_FOLDER(test_every_member_knows_what_is_wrong_with_a_sample, folder)
{
    Case test = {.spec = jpegs, .skip_bad = true};
    test.spec.untabled = true;
    run_case(folder, &test, decode_and_compare);
}

/* Many rounds: the room holds 60,000 bytes. */
TEST_IN_FOLDER(test_a_team_fills_a_store_of_each_member, folder)
{
    run_case(folder, &(Case){.spec = jpegs, .into_store = true}, decode_and_compare);
}

TEST_IN_FOLDER(test_a_team_without_shared_memory_decodes_everything_in_each_member, folder)
{
    run_case(folder, &(Case){.spec = jpegs, .separate = true}, decode_and_compare);
}

TEST_IN_FOLDER(test_a_team_divides_what_does_not_fit_on_one_gpu, folder)
{
    run_case(folder, &(Case){.spec = jpegs}, divide_and_compare);
}
