#include "trainer/backend/cuda/lowering/peer_exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An allocation of its own granularity: a handle gives away all that lies in one piece of 2 MiB. */
enum { BOX_GRANULARITY_BYTES = 2 << 20 };

/* What each rank tells the others. */
typedef struct PeerCard {
    cudaIpcMemHandle_t box;
    char name[256];
    int multiprocessors;
} PeerCard;

struct PeerExchange {
    PeerBoxes boxes;
    void *own, *made; /* device memory */
    void *ends;       /* pinned: an int */
};

static bool may_exchange(const RankPlace *place)
{
    const char *disabled = getenv("NCCL_P2P_DISABLE");
    return place->world_size == place->local_world && place->world_size <= PEERS_MAX &&
           !(disabled && strcmp(disabled, "0") != 0);
}

static FshStatus make_memory(PeerExchange *exchange, FshError *error)
{
    const uint64_t wanted = kernel_peer_box_bytes(exchange->boxes.ranks),
                   bytes =
                       (wanted + BOX_GRANULARITY_BYTES - 1) / BOX_GRANULARITY_BYTES * BOX_GRANULARITY_BYTES;
    const uint64_t made_bytes = sizeof *exchange->boxes.made;
    FshStatus status = cuda_memory_new(&exchange->own, bytes, "the other ranks' sums", error);
    if (!status)
        status = cuda_memory_new(&exchange->made, made_bytes, "the number of exchanges", error);
    if (!status)
        status = cuda_pinned_new(&exchange->ends, sizeof(int), "the end of exchanges", error);
    if (!status)
        status = CUDA_TRY(cudaMemset(exchange->own, 0, bytes), error);
    if (!status)
        status = CUDA_TRY(cudaMemset(exchange->made, 0, made_bytes), error);
    if (!status)
        status = CUDA_TRY(cudaDeviceSynchronize(), error); /* zeros are there before others write */
    if (status)
        return status;
    *(int *)exchange->ends = 0;
    exchange->boxes.made = exchange->made;
    exchange->boxes.ends = exchange->ends;
    exchange->boxes.boxes[exchange->boxes.rank] = exchange->own;
    return FSH_OK;
}

static FshStatus describe_card(const PeerExchange *exchange, PeerCard *card, FshError *error)
{
    struct cudaDeviceProp properties;
    int device = 0;
    FshStatus status = CUDA_TRY(cudaGetDevice(&device), error);
    if (!status)
        status = CUDA_TRY(cudaGetDeviceProperties(&properties, device), error);
    if (status)
        return status;
    (void)snprintf(card->name, sizeof card->name, "%s", properties.name);
    card->multiprocessors = properties.multiProcessorCount;
    return CUDA_TRY(cudaIpcGetMemHandle(&card->box, exchange->own), error);
}

/* Maps the boxes of the others. FSH_ERR_UNSUPPORTED: a card is another one, where a norm may take other
 * launches, and exchange other numbers. */
static FshStatus open_boxes(PeerExchange *exchange, const PeerCard *cards, FshError *error)
{
    FshStatus status = FSH_OK;
    const PeerCard *own = &cards[exchange->boxes.rank];
    for (int rank = 0; rank < exchange->boxes.ranks && !status; rank++) {
        void *box = NULL;
        if (rank == exchange->boxes.rank)
            continue;
        if (strcmp(cards[rank].name, own->name) != 0 || cards[rank].multiprocessors != own->multiprocessors)
            return fsh_error_set(error, FSH_ERR_UNSUPPORTED, "rank %d has another GPU", rank);
        status = CUDA_TRY(cudaIpcOpenMemHandle(&box, cards[rank].box, cudaIpcMemLazyEnablePeerAccess), error);
        exchange->boxes.boxes[rank] = box;
    }
    return status;
}

FshStatus peer_exchange_open(PeerExchange **exchange_ret, Communicator *communicator, FshError *error)
{
    const RankPlace *place = communicator_place(communicator);
    PeerCard own, cards[PEERS_MAX];
    PeerExchange *exchange = may_exchange(place) ? calloc(1, sizeof *exchange) : NULL;
    uint64_t without = !exchange;
    *exchange_ret = NULL;
    memset(&own, 0, sizeof own);
    if (exchange) {
        exchange->boxes.rank = (int)place->rank;
        exchange->boxes.ranks = (int)place->world_size;
        exchange->boxes.share = 1 / (double)place->world_size;
        without = make_memory(exchange, NULL) || describe_card(exchange, &own, NULL);
    }
    FshStatus status = communicator_max_u64(communicator, &without, 1, error);
    if (!status && !without)
        status = communicator_gather(communicator, &own, sizeof own, cards, error);
    if (exchange && !status && !without) {
        without = open_boxes(exchange, cards, NULL) != FSH_OK;
        status = communicator_max_u64(communicator, &without, 1, error);
    }
    (void)cudaGetLastError(); /* of a peer that cannot be reached */
    if (status || without)
        peer_exchange_close(exchange);
    else
        *exchange_ret = exchange;
    return status;
}

void peer_exchange_close(PeerExchange *exchange)
{
    if (!exchange)
        return;
    for (int rank = 0; rank < exchange->boxes.ranks; rank++)
        if (rank != exchange->boxes.rank && exchange->boxes.boxes[rank])
            (void)cudaIpcCloseMemHandle(exchange->boxes.boxes[rank]);
    cuda_memory_free(&exchange->own);
    cuda_memory_free(&exchange->made);
    cuda_pinned_free(&exchange->ends);
    free(exchange);
}

void peer_exchange_stop(PeerExchange *exchange)
{
    if (exchange)
        *(volatile int *)exchange->ends = 1;
}

const PeerBoxes *peer_exchange_boxes(const PeerExchange *exchange)
{
    return exchange ? &exchange->boxes : NULL;
}

bool peer_exchange_takes(const PeerExchange *exchange, const RankMean *pieces, int piece_count)
{
    uint64_t count = 0;
    for (int i = 0; i < piece_count; i++) {
        if (pieces[i].number != pieces[0].number || pieces[i].count > PEER_VALUES_MAX)
            return false;
        count += pieces[i].count;
    }
    const bool is_float = piece_count > 0 && (pieces[0].number == RANK_F32 || pieces[0].number == RANK_F64);
    return exchange && is_float && piece_count <= 2 && count >= 1 && count <= PEER_VALUES_MAX;
}

FshStatus peer_exchange_mean(const PeerExchange *exchange, const RankMean *pieces, int piece_count,
                             cudaStream_t stream, FshError *error)
{
    PeerPiece both[2] = {{NULL, 0}, {NULL, 0}};
    for (int i = 0; i < piece_count; i++)
        both[i] = (PeerPiece){pieces[i].values, (int)pieces[i].count};
    return CUDA_TRY(kernel_peer_mean(&exchange->boxes, both, pieces[0].number == RANK_F64, stream), error);
}
