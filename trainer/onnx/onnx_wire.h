/* onnx_wire.h - writes the wire format of Protocol Buffers as far as ONNX needs it: numbers, floats, bytes,
 * and messages in messages (https://protobuf.dev/programming-guides/encoding).
 *
 *   OnnxWire wire = {0};
 *   wire_integer(&wire, 1, 8);
 *   const size_t graph = wire_open(&wire, 7);
 *   wire_text(&wire, 2, "resnet18");
 *   wire_close(&wire, graph);
 *   if (wire_check(&wire, &error)) …                 // lack of memory shows here
 *   …wire.bytes…; wire_free(&wire);
 *
 * A failure is kept, and calls after it do nothing. Threads: one at a time. */
#ifndef FSHARD_TRAINER_ONNX_ONNX_WIRE_H
#define FSHARD_TRAINER_ONNX_ONNX_WIRE_H

#include "common/file.h"

typedef struct OnnxWire {
    Buffer bytes; /* what is written so far; owned */
    FshError error;
} OnnxWire;

/* Append a field of a message by its number: a varint, a 32-bit float, bytes or a text. */
void wire_integer(OnnxWire *wire, uint32_t field, int64_t value);
void wire_float(OnnxWire *wire, uint32_t field, float value);
void wire_bytes(OnnxWire *wire, uint32_t field, const void *bytes, size_t length);
void wire_text(OnnxWire *wire, uint32_t field, const char *text);
/* Appends a field of so many bytes and returns them for the caller to fill, before the next call. NULL after
 * a failure. */
void *wire_room(OnnxWire *wire, uint32_t field, size_t length);

/* Begins a message in a field and returns its place, which ends it. Messages end in the order in which they
 * lie in each other. */
size_t wire_open(OnnxWire *wire, uint32_t field);
void wire_close(OnnxWire *wire, size_t place);

/* Records a failure that is the caller's, unless there was one before. */
void wire_fail(OnnxWire *wire, const FshError *error);
/* Returns the first failure, or FSH_OK. */
FshStatus wire_check(const OnnxWire *wire, FshError *error);
void wire_free(OnnxWire *wire);

#endif
