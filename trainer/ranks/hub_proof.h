/* hub_proof.h - shows knowledge of a secret without sending it: HMAC-SHA-256 (RFC 2104, FIPS 180-4). No
 * library that fshard links has it.
 *
 * Threads: any. */
#ifndef FSHARD_TRAINER_RANKS_HUB_PROOF_H
#define FSHARD_TRAINER_RANKS_HUB_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HUB_PROOF_BYTES = 32 };

/* Writes the HMAC-SHA-256 of the bytes under the secret, a text, to proof. */
void hub_proof_make(const char *secret, const void *bytes, size_t byte_count, uint8_t proof[HUB_PROOF_BYTES]);
/* Returns whether two proofs are the same. Takes as long for all that are not. */
bool hub_proof_is(const uint8_t a[HUB_PROOF_BYTES], const uint8_t b[HUB_PROOF_BYTES]);

#endif
