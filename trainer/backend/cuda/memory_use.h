/* memory_use.h - what programs take of the device's memory, and what they would take, from the graph alone:
 * layouts (tensors.h) need no device. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_MEMORY_USE_H
#define FSHARD_TRAINER_BACKEND_CUDA_MEMORY_USE_H

#include "trainer/backend/backend.h"

/* Adds the memory that a program takes beside its State, as program_memory. */
void cuda_program_memory(const Program *program, MemoryUse *use);

/* Adds what State and program of a graph would take (backend_foresee). weight_copies.h says which weights
 * have copies in 16 bits. FSH_ERR_MEMORY. */
FshStatus cuda_foresee_memory(const Graph *graph, MemoryUse *use, FshError *error);

#endif
