/* pnm_decode.h - decodes Netpbm's PBM, PGM and PPM (P1 to P6). Bytes may be hostile; nothing outside them is
 * read. Internal to imaging.
 *
 * libvips' reader is not used: it ignores the largest sample (a PGM of 0..15 comes out black), and fills what
 * a PBM or a text file lacks with zeros. Source: Netpbm's manual, pbm(5), pgm(5), ppm(5). */
#ifndef FSHARD_IMAGING_PNM_DECODE_H
#define FSHARD_IMAGING_PNM_DECODE_H

#include "imaging/image.h"

/* Reads the header of bytes that image_sniff calls IMAGE_PNM, and fills info. FSH_ERR_CORRUPT. */
FshStatus pnm_header(const void *bytes, size_t length, ImageInfo *info, FshError *error);

/* Decodes the first image, with the channels of the file. Samples are scaled so that the largest allowed
 * becomes 255, rounded. strict: missing or invalid samples are FSH_ERR_CORRUPT; else they are black.
 * FSH_ERR_MEMORY. */
FshStatus pnm_decode(const void *bytes, size_t length, bool strict, Image *image, FshError *error);

#endif
