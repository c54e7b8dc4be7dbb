/* pnm_decode.h - Netpbm's PBM, PGM and PPM (P1 to P6) to pixels. Bytes may be hostile; nothing outside them
 * is read. Internal to imaging.
 *
 * Not libvips' reader, which takes samples as they are whatever the largest one may be (a PGM of 0..15 comes
 * out black), and fills with zeros what a PBM or a text lacks. Source: Netpbm's manual, pbm(5), pgm(5),
 * ppm(5). */
#ifndef FSHARD_IMAGING_PNM_DECODE_H
#define FSHARD_IMAGING_PNM_DECODE_H

#include "imaging/image.h"

/* Reads the header of bytes that image_sniff calls IMAGE_PNM. FSH_ERR_CORRUPT. */
FshStatus pnm_header(const void *bytes, size_t length, ImageInfo *info, FshError *error);

/* Decodes the first image. Samples are scaled so that the largest one allowed becomes 255, rounded. channels
 * are what the file has. strict: what is missing or is no sample is FSH_ERR_CORRUPT; else it is black.
 * FSH_ERR_MEMORY. */
FshStatus pnm_decode(const void *bytes, size_t length, bool strict, Image *image, FshError *error);

#endif
