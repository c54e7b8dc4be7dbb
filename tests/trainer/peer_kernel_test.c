/* Means over GPUs through each other's memory (peers.cu), with ranks that are streams of one GPU: each has a
 * box and a count of its own. Needs a GPU; leaves with 77 where there is none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/support/support.h"
#include "tests/trainer/gpu_memory.h"
#include "trainer/backend/cuda/kernels/kernels_peers.h"

enum { RANKS_MOST = 4, EXCHANGES = 6 };

typedef struct Bench {
    int ranks;
    PeerBoxes boxes[RANKS_MOST];
    cudaStream_t streams[RANKS_MOST];
    void *values[RANKS_MOST]; /* PEER_VALUES_MAX of f64 */
    int *ends;
} Bench;

static Bench make_bench(int ranks)
{
    Bench bench = {.ranks = ranks};
    uint64_t *boxes[RANKS_MOST];
    gpu_check(cudaMallocHost((void **)&bench.ends, sizeof *bench.ends));
    *bench.ends = 0;
    for (int rank = 0; rank < ranks; rank++) {
        boxes[rank] = gpu_copy_of(NULL, kernel_peer_box_bytes(ranks));
        bench.values[rank] = gpu_copy_of(NULL, PEER_VALUES_MAX * sizeof(double));
        gpu_check(cudaStreamCreateWithFlags(&bench.streams[rank], cudaStreamNonBlocking));
        bench.boxes[rank] = (PeerBoxes){.rank = rank,
                                        .ranks = ranks,
                                        .share = 1 / (double)ranks,
                                        .made = gpu_copy_of(NULL, sizeof(uint32_t)),
                                        .ends = bench.ends};
    }
    for (int rank = 0; rank < ranks; rank++)
        memcpy(bench.boxes[rank].boxes, boxes, sizeof boxes);
    gpu_check(cudaDeviceSynchronize());
    return bench;
}

static void free_bench(Bench *bench)
{
    for (int rank = 0; rank < bench->ranks; rank++) {
        gpu_check(cudaStreamDestroy(bench->streams[rank]));
        gpu_check(cudaFree(bench->boxes[rank].boxes[rank]));
        gpu_check(cudaFree(bench->boxes[rank].made));
        gpu_check(cudaFree(bench->values[rank]));
    }
    gpu_check(cudaFreeHost(bench->ends));
}

static double value_of(int rank, int exchange, int i)
{
    return sin(1 + rank * 7 + exchange * 3 + i) * (1 + 1e6 * (i % 3));
}

/* Returns the pieces of an exchange: the second begins a few values behind the first. */
static void split(const Bench *bench, int rank, int count, bool is_f64, PeerPiece pieces[2])
{
    const size_t bytes = is_f64 ? sizeof(double) : sizeof(float);
    const int first = count > 3 ? count - count / 3 : count;
    pieces[0] = (PeerPiece){bench->values[rank], first};
    pieces[1] = (PeerPiece){(char *)bench->values[rank] + (size_t)first * bytes, count - first};
}

static void write_values(const Bench *bench, int rank, int exchange, int count, bool is_f64)
{
    static double wide[PEER_VALUES_MAX];
    static float narrow[PEER_VALUES_MAX];
    for (int i = 0; i < count; i++)
        narrow[i] = (float)(wide[i] = value_of(rank, exchange, i));
    gpu_check(cudaMemcpyAsync(bench->values[rank], is_f64 ? (void *)wide : (void *)narrow,
                              (size_t)count * (is_f64 ? sizeof *wide : sizeof *narrow),
                              cudaMemcpyHostToDevice, bench->streams[rank]));
    gpu_check(cudaStreamSynchronize(bench->streams[rank]));
}

/* Asserts that every rank has the mean in the order of the ranks, to the bit. */
static void expect_means(const Bench *bench, int exchange, int count, bool is_f64)
{
    static double found[PEER_VALUES_MAX];
    const float *narrow = (const float *)found;
    for (int rank = 0; rank < bench->ranks; rank++) {
        gpu_check(cudaStreamSynchronize(bench->streams[rank]));
        gpu_check(cudaMemcpy(found, bench->values[rank], sizeof found, cudaMemcpyDeviceToHost));
        for (int i = 0; i < count; i++) {
            double sum = 0;
            for (int other = 0; other < bench->ranks; other++) {
                const double value = value_of(other, exchange, i);
                sum += is_f64 ? value : (double)(float)value;
            }
            const double wanted = sum * (1 / (double)bench->ranks);
            if (is_f64 ? found[i] != wanted : narrow[i] != (float)wanted)
                fail_msg("rank %d of %d, exchange %d, value %d of %d: %.17g, not %.17g", rank, bench->ranks,
                         exchange, i, count, is_f64 ? found[i] : (double)narrow[i], wanted);
        }
    }
}

TEST(test_all_ranks_have_the_mean_of_every_exchange)
{
    static const int counts[EXCHANGES] = {1, PEER_VALUES_MAX, 2, 700, 4096, 33};
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) {
        Bench bench = make_bench(ranks);
        for (int exchange = 0; exchange < EXCHANGES; exchange++) {
            const int count = counts[exchange];
            const bool is_f64 = exchange % 2;
            for (int rank = 0; rank < ranks; rank++)
                write_values(&bench, rank, exchange, count, is_f64);
            for (int rank = 0; rank < ranks; rank++) {
                PeerPiece pieces[2];
                split(&bench, rank, count, is_f64, pieces);
                gpu_check(kernel_peer_mean(&bench.boxes[rank], pieces, is_f64, bench.streams[rank]));
            }
            expect_means(&bench, exchange, count, is_f64);
        }
        free_bench(&bench);
    }
}

/* Ranks that are far apart in time do not overwrite what another has not read. */
TEST(test_a_rank_may_be_ahead)
{
    enum { TIMES = 400, COUNT = 100 };
    Bench bench = make_bench(2);
    for (int rank = 0; rank < 2; rank++) {
        PeerPiece pieces[2];
        write_values(&bench, rank, 0, COUNT, true);
        split(&bench, rank, COUNT, true, pieces);
        for (int i = 0; i < TIMES;
             i++) /* fewer than a stream holds; after the first all have the mean, whose mean is itself */
            gpu_check(kernel_peer_mean(&bench.boxes[rank], pieces, true, bench.streams[rank]));
    }
    expect_means(&bench, 0, COUNT, true);
    free_bench(&bench);
}

TEST(test_what_waits_for_a_lost_rank_is_set_free)
{
    Bench bench = make_bench(2);
    const PeerPiece pieces[2] = {{bench.values[0], 64}, {NULL, 0}};
    gpu_check(kernel_peer_mean(&bench.boxes[0], pieces, false, bench.streams[0]));
    sleep_seconds(0.05);
    assert_int_equal(cudaStreamQuery(bench.streams[0]), cudaErrorNotReady);
    *(volatile int *)bench.ends = 1;
    gpu_check(cudaStreamSynchronize(bench.streams[0]));
    free_bench(&bench);
}

TEST(test_too_many_values_are_refused)
{
    Bench bench = make_bench(2);
    const PeerPiece pieces[2] = {{bench.values[0], PEER_VALUES_MAX}, {bench.values[0], 1}};
    assert_int_equal(kernel_peer_mean(&bench.boxes[0], pieces, false, bench.streams[0]),
                     cudaErrorInvalidValue);
    free_bench(&bench);
}
