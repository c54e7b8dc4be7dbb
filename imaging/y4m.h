/* y4m.h - reads and writes images whose planes are kept as they are: YUV4MPEG2 files (.y4m) of one frame,
 * which ffmpeg and mpv read too. Bytes may be hostile; nothing outside them is read.
 *
 * A file: "YUV4MPEG2 W160 H120 F1:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL\nFRAME\n", then the planes (planes.h):
 * of C420jpeg, whose chroma lies between the pixels as a JPEG's does, of C444, or of Cmono. Samples have the
 * full range, 0 to 255, as in JFIF. Source: mjpegtools' yuv4mpeg(5); XCOLORRANGE is ffmpeg's. */
#ifndef FSHARD_IMAGING_Y4M_H
#define FSHARD_IMAGING_Y4M_H

#include "common/file.h"
#include "imaging/planes.h"

/* Reads the header of bytes that image_sniff calls IMAGE_Y4M: fills info, and *planes_ret, which point into
 * bytes. FSH_ERR_CORRUPT: damaged, or of another length than its planes; FSH_ERR_UNSUPPORTED: several frames,
 * interlaced, of another chroma, of more than 8 bits, or of limited range. */
FshStatus y4m_open(const void *bytes, size_t length, ImageInfo *info, Planes *planes_ret, FshError *error);

/* Returns the bytes of the file of such an image. */
uint64_t y4m_bytes(PlanesChroma chroma, uint32_t width, uint32_t height);

/* Begins the file of an image in `file`, which is emptied, and makes room for its planes, *planes_ret, which
 * the caller fills. FSH_ERR_MEMORY. */
FshStatus y4m_begin(Buffer *file, PlanesChroma chroma, uint32_t width, uint32_t height, uint8_t **planes_ret,
                    FshError *error);

#endif
