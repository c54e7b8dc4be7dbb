#include "trainer/backend/cpu/cpu_muon.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/graph/muon.h"

/* A matrix with no more rows than columns: a weight that has more is worked on transposed. So the products
 * below give the same bits for any number of threads, which with x' x they would not. */
typedef struct Matrix {
    int64_t rows, columns;
    DnnLayout *turned;              /* where it is transposed; owned */
    DnnPrimitive *gather, *scatter; /* from its weight's layout, and back */
    /* gram = x x'; square = gram gram; next = polynomial x */
    DnnPrimitive *gram, *square, *next;
    uint64_t offset_bytes; /* of its step in scratch */
} Matrix;

struct CpuMuon {
    const CpuBackend *backend;
    int64_t steps, count;
    /* Bytes in scratch: all steps; then x and the next x; then the gram matrix and the polynomial of it; then
     * what primitives want. */
    uint64_t directions_bytes, x_bytes, gram_bytes, own_bytes;
    char *scratch;
    Matrix matrices[];
};

static uint64_t whole_lines(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- preparing ---- */

static FshStatus make_products(Matrix *matrix, DnnEngine *engine, FshError *error)
{
    const int64_t rows = matrix->rows, columns = matrix->columns;
    const DnnProduct
        gram = {.type = DATA_F32,
                .inner = columns,
                .rows = rows,
                .columns = rows,
                .a_by_rows = true,
                .b_by_columns = true},
        square = {.type = DATA_F32, .inner = rows, .rows = rows, .columns = rows, .a_by_rows = true},
        next = {.type = DATA_F32, .inner = rows, .rows = rows, .columns = columns, .a_by_rows = true};
    FshStatus status = dnn_product_new(&matrix->gram, engine, &gram, error);
    if (!status)
        status = dnn_product_new(&matrix->square, engine, &square, error);
    return status ? status : dnn_product_new(&matrix->next, engine, &next, error);
}

static FshStatus make_conversions(Matrix *matrix, DnnEngine *engine, const CpuVariable *variable,
                                  bool transposes, FshError *error)
{
    enum { IN_GROUPS = 5 }; /* dimensions of a weight in groups, whose rows are the first two */
    const DnnLayout *plain = variable->plain;
    FshStatus status = FSH_OK;
    if (transposes) {
        status =
            dnn_layout_turned(&matrix->turned, plain, dnn_layout_rank(plain) == IN_GROUPS ? 2 : 1, error);
        plain = matrix->turned;
    }
    if (!status)
        status = dnn_layout_conversion_new(&matrix->gather, engine, variable->layout, plain, error);
    return status ? status
                  : dnn_layout_conversion_new(&matrix->scatter, engine, plain, variable->layout, error);
}

static FshStatus add_matrix(CpuMuon *muon, const CpuVariable *variable, const Tensor *weight, FshError *error)
{
    DnnEngine *engine = muon->backend->dnn;
    Matrix *matrix = &muon->matrices[muon->count++];
    const int64_t rows = muon_rows(weight), columns = muon_columns(weight);
    const bool tall = rows > columns;
    *matrix = (Matrix){.rows = tall ? columns : rows,
                       .columns = tall ? rows : columns,
                       .offset_bytes = muon->directions_bytes};
    FshStatus status = make_conversions(matrix, engine, variable, tall, error);
    if (!status)
        status = make_products(matrix, engine, error);
    if (status)
        return fsh_error_prepend(error, "%s", weight->name);
    const uint64_t values = (uint64_t)(matrix->rows * matrix->columns), side = (uint64_t)matrix->rows;
    muon->directions_bytes += whole_lines(dnn_layout_bytes(variable->layout));
    muon->x_bytes = most(muon->x_bytes, whole_lines(values * sizeof(float)));
    muon->gram_bytes = most(muon->gram_bytes, whole_lines(side * side * sizeof(float)));
    const DnnPrimitive *primitives[] = {matrix->gather, matrix->scatter, matrix->gram, matrix->square,
                                        matrix->next};
    for (size_t i = 0; i < sizeof primitives / sizeof primitives[0]; i++)
        muon->own_bytes = most(muon->own_bytes, dnn_primitive_scratch_bytes(primitives[i]));
    return FSH_OK;
}

FshStatus cpu_muon_new(CpuMuon **muon_ret, const CpuProgram *program, const MuonRule *rule, FshError *error)
{
    const Graph *graph = program->base.graph;
    const size_t tensors = graph_tensor_count(graph);
    FshStatus status = FSH_OK;
    CpuMuon *muon = *muon_ret = calloc(1, sizeof *muon + tensors * sizeof *muon->matrices);
    if (!muon)
        return fsh_error_set(error, FSH_ERR_MEMORY, "cpu: no memory for Muon's %zu matrices", tensors);
    muon->backend = program->backend;
    muon->steps = rule->steps;
    for (size_t t = 0; t < tensors && !status; t++) {
        const Tensor *tensor = graph_tensor(graph, (TensorId)t);
        if (tensor->role == TENSOR_PARAMETER && tensor->muon)
            status = add_matrix(muon, program->variables[t], tensor, error);
    }
    return status;
}

void cpu_muon_free(CpuMuon **muon)
{
    for (int64_t k = 0; *muon && k < (*muon)->count; k++) {
        Matrix *matrix = &(*muon)->matrices[k];
        dnn_layout_free(&matrix->turned);
        dnn_primitive_free(&matrix->gather);
        dnn_primitive_free(&matrix->scatter);
        dnn_primitive_free(&matrix->gram);
        dnn_primitive_free(&matrix->square);
        dnn_primitive_free(&matrix->next);
    }
    free(*muon);
    *muon = NULL;
}

uint64_t cpu_muon_scratch_bytes(const CpuMuon *muon)
{
    return muon->directions_bytes + 2 * (muon->x_bytes + muon->gram_bytes) + muon->own_bytes;
}

float *cpu_muon_direction(const CpuMuon *muon, int64_t k)
{
    return (float *)(muon->scratch + muon->matrices[k].offset_bytes);
}

FshStatus cpu_muon_bind_scratch(CpuMuon *muon, char *scratch, FshError *error)
{
    FshStatus status = FSH_OK;
    muon->scratch = scratch;
    char *own = scratch + cpu_muon_scratch_bytes(muon) - muon->own_bytes;
    for (int64_t k = 0; k < muon->count; k++) {
        const Matrix *matrix = &muon->matrices[k];
        DnnPrimitive *primitives[] = {matrix->gather, matrix->scatter, matrix->gram, matrix->square,
                                      matrix->next};
        for (size_t i = 0; i < sizeof primitives / sizeof primitives[0] && !status; i++)
            status = dnn_primitive_set_scratch(primitives[i], own, error);
    }
    return status;
}

/* ---- orthogonal steps ---- */

/* What a matrix is worked on with; x and next change places after each step. */
typedef struct Rooms {
    float *x, *next, *gram, *polynomial;
    int64_t side;
    float factor; /* of normalize_part */
} Rooms;

static void normalize_part(void *context, int part, int64_t begin, int64_t end)
{
    const Rooms *rooms = context;
    (void)part;
    for (int64_t i = begin; i < end; i++)
        rooms->x[i] *= rooms->factor;
}

/* Makes rows begin..end of a + b A + c A A from A and A A. */
static void polynomial_part(void *context, int part, int64_t begin, int64_t end)
{
    const Rooms *rooms = context;
    const int64_t side = rooms->side;
    (void)part;
    for (int64_t row = begin; row < end; row++) {
        const float *gram = rooms->gram + row * side;
        float *polynomial = rooms->polynomial + row * side;
#pragma omp simd
        for (int64_t i = 0; i < side; i++)
            polynomial[i] = (float)MUON_B * gram[i] + (float)MUON_C * polynomial[i];
        polynomial[row] += (float)MUON_A;
    }
}

static FshStatus run_on(DnnPrimitive *primitive, const void *const *memories, int count, FshError *error)
{
    FshStatus status = dnn_primitive_bind(primitive, (void *const *)memories, count, error);
    return status ? status : dnn_primitive_run(primitive, error);
}

static FshStatus step(const CpuMuon *muon, const Matrix *matrix, Rooms *rooms, FshError *error)
{
    float *x = rooms->x;
    FshStatus status = run_on(matrix->gram, (const void *[]){x, x, rooms->gram}, 3, error);
    if (!status)
        status =
            run_on(matrix->square, (const void *[]){rooms->gram, rooms->gram, rooms->polynomial}, 3, error);
    if (status)
        return status;
    cpu_parallel(muon->backend, rooms->side, polynomial_part, rooms);
    status = run_on(matrix->next, (const void *[]){rooms->polynomial, x, rooms->next}, 3, error);
    rooms->x = rooms->next;
    rooms->next = x;
    return status;
}

FshStatus cpu_muon_orthogonalize(const CpuMuon *muon, int64_t k, double norm, FshError *error)
{
    const Matrix *matrix = &muon->matrices[k];
    char *room = muon->scratch + muon->directions_bytes, *grams = room + 2 * muon->x_bytes;
    Rooms rooms = {.x = (float *)room,
                   .next = (float *)(room + muon->x_bytes),
                   .gram = (float *)grams,
                   .polynomial = (float *)(grams + muon->gram_bytes),
                   .side = matrix->rows,
                   .factor = (float)(1 / fmax(norm, MUON_EPSILON))};
    float *direction = cpu_muon_direction(muon, k);
    FshStatus status = run_on(matrix->gather, (const void *[]){direction, rooms.x}, 2, error);
    if (status)
        return status;
    cpu_parallel(muon->backend, matrix->rows * matrix->columns, normalize_part, &rooms);
    for (int64_t i = 0; i < muon->steps && !status; i++)
        status = step(muon, matrix, &rooms, error);
    return status ? status : run_on(matrix->scatter, (const void *[]){rooms.x, direction}, 2, error);
}
