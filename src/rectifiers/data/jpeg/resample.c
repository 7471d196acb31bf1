/* Pillow's antialiased bilinear resize in whole numbers, rows first and then columns, of any part of the result.

   The weights are those of a triangle that is as wide as the step between outputs (never narrower than an input), cut
   at the border, normalised in double and rounded to 2^-22; every sum is rounded to a byte. Whole numbers give the same
   bytes on every machine, so the compiler is free to choose its instructions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && !defined(PLAIN)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

typedef int32_t lanes __attribute__((vector_size(32))); /* two pixels of RGBX */
#define LARGEST_REACH 4096 /* the rounding of more weights could push a sum out of a byte's range */
#define HALF (1 << (WEIGHT_BITS - 1))

enum outcome make_taps(struct taps *taps, int inputs, int resized, int first, int outputs) {
    double scale = (double)inputs / resized;
    double reach = scale < 1 ? 1 : scale; /* of the triangle, to either side */
    if (reach > LARGEST_REACH) return NOT_HANDLED;
    taps->outputs = outputs;
    taps->most = (int)ceil(reach) * 2 + 1;
    taps->first = malloc(sizeof(int) * (size_t)outputs);
    taps->count = malloc(sizeof(int) * (size_t)outputs);
    taps->weights = calloc((size_t)outputs * (size_t)taps->most, sizeof(int32_t));
    double *raw = malloc(sizeof(double) * (size_t)taps->most);
    if (!taps->first || !taps->count || !taps->weights || !raw) {
        free(raw);
        return NO_MEMORY;
    }

    for (int i = 0; i < outputs; i++) {
        double centre = (first + i + 0.5) * scale, sum = 0;
        int low = (int)(centre - reach + 0.5), high = (int)(centre + reach + 0.5);
        if (low < 0) low = 0;
        if (high > inputs) high = inputs;

        for (int k = 0; k < high - low; k++) {
            double distance = fabs((k + low - centre + 0.5) * (1.0 / reach));
            raw[k] = distance < 1 ? 1 - distance : 0;
            sum += raw[k];
        }
        for (int k = 0; k < high - low; k++)
            taps->weights[(size_t)i * (size_t)taps->most + (size_t)k] =
                (int32_t)(0.5 + raw[k] / sum * (1 << WEIGHT_BITS));
        taps->first[i] = low;
        taps->count[i] = high - low;
    }
    free(raw);
    return DONE;
}

void free_taps(struct taps *taps) {
    free(taps->first);
    free(taps->count);
    free(taps->weights);
}

FOR_EACH_PROCESSOR
void interleave_rows(const uint8_t *pixels, size_t line, int count, int32_t *restrict groups) {
    for (int row = 0; row < 4; row++) {
        const uint8_t *from = pixels + line * (size_t)(row < count ? row : 0);
        for (size_t x = 0; x < line; x += 4)
            for (size_t c = 0; c < 4; c++) groups[4 * x + 4 * (size_t)row + c] = from[x + c];
    }
}

FOR_EACH_PROCESSOR
void resample_rows(const int32_t *groups, int left, const struct taps *taps, int mirrored, int32_t *restrict sums,
                   uint8_t *restrict rows) {
    size_t stride = 4 * (size_t)taps->outputs;
    for (int i = 0; i < taps->outputs; i++) {
        const int32_t *weight = taps->weights + (size_t)i * (size_t)taps->most;
        const lanes *from = (const lanes *)(const void *)(groups + 16 * (size_t)(taps->first[i] - left));
        lanes pair[2] = {{HALF, HALF, HALF, HALF, HALF, HALF, HALF, HALF}, {HALF, HALF, HALF, HALF, HALF, HALF, HALF, HALF}};
        for (int k = 0; k < taps->count[i]; k++) {
            pair[0] += from[2 * k] * weight[k];
            pair[1] += from[2 * k + 1] * weight[k];
        }
        int32_t *to = sums + 4 * (size_t)(mirrored ? taps->outputs - 1 - i : i);
        for (size_t row = 0; row < 4; row++) memcpy(to + stride * row, (char *)pair + 16 * row, 16);
    }
    for (size_t x = 0; x < 4 * stride; x++) rows[x] = (uint8_t)(sums[x] >> WEIGHT_BITS);
}

FOR_EACH_PROCESSOR
void resample_columns(const uint8_t *rows, int top, int width, const struct taps *taps, int32_t *restrict sums,
                      uint8_t *restrict planes) {
    size_t stride = 4 * (size_t)width, plane = (size_t)taps->outputs * (size_t)width;
    for (int i = 0; i < taps->outputs; i++) {
        const uint8_t *from = rows + stride * (size_t)(taps->first[i] - top);
        const int32_t *weight = taps->weights + (size_t)i * (size_t)taps->most;
        for (size_t x = 0; x < stride; x++) sums[x] = HALF + from[x] * weight[0];
        for (int k = 1; k < taps->count[i]; k++) {
            from += stride;
            int32_t factor = weight[k];
            for (size_t x = 0; x < stride; x++) sums[x] += from[x] * factor;
        }
        uint8_t *to = planes + (size_t)i * (size_t)width;
        for (size_t c = 0; c < 3; c++)
            for (size_t x = 0; x < (size_t)width; x++)
                to[plane * c + x] = (uint8_t)(sums[4 * x + c] >> WEIGHT_BITS);
    }
}
