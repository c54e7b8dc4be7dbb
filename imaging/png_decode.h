/* png_decode.h - PNG to pixels by libdeflate, for the files that png_chunks.h calls plain. Internal to
 * imaging; programs use decode.h.
 *
 *   png_decoder_header(png, bytes, length, &info);        // PNG_WHOLLY_HERE: info is filled
 *   png_decoder_pixels(png, &image, &done, &error);       // done: false where libvips has to decode it
 *
 * Pixels are those that libvips gives, bit for bit. libdeflate takes a few streams that zlib would not
 * (incomplete codes, windows that are too small); only a stream with the right checksum and exactly as many
 * bytes as the image has is used here, so the pixels of those are right too.
 *
 * The bytes must stay until the pixels are read. Threads: one PngDecoder per thread. */
#ifndef FSHARD_IMAGING_PNG_DECODE_H
#define FSHARD_IMAGING_PNG_DECODE_H

#include "imaging/image.h"
#include "imaging/png_chunks.h"

typedef struct PngDecoder PngDecoder;

FshStatus png_decoder_new(PngDecoder **png, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void png_decoder_free(PngDecoder **png);

/* Reads the chunks before the pixels. Returns who reads what; fills info if that is PNG_WHOLLY_HERE. */
PngReader png_decoder_header(PngDecoder *png, const uint8_t *bytes, size_t length, ImageInfo *info);

/* Decodes the pixels of the file whose header was read last, gray or RGB, alpha over white. *done_ret is
 * false, and the image's pixels undefined, where libvips has to do it: it will, or says what is wrong.
 * FSH_ERR_MEMORY. */
FshStatus png_decoder_pixels(PngDecoder *png, Image *image, bool *done_ret, FshError *error);

#endif
