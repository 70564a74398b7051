#include "histogram.h"

#include <math.h>

enum { SUB = 1 << HISTOGRAM_SUB_BITS };

unsigned histogram_bucket_of(uint64_t ns) {
    if (ns < SUB) return (unsigned)ns;
    unsigned power = 63u - (unsigned)__builtin_clzll(ns);
    unsigned shift = power - HISTOGRAM_SUB_BITS;
    return (shift + 1) * SUB + (unsigned)((ns >> shift) - SUB);
}

uint64_t histogram_value_of(unsigned bucket) {
    if (bucket < SUB) return bucket;
    unsigned shift = bucket / SUB - 1;
    return ((uint64_t)(SUB + bucket % SUB) << shift) + ((1ull << shift) >> 1);
}

void histogram_count(struct histogram *histogram, uint64_t ns) {
    histogram->counts[histogram_bucket_of(ns)]++;
    histogram->total++;
    histogram->sum_ns += ns;
    if (ns > histogram->max_ns) histogram->max_ns = ns;
}

uint64_t histogram_percentile_ns(const struct histogram *histogram, double fraction) {
    uint64_t wanted = (uint64_t)ceil(fraction * (double)histogram->total), seen = 0;
    if (wanted < 1) wanted = 1;
    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen >= wanted) {
            uint64_t value = histogram_value_of(bucket);
            return value < histogram->max_ns ? value : histogram->max_ns;
        }
    }
    return histogram->max_ns;
}
