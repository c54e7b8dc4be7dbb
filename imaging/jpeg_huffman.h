/* jpeg_huffman.h - reads the Huffman codes of a baseline JPEG in libjpeg-turbo's place. Internal to imaging.
 *
 *   cinfo.mem->realize_virt_arrays = …;            // a function that calls libjpeg's own, and then
 *       jpeg_huffman_attach(huffman, cinfo);
 *   status = jpeg_guard(&guard, step, …);          // a step that reads pixels, planes or coefficients
 *   if (status && jpeg_huffman_gave_up(huffman))   // read the header and run the step again, not attached
 *
 * libjpeg-turbo does the rest, and gets the same coefficients as from its own reader, which takes half to
 * four fifths of the time in which a photograph is made smaller. This one takes two thirds of that: the
 * zeros after each 0xFF are taken out of a scan first, so that eight bytes at a time go into the buffer of
 * bits; one look-up gives two coefficients with their runs (jpeg_codes.h); and of a component decoded at
 * 1/8, whose coefficients but the first are not wanted, one gives as many as its bits hold. Figures:
 * docs/measurements/2026-11-24-huffman-webp.md.
 *
 * It reads scans that are in order: all components in one, nothing between codes and markers, no bit
 * missing or left. Others are left to libjpeg-turbo, at their beginning or by giving up in their middle, so
 * that its pixels, warnings and errors are those of every damaged file.
 *
 * Threads: one JpegHuffman per thread. It keeps its tables from image to image. */
#ifndef FSHARD_IMAGING_JPEG_HUFFMAN_H
#define FSHARD_IMAGING_JPEG_HUFFMAN_H

#include "imaging/jpeg_guard.h"

typedef struct JpegHuffman JpegHuffman;

FshStatus jpeg_huffman_new(JpegHuffman **huffman, FshError *error);
/* Frees and sets to NULL; NULL is fine. */
void jpeg_huffman_free(JpegHuffman **huffman);

/* Has the scan that libjpeg is about to start read here, if it may be. Call it when libjpeg has made its
 * modules and has not started the scan: in mem->realize_virt_arrays, inside a step of a JpegGuard whose
 * manager is cinfo->err. The source must be jpeg_mem_src's. *huffman must outlive the reading of this
 * image. */
void jpeg_huffman_attach(JpegHuffman *huffman, j_decompress_ptr cinfo);

/* Returns whether the scan attached to last was found not to be in order: its step failed with
 * FSH_ERR_CORRUPT, and libjpeg alone tells what is the matter. */
bool jpeg_huffman_gave_up(const JpegHuffman *huffman);

#endif
