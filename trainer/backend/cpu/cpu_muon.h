/* cpu_muon.h - the orthogonal steps of Muon (trainer/graph/muon.h) on the CPU: each matrix by itself, in
 * float32, by oneDNN's products.
 *
 * A step is written where cpu_muon_direction says, in the layout of its parameter; cpu_muon_orthogonalize
 * replaces it. Work for a matrix of r rows and c columns, r <= c: 4 r^2 c + 2 r^3 operations in each step of
 * Newton and Schulz; 4 r c bytes of scratch memory, and room for the largest matrix four times over. */
#ifndef FSHARD_TRAINER_BACKEND_CPU_CPU_MUON_H
#define FSHARD_TRAINER_BACKEND_CPU_CPU_MUON_H

#include "trainer/backend/cpu/cpu_internal.h"

typedef struct CpuMuon CpuMuon;

/* Prepares the matrices of a program's graph that are Muon's, in the graph's order. */
FshStatus cpu_muon_new(CpuMuon **muon_ret, const CpuProgram *program, const MuonRule *rule, FshError *error);
void cpu_muon_free(CpuMuon **muon);
uint64_t cpu_muon_scratch_bytes(const CpuMuon *muon);
/* Takes that much scratch memory, 64-byte aligned. */
FshStatus cpu_muon_bind_scratch(CpuMuon *muon, char *scratch, FshError *error);

/* Returns where the step of matrix k lies, in scratch memory. */
float *cpu_muon_direction(const CpuMuon *muon, int64_t k);
/* Makes the step of matrix k, whose norm is given, orthogonal. */
FshStatus cpu_muon_orthogonalize(const CpuMuon *muon, int64_t k, double norm, FshError *error);

#endif
