/* Functions for all parts of the program: time, random numbers, memory, and exit. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stddef.h>
#include <stdint.h>

/* Ends the program with exit code 2. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *allocate(size_t count, size_t size);
uint64_t now_ns(void);

void seed_random(uint64_t seed);
/* Between 0 and 1, 1 excluded. */
double random_fraction(void);

#endif
