/* seeds.h - first inputs for the fuzz targets: small, whole files of each format, made by our own writers.
 *
 * Failures end the program: they are mistakes in it. */
#ifndef FSHARD_TESTS_FUZZ_SEEDS_H
#define FSHARD_TESTS_FUZZ_SEEDS_H

#include <stddef.h>

/* Writes the file root/target/name and makes its folders as needed. */
void seed_write(const char *root, const char *target, const char *name, const void *bytes, size_t length);
/* Ends the program, naming what, unless it holds. */
void seed_need(int holds, const char *what);

void seeds_formats(
    const char *root); /* shards, records, indexes, manifests, metadata, LMDBs (seeds_formats.c) */
void seeds_foreign(const char *root); /* WebDataset, BasicSR, folder2lmdb, JSON (seeds_foreign.c) */
void seeds_hosts(const char *root);   /* hellos of hosts, lists of Slurm (seeds_hosts.c) */
void seeds_images(const char *root);  /* JPEGs and what they carry (seeds_images.c) */
void seeds_lists(const char *root);   /* labels, tars, ledger rows, tensors (seeds_lists.c) */

#endif
