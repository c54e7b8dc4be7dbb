#include "trainer/onnx/onnx_wire.h"

#include <string.h>

/* How a field's value is written, the lower bits of its tag. */
enum { WIRE_VARINT = 0, WIRE_LENGTH = 2, WIRE_FIXED32 = 5, TYPE_BITS = 3 };

enum { VARINT_BYTES_MAX = 10, SEVEN_BITS = 0x7f, MORE = 0x80 };

static void append(OnnxWire *wire, const void *bytes, size_t length)
{
    if (!wire->error.status)
        (void)buffer_append(&wire->bytes, bytes, length, &wire->error);
}

/* Writes seven bits a byte, the lowest first. Returns the number of bytes. */
static size_t put_varint(uint8_t bytes[VARINT_BYTES_MAX], uint64_t value)
{
    size_t length = 0;
    for (; value > SEVEN_BITS; value >>= 7)
        bytes[length++] = (uint8_t)((value & SEVEN_BITS) | MORE);
    bytes[length++] = (uint8_t)value;
    return length;
}

static void append_varint(OnnxWire *wire, uint64_t value)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    append(wire, bytes, put_varint(bytes, value));
}

static void append_tag(OnnxWire *wire, uint32_t field, uint32_t type)
{
    append_varint(wire, ((uint64_t)field << TYPE_BITS) | type);
}

void wire_integer(OnnxWire *wire, uint32_t field, int64_t value)
{
    append_tag(wire, field, WIRE_VARINT);
    append_varint(wire, (uint64_t)value);
}

void wire_float(OnnxWire *wire, uint32_t field, float value)
{
    append_tag(wire, field, WIRE_FIXED32);
    append(wire, &value, sizeof value); /* machines are little endian (safetensors.c) */
}

void *wire_room(OnnxWire *wire, uint32_t field, size_t length)
{
    append_tag(wire, field, WIRE_LENGTH);
    append_varint(wire, length);
    if (wire->error.status ||
        buffer_reserve(&wire->bytes, wire->bytes.length + length, &wire->error) != FSH_OK)
        return NULL;
    uint8_t *room = wire->bytes.bytes + wire->bytes.length;
    wire->bytes.length += length;
    return room;
}

void wire_bytes(OnnxWire *wire, uint32_t field, const void *bytes, size_t length)
{
    void *room = wire_room(wire, field, length);
    if (room && length)
        memcpy(room, bytes, length);
}

void wire_text(OnnxWire *wire, uint32_t field, const char *text)
{
    wire_bytes(wire, field, text, strlen(text));
}

size_t wire_open(OnnxWire *wire, uint32_t field)
{
    append_tag(wire, field, WIRE_LENGTH);
    return wire->bytes.length;
}

void wire_close(OnnxWire *wire, size_t place)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    if (wire->error.status)
        return;
    const size_t length = wire->bytes.length - place, shift = put_varint(bytes, length);
    append(wire, bytes, shift); /* makes room, and moves the message behind its length */
    if (wire->error.status)
        return;
    memmove(wire->bytes.bytes + place + shift, wire->bytes.bytes + place, length);
    memcpy(wire->bytes.bytes + place, bytes, shift);
}

void wire_fail(OnnxWire *wire, const FshError *error)
{
    if (!wire->error.status)
        wire->error = *error;
}

FshStatus wire_check(const OnnxWire *wire, FshError *error)
{
    if (wire->error.status && error)
        *error = wire->error;
    return wire->error.status;
}

void wire_free(OnnxWire *wire)
{
    buffer_free(&wire->bytes);
}
