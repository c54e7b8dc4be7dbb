/* codec.h - which codec a file of a format is stored as. */
#ifndef FSHARD_TOOLS_JOB_CODEC_H
#define FSHARD_TOOLS_JOB_CODEC_H

#include "formats/fshard.h"
#include "imaging/image.h"

/* FSH_CODEC_OTHER for formats that have no number of their own on disk. */
FshCodec codec_of_format(ImageFormat format);

#endif
