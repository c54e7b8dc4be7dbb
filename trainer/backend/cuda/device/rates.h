/* rates.h - what this card reaches, measured: what times of layers are held against. */
#ifndef FSHARD_TRAINER_BACKEND_CUDA_DEVICE_RATES_H
#define FSHARD_TRAINER_BACKEND_CUDA_DEVICE_RATES_H

#include "trainer/backend/cuda/device/device.h"

FshStatus cuda_backend_rates(Backend *backend, DataType type, BackendRates *rates, FshError *error);

#endif
