/* rank_cores.h - which cores the ranks of a host compute on.
 *
 * Launchers bind ranks to cores (srun --cpus-per-task, mpirun), or leave them all to every rank. A core that
 * several ranks may run on counts for each of them as a part of one.
 *
 * Every rank of the run makes the same calls. Threads: one. */
#ifndef FSHARD_TRAINER_RANKS_RANK_CORES_H
#define FSHARD_TRAINER_RANKS_RANK_CORES_H

#include "common/cpu_mask.h"
#include "trainer/ranks/communicator.h"

/* Sets *share_ret to the cores of this rank, at least 1: those of `own`, each divided by the ranks of this
 * host that may run on it. quota: cores that the control group of this host's ranks may keep busy, which they
 * share alike; INFINITY: all. Fails as communicator_gather. */
FshStatus rank_cores_share(Communicator *communicator, const CpuMask *own, double quota, int *share_ret,
                           FshError *error);

/* Reads the cores that lie beside a device. root: where sysfs is mounted ("/sys"); bus_id: of PCI, as
 * "0000:3B:00.0". Returns false if the system does not tell; *near_ret is empty then. */
bool rank_cores_near(const char *root, const char *bus_id, CpuMask *near_ret);

/* Decides whether this rank binds itself to the cores `near` its device. It does where nobody has bound it
 * (`own` has all of the machine's `online` cores), and where it does not lose cores by it: ranks whose
 * devices lie beside the same cores share them. `near` may be empty. Fails as communicator_gather. */
FshStatus rank_cores_choose(Communicator *communicator, const CpuMask *own, const CpuMask *near, int online,
                            bool *binds_ret, FshError *error);

#endif
