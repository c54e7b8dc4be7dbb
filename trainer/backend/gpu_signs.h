/* gpu_signs.h - what a machine shows of NVIDIA GPUs to a process that cannot use one: so a missing driver is
 * told where there is a card, and a laptop without one is not bothered.
 *
 * Threads: any, while no other changes the environment. */
#ifndef FSHARD_TRAINER_BACKEND_GPU_SIGNS_H
#define FSHARD_TRAINER_BACKEND_GPU_SIGNS_H

typedef enum GpuSigns {
    GPU_SIGNS_NONE,   /* no driver is loaded, and no card is on the PCI bus */
    GPU_SIGNS_HIDDEN, /* there are, but CUDA_VISIBLE_DEVICES shows the process none */
    GPU_SIGNS_THERE,  /* the kernel's driver is loaded, a card is on the bus, or WSL has Windows' driver */
} GpuSigns;

/* Looks below root, "" for the machine itself: /dev, /sys and WSL's folder of libraries. */
GpuSigns gpu_signs(const char *root);

#endif
