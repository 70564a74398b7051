#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t random_state = 1;

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) die("out of memory");
    return memory;
}

uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

void seed_random(uint64_t seed) { random_state = seed; }

/* xorshift64*, Vigna 2016 */
double random_fraction(void) {
    uint64_t x = random_state;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    random_state = x;
    return (double)((x * 2685821657736338717u) >> 11) * 0x1p-53;
}
