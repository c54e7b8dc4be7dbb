/* onednn_internal.h - what onednn.c and onednn_convolution.c share. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_ONEDNN_INTERNAL_H
#define FSHARD_TRAINER_BACKEND_CPU_ONEDNN_INTERNAL_H

#include "trainer/backend/cpu/onednn.h"

#include <oneapi/dnnl/dnnl.h>

enum { SCRATCH_ALIGNMENT = 64, ARGUMENTS_MAX = 5 };

struct DnnEngine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attributes; /* scratchpad: the caller's */
};

struct DnnLayout {
    dnnl_memory_desc_t description;
};

struct DnnPrimitive {
    const DnnEngine *engine;
    dnnl_primitive_t primitive;
    dnnl_memory_t scratchpad;
    dnnl_exec_arg_t arguments[ARGUMENTS_MAX + 1]; /* memories owned; the scratchpad is the last */
    int argument_count;
    /* Where the primitive wants its weights in another layout than they are stored in: a copy in scratch,
     * converted before (weights) or after (their gradient) each run. */
    dnnl_primitive_t conversion;
    dnnl_memory_t converted, stored;
    bool converts_after;
    uint64_t scratchpad_bytes, converted_bytes;
};

/* Returns the name that oneDNN has for DATA_F32 or DATA_BF16. */
dnnl_data_type_t dnn_type(DataType type);

FshStatus dnn_check(dnnl_status_t status, const char *call, FshError *error);

/* Every call into oneDNN that can fail goes through this, and its text into the message. */
#define DNN_CHECK(call) dnn_check((call), #call, error)

/* An argument and the memory it is bound to; layout NULL: the primitive goes without it. */
typedef struct Binding {
    int argument;
    const dnnl_memory_desc_t *layout;
    const void *data; /* only read where the argument is an input; NULL: dnn_primitive_bind follows */
} Binding;

/* The weight, or its gradient: as it is stored, and where the primitive says how it wants it. */
typedef struct WeightBinding {
    Binding stored;
    dnnl_query_t wanted;
    bool is_gradient;
} WeightBinding;

/* Makes a primitive of this description, bound; weight may be NULL. */
FshStatus dnn_primitive_new(DnnPrimitive **primitive, const DnnEngine *engine,
                            const_dnnl_primitive_desc_t description, const Binding *bindings, int count,
                            const WeightBinding *weight, FshError *error);

#endif
