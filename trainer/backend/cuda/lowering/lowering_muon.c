#include "trainer/backend/cuda/lowering/lowering_muon.h"

#include <stdio.h>
#include <stdlib.h>

#include "trainer/backend/cuda/lowering/muon_groups.h"
#include "trainer/graph/muon.h"

enum { BF16_BYTES = 2 };

/* The products of a group: gram = x x' (tall: x' x), polynomial = c gram gram + b gram, next = polynomial x +
 * a x (tall: x polynomial + a x). */
typedef struct GroupPlan {
    MuonGroup group;
    uint64_t offset_bytes; /* of its matrices */
    MatmulPlan *gram, *square, *next;
} GroupPlan;

struct MuonPlan {
    GroupPlan *groups;
    int64_t group_count, matrix_count, steps, slab_count;
    /* Of all groups' matrices; of the largest group's gram matrices; of cuBLASLt. */
    uint64_t matrices_bytes, gram_bytes, workspace_bytes;
    MuonSlab *slabs; /* device memory */
};

static int64_t side_of(const MuonGroup *group)
{
    return group->tall ? group->columns : group->rows;
}

static uint64_t aligned(uint64_t bytes)
{
    const uint64_t mask = TENSOR_ALIGNMENT_BYTES - 1;
    return (bytes + mask) & ~mask;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t matrix_bytes(const MuonGroup *group)
{
    return (uint64_t)(group->rows * group->columns) * BF16_BYTES;
}

/* ---- groups ---- */

/* The matrices of a graph, as they are found. */
typedef struct Draft {
    int64_t count;
    TensorId *weights; /* [count] and so on */
    int64_t (*shapes)[2];
    int64_t *group_of;
    MuonGroup *groups;
    int64_t *members; /* [group count] placed so far */
} Draft;

static FshStatus draft_new(Draft *draft, const Graph *graph, FshError *error)
{
    const size_t tensors = graph_tensor_count(graph);
    *draft = (Draft){.weights = calloc(tensors, sizeof *draft->weights),
                     .shapes = calloc(tensors, sizeof *draft->shapes),
                     .group_of = calloc(tensors, sizeof *draft->group_of),
                     .groups = calloc(tensors, sizeof *draft->groups),
                     .members = calloc(tensors, sizeof *draft->members)};
    if (!draft->weights || !draft->shapes || !draft->group_of || !draft->groups || !draft->members)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for Muon's %zu matrices", tensors);
    for (size_t t = 0; t < tensors; t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role != TENSOR_PARAMETER || !tensor->muon)
            continue;
        draft->weights[draft->count] = (TensorId)t;
        draft->shapes[draft->count][0] = muon_rows(tensor);
        draft->shapes[draft->count++][1] = muon_columns(tensor);
    }
    return FSH_OK;
}

static void draft_free(Draft *draft)
{
    free(draft->weights);
    free(draft->shapes);
    free(draft->group_of);
    free(draft->groups);
    free(draft->members);
}

/* ---- products ---- */

static FshStatus make_products(GroupPlan *plan, cublasLtHandle_t cublas_lt, FshError *error)
{
    const MuonGroup *group = &plan->group;
    const int64_t side = side_of(group), rows = group->rows, columns = group->columns;
    const bool tall = group->tall;
    const MatmulShape common = {.operands = ELEMENT_BF16, .result = ELEMENT_BF16, .batch = group->count};
    MatmulShape gram = common, square = common, next = common;
    gram.rows = gram.columns = gram.pitch_result = side;
    gram.inner = tall ? rows : columns;
    gram.pitch_a = gram.pitch_b = columns;
    gram.transpose_a = tall;
    gram.transpose_b = !tall;
    square.rows = square.columns = square.inner = square.pitch_a = square.pitch_b = square.pitch_result =
        side;
    square.addend = next.addend = true;
    square.factor = (float)MUON_C;
    square.addend_factor = (float)MUON_B;
    next.rows = rows;
    next.columns = next.pitch_result = columns;
    next.inner = side;
    next.pitch_a = tall ? columns : side;
    next.pitch_b = tall ? side : columns;
    next.addend_factor = (float)MUON_A;
    FshStatus status = matmul_plan_new(&plan->gram, cublas_lt, &gram, error);
    if (!status)
        status = matmul_plan_new(&plan->square, cublas_lt, &square, error);
    return status ? status : matmul_plan_new(&plan->next, cublas_lt, &next, error);
}

/* Takes the groups over from the draft, with their places in scratch memory. */
static FshStatus make_groups(MuonPlan *plan, const Draft *draft, cublasLtHandle_t cublas_lt, FshError *error)
{
    FshStatus status = FSH_OK;
    plan->groups = calloc((size_t)plan->group_count, sizeof *plan->groups);
    if (!plan->groups)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for Muon's products");
    for (int64_t i = 0; i < plan->group_count && !status; i++) {
        GroupPlan *own = &plan->groups[i];
        *own = (GroupPlan){.group = draft->groups[i], .offset_bytes = plan->matrices_bytes};
        const uint64_t side = (uint64_t)side_of(&own->group), count = (uint64_t)own->group.count;
        plan->matrices_bytes += aligned(count * matrix_bytes(&own->group));
        plan->gram_bytes = most(plan->gram_bytes, aligned(count * side * side * BF16_BYTES));
        status = make_products(own, cublas_lt, error);
        const MatmulPlan *products[] = {own->gram, own->square, own->next};
        for (size_t k = 0; k < sizeof products / sizeof products[0] && !status; k++)
            plan->workspace_bytes = most(plan->workspace_bytes, matmul_plan_workspace_bytes(products[k]));
    }
    return status;
}

/* ---- matrices ---- */

static void place_matrix(const MuonPlan *plan, Draft *draft, int64_t i, const MuonRule *rule,
                         const Tensor *weight, UpdateTensor *tensor)
{
    const GroupPlan *own = &plan->groups[draft->group_of[i]];
    const uint64_t place = (uint64_t)draft->members[draft->group_of[i]]++,
                   offset = own->offset_bytes + place * matrix_bytes(&own->group);
    tensor->matrix =
        (MuonMatrix){.step_offset_bytes = offset,
                     .result_offset_bytes = offset + (rule->steps % 2 ? plan->matrices_bytes : 0),
                     .rows = (int32_t)draft->shapes[i][0],
                     .columns = (int32_t)draft->shapes[i][1],
                     .pitch = (int32_t)own->group.columns,
                     .scale = (float)muon_scale(rule, weight)};
}

static int64_t slabs_of(const MuonGroup *group)
{
    return (group->rows * group->columns + MUON_SLAB - 1) / MUON_SLAB;
}

/* Lists the slabs of all matrices in device memory. */
static FshStatus place_slabs(MuonPlan *plan, const Draft *draft, const int32_t *tensor_of,
                             cudaStream_t stream, FshError *error)
{
    int64_t total = 0;
    for (int64_t i = 0; i < draft->count; i++)
        total += slabs_of(&plan->groups[draft->group_of[i]].group);
    const size_t bytes = (size_t)total * sizeof *plan->slabs;
    MuonSlab *slabs = malloc(bytes + 1); /* never of no bytes */
    if (!slabs)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for Muon's %lld slabs", (long long)total);
    for (int64_t i = 0; i < draft->count; i++) {
        const MuonGroup *group = &plan->groups[draft->group_of[i]].group;
        const int64_t elements = group->rows * group->columns;
        for (int64_t first = 0; first < elements; first += MUON_SLAB)
            slabs[plan->slab_count++] =
                (MuonSlab){.first = first,
                           .count = (int32_t)(elements - first < MUON_SLAB ? elements - first : MUON_SLAB),
                           .tensor = tensor_of[draft->weights[i]]};
    }
    FshStatus status = cuda_memory_new((void **)&plan->slabs, bytes, "Muon's table", error);
    if (!status)
        status = CUDA_TRY(cudaMemcpyAsync(plan->slabs, slabs, bytes, cudaMemcpyHostToDevice, stream), error);
    if (!status) /* the host's go away */
        status = CUDA_TRY(cudaStreamSynchronize(stream), error);
    free(slabs);
    return status;
}

FshStatus muon_plan_new(MuonPlan **plan_ret, const CudaProgram *program, const MuonRule *rule,
                        const int32_t *tensor_of, UpdateTensor *tensors, FshError *error)
{
    const Graph *graph = program->base.graph;
    CudaBackend *backend = program_backend(program);
    Draft draft = {0};
    MuonPlan *plan = *plan_ret = calloc(1, sizeof *plan);
    if (!plan)
        return fsh_error_set(error, FSH_ERR_MEMORY, "no memory for Muon's plan");
    plan->steps = rule->steps;
    FshStatus status = draft_new(&draft, graph, error);
    if (status || draft.count == 0)
        goto done;
    plan->matrix_count = draft.count;
    plan->group_count =
        muon_groups_make((const int64_t(*)[2])draft.shapes, draft.count, draft.groups, draft.group_of);
    status = make_groups(plan, &draft, backend->cublas_lt, error);
    for (int64_t i = 0; i < draft.count && !status; i++)
        place_matrix(plan, &draft, i, rule, graph_tensor(graph, draft.weights[i]),
                     &tensors[tensor_of[draft.weights[i]]]);
    if (!status)
        status = place_slabs(plan, &draft, tensor_of, backend->stream, error);
done:
    draft_free(&draft);
    return status;
}

void muon_plan_free(MuonPlan **plan)
{
    if (!*plan)
        return;
    for (int64_t i = 0; (*plan)->groups && i < (*plan)->group_count; i++) {
        matmul_plan_free(&(*plan)->groups[i].gram);
        matmul_plan_free(&(*plan)->groups[i].square);
        matmul_plan_free(&(*plan)->groups[i].next);
    }
    cuda_memory_free((void **)&(*plan)->slabs);
    free((*plan)->groups);
    free(*plan);
    *plan = NULL;
}

uint64_t muon_plan_scratch_bytes(const MuonPlan *plan)
{
    return 2 * (plan->matrices_bytes + plan->gram_bytes) + plan->workspace_bytes;
}

void muon_plan_tell(const MuonPlan *plan, char *buffer, size_t buffer_bytes)
{
    double flops = 0;
    for (int64_t i = 0; i < plan->group_count; i++)
        flops += (double)plan->steps * muon_group_flops(&plan->groups[i].group);
    (void)snprintf(buffer, buffer_bytes, "%lld matrices in %lld batches, %.3g GFLOP",
                   (long long)plan->matrix_count, (long long)plan->group_count, flops / 1e9);
}

/* ---- running ---- */

static FshStatus run_group(const MuonPlan *plan, const GroupPlan *own, char *scratch, cudaStream_t stream,
                           FshError *error)
{
    char *x = scratch + own->offset_bytes, *next = x + plan->matrices_bytes,
         *gram = scratch + 2 * plan->matrices_bytes, *polynomial = gram + plan->gram_bytes,
         *workspace = polynomial + plan->gram_bytes;
    const bool tall = own->group.tall;
    FshStatus status = FSH_OK;
    for (int64_t i = 0; i < plan->steps && !status; i++) {
        const MatmulOperands of_gram = {.a = x, .b = x, .result = gram, .workspace = workspace},
                             of_square = {.a = gram,
                                          .b = gram,
                                          .addend = gram,
                                          .result = polynomial,
                                          .workspace = workspace},
                             of_next = {.a = tall ? x : polynomial,
                                        .b = tall ? polynomial : x,
                                        .addend = x,
                                        .result = next,
                                        .workspace = workspace};
        status = matmul_plan_run(own->gram, &of_gram, stream, error);
        if (!status)
            status = matmul_plan_run(own->square, &of_square, stream, error);
        if (!status)
            status = matmul_plan_run(own->next, &of_next, stream, error);
        char *last = x;
        x = next;
        next = last;
    }
    return status;
}

FshStatus muon_plan_run(const MuonPlan *plan, const UpdateTable *table, void *scratch, cudaStream_t stream,
                        FshError *error)
{
    if (plan->matrix_count == 0)
        return FSH_OK;
    FshStatus status =
        CUDA_TRY(kernel_muon_normalize(table, plan->slabs, plan->slab_count, scratch, stream), error);
    for (int64_t i = 0; i < plan->group_count && !status; i++)
        status = run_group(plan, &plan->groups[i], scratch, stream, error);
    return status;
}
