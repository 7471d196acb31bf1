// PReLU, y = x > 0 ? x : a x, and its backward pass in one pass over the numbers: dx, and for every slope the sum of
// dy x over x <= 0, which da is made of. `v` is x, or y, whose sign is that of x where a > 0; operator.py says when.
//
// Sums are kept apart by part, a fixed number of images, and added in one order, so that no number of threads changes a
// bit.
#include <stdint.h>

#if defined(__x86_64__) && defined(__linux__)
// by instructions and not by level ("arch=x86-64-v4"), which GCC takes from 12 on
#define FASTEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FASTEST
#endif
#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

enum {
    LANES = 16,
    TILE = 2048,      // numbers, of which the slopes and their sums fit into the first cache
    REGISTERS = 8,    // vectors of sums that are kept in registers, beside as many of slopes
    INDEPENDENT = 4,  // vectors of sums at least, so that an addition need not wait for the last one
};
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));

EXPORT const char *rectifiers_source_hash(void) { return SOURCE_HASH; }

// bfloat16 is the upper half of a float; it is rounded to the nearest, ties to even, and a NaN stays one
INLINE float f32_of_bf16(uint16_t half)
{
    union { uint32_t u; float f; } both = {.u = (uint32_t)half << 16};
    return both.f;
}
INLINE uint16_t bf16_of_f32(float number)
{
    union { float f; uint32_t u; } both = {.f = number};
    return number != number ? 0x7fc0 : (both.u + 0x7fff + (both.u >> 16 & 1)) >> 16;
}
INLINE float f32_of_f32(float number) { return number; }

// by halves: one after the other, each addition would wait for the last one
INLINE float sum_of_lanes(lanes sum)
{
    typedef float half __attribute__((vector_size(2 * LANES), aligned(4)));
    typedef float quarter __attribute__((vector_size(LANES), aligned(4)));
    union { lanes all; half halves[2]; } one = {.all = sum};
    union { half all; quarter quarters[2]; } two = {.all = one.halves[0] + one.halves[1]};
    quarter four = two.quarters[0] + two.quarters[1];
    return (four[0] + four[1]) + (four[2] + four[3]);
}

#define LOAD_f32(from) (*(const lanes *)(from))
#define LOAD_bf16(from) ((lanes)(__builtin_convertvector(*(const halves *)(from), bits) << 16))
#define STORE_f32(to, numbers) (*(lanes *)(to) = (numbers))
#define STORE_bf16(to, numbers)                                                                                        \
    do {                                                                                                               \
        lanes full = (numbers);                                                                                        \
        bits raw = (bits)full, none = (bits)(full != full);                                                            \
        raw = (raw + 0x7fff + (raw >> 16 & 1)) >> 16;                                                                  \
        *(halves *)(to) = __builtin_convertvector((none & 0x7fc0) | (~none & raw), halves);                            \
    } while (0)

// Numbers with channels last are one vector in which the slopes repeat. Return after how many `lanes` they do: the least
// common multiple of channels and LANES, some times over where that gives too few independent sums.
static int64_t period_of(int64_t channels)
{
    int64_t least = channels;
    for (int64_t lane = LANES; least % 2 == 0 && lane > 1; lane /= 2)
        least /= 2;
    return least * ((INDEPENDENT + least - 1) / least);
}

// The functions of one type of numbers, NAME, from the innermost to those that Python calls:
//
//   NAME_*_lanes, NAME_*_one      LANES numbers, and one of those that are left at the end. Masks choose between the
//                                 two sides of PReLU, lane by lane
//   NAME_map_*                    `count` numbers with one slope
//   NAME_in_registers             most of `count` numbers whose slopes repeat every `period` vectors. The compiler
//                                 knows the period, and keeps the slopes and their sums in registers
//   NAME_forward, NAME_backward   all of such numbers, of any period
//   rectifiers_prelu_*_maps_NAME  [images, channels, inner]
//   rectifiers_prelu_*_last_NAME  [images, inner, channels]: one vector while the repeated slopes fit into a TILE, else
//                                 position by position
//
// sums: [parts, channels], filled; a part has `of_part` images, the last one the rest.
#define PRELU(NAME, NUMBER, TO_NUMBER)                                                                                 \
    INLINE void NAME##_backward_lanes(const NUMBER *v, const NUMBER *dy, const lanes *slopes, NUMBER *dx, lanes *sum)  \
    {                                                                                                                  \
        lanes x = LOAD_##NAME(v), e = LOAD_##NAME(dy);                                                                 \
        bits above = (bits)(x > 0);                                                                                    \
        STORE_##NAME(dx, (lanes)((above & (bits)e) | (~above & (bits)(*slopes * e))));                                 \
        *sum += (lanes)(~above & (bits)(e * x));                                                                       \
    }                                                                                                                  \
    INLINE void NAME##_backward_one(const NUMBER *v, const NUMBER *dy, float a, NUMBER *dx, float *sum)                \
    {                                                                                                                  \
        float x = f32_of_##NAME(*v), e = f32_of_##NAME(*dy);                                                           \
        *dx = TO_NUMBER(x > 0 ? e : a * e);                                                                            \
        *sum += x > 0 ? 0 : e * x;                                                                                     \
    }                                                                                                                  \
    INLINE void NAME##_forward_lanes(const NUMBER *from, const lanes *slopes, NUMBER *y)                               \
    {                                                                                                                  \
        lanes x = LOAD_##NAME(from);                                                                                   \
        bits above = (bits)(x > 0);                                                                                    \
        STORE_##NAME(y, (lanes)((above & (bits)x) | (~above & (bits)(*slopes * x))));                                  \
    }                                                                                                                  \
    INLINE void NAME##_forward_one(const NUMBER *from, float a, NUMBER *y)                                             \
    {                                                                                                                  \
        float x = f32_of_##NAME(*from);                                                                                \
        *y = TO_NUMBER(x > 0 ? x : a * x);                                                                             \
    }                                                                                                                  \
                                                                                                                       \
    FASTEST static void NAME##_map_forward(const NUMBER *restrict x, float a, NUMBER *restrict y, int64_t count)       \
    {                                                                                                                  \
        lanes slopes = a - (lanes){0};                                                                                 \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES)                                                                         \
            NAME##_forward_lanes(x + i, &slopes, y + i);                                                               \
        for (; i < count; i++)                                                                                         \
            NAME##_forward_one(x + i, a, y + i);                                                                       \
    }                                                                                                                  \
    FASTEST static float NAME##_map_backward(const NUMBER *restrict v, const NUMBER *restrict dy, float a,             \
                                             NUMBER *restrict dx, int64_t count)                                       \
    {                                                                                                                  \
        lanes sum = {0}, slopes = a - (lanes){0};                                                                      \
        float rest = 0;                                                                                                \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES)                                                                         \
            NAME##_backward_lanes(v + i, dy + i, &slopes, dx + i, &sum);                                               \
        for (; i < count; i++)                                                                                         \
            NAME##_backward_one(v + i, dy + i, a, dx + i, &rest);                                                      \
        return rest + sum_of_lanes(sum);                                                                               \
    }                                                                                                                  \
    FASTEST static void NAME##_forward(const NUMBER *restrict x, const float *restrict slopes, NUMBER *restrict y,     \
                                       int64_t count, int64_t period)                                                  \
    {                                                                                                                  \
        int64_t i = 0, k = 0;                                                                                          \
        for (; i + LANES <= count; i += LANES, k = k + LANES < period * LANES ? k + LANES : 0)                         \
            NAME##_forward_lanes(x + i, (const lanes *)(slopes + k), y + i);                                           \
        for (; i < count; i++, k++)                                                                                    \
            NAME##_forward_one(x + i, slopes[k], y + i);                                                               \
    }                                                                                                                  \
    INLINE int64_t NAME##_in_registers(const NUMBER *restrict v, const NUMBER *restrict dy,                            \
                                       const float *restrict slopes, NUMBER *restrict dx, float *restrict sums,        \
                                       int64_t count, const int period)                                                \
    {                                                                                                                  \
        lanes a[REGISTERS], sum[REGISTERS];                                                                            \
        int64_t i = 0;                                                                                                 \
        _Pragma("GCC unroll 8") for (int k = 0; k < period; k++)                                                       \
        {                                                                                                              \
            a[k] = LOAD_f32(slopes + k * LANES);                                                                       \
            sum[k] = LOAD_f32(sums + k * LANES);                                                                       \
        }                                                                                                              \
        for (; i + period * LANES <= count; i += period * LANES)                                                       \
        {                                                                                                              \
            _Pragma("GCC unroll 8") for (int k = 0; k < period; k++)                                                   \
                NAME##_backward_lanes(v + i + k * LANES, dy + i + k * LANES, a + k, dx + i + k * LANES, sum + k);      \
        }                                                                                                              \
        _Pragma("GCC unroll 8") for (int k = 0; k < period; k++)                                                       \
            STORE_f32(sums + k * LANES, sum[k]);                                                                       \
        return i;                                                                                                      \
    }                                                                                                                  \
    FASTEST static void NAME##_backward(const NUMBER *restrict v, const NUMBER *restrict dy,                           \
                                        const float *restrict slopes, NUMBER *restrict dx, float *restrict sums,       \
                                        int64_t count, int64_t period)                                                 \
    {                                                                                                                  \
        int64_t i = 0, k = 0;                                                                                          \
        switch (period) {                                                                                              \
        case 4: i = NAME##_in_registers(v, dy, slopes, dx, sums, count, 4); break;                                     \
        case 5: i = NAME##_in_registers(v, dy, slopes, dx, sums, count, 5); break;                                     \
        case 6: i = NAME##_in_registers(v, dy, slopes, dx, sums, count, 6); break;                                     \
        case 7: i = NAME##_in_registers(v, dy, slopes, dx, sums, count, 7); break;                                     \
        case 8: i = NAME##_in_registers(v, dy, slopes, dx, sums, count, 8); break;                                     \
        }                                                                                                              \
        for (; i + LANES <= count; i += LANES, k = k + LANES < period * LANES ? k + LANES : 0)                         \
            NAME##_backward_lanes(v + i, dy + i, (const lanes *)(slopes + k), dx + i, (lanes *)(sums + k));            \
        for (; i < count; i++, k++)                                                                                    \
            NAME##_backward_one(v + i, dy + i, slopes[k], dx + i, sums + k);                                           \
    }                                                                                                                  \
                                                                                                                       \
    EXPORT void rectifiers_prelu_forward_maps_##NAME(const NUMBER *x, const float *a, NUMBER *y, int64_t images,       \
                                                     int64_t channels, int64_t inner)                                  \
    {                                                                                                                  \
        for (int64_t map = 0; map < images * channels; map++)                                                          \
            NAME##_map_forward(x + map * inner, a[map % channels], y + map * inner, inner);                            \
    }                                                                                                                  \
    EXPORT void rectifiers_prelu_backward_maps_##NAME(const NUMBER *v, const NUMBER *dy, const float *a, NUMBER *dx,   \
                                                      float *sums, int64_t images, int64_t channels, int64_t inner,    \
                                                      int64_t of_part)                                                 \
    {                                                                                                                  \
        for (int64_t n = 0; n < images; n++)                                                                           \
            for (int64_t c = 0; c < channels; c++) {                                                                   \
                int64_t at = (n * channels + c) * inner;                                                               \
                float *sum = sums + n / of_part * channels + c;                                                        \
                *sum = NAME##_map_backward(v + at, dy + at, a[c], dx + at, inner) + (n % of_part ? *sum : 0);          \
            }                                                                                                          \
    }                                                                                                                  \
    EXPORT void rectifiers_prelu_forward_last_##NAME(const NUMBER *x, const float *a, NUMBER *y, int64_t images,       \
                                                     int64_t channels, int64_t inner)                                  \
    {                                                                                                                  \
        float slopes[TILE];                                                                                            \
        int64_t count = images * inner * channels, period = period_of(channels);                                       \
        if (period * LANES <= TILE) {                                                                                  \
            for (int64_t i = 0; i < period * LANES; i++)                                                               \
                slopes[i] = a[i % channels];                                                                           \
            NAME##_forward(x, slopes, y, count, period);                                                               \
        } else                                                                                                         \
            for (int64_t i = 0; i < count; i += channels)                                                              \
                NAME##_forward(x + i, a, y + i, channels, period);                                                     \
    }                                                                                                                  \
    EXPORT void rectifiers_prelu_backward_last_##NAME(const NUMBER *v, const NUMBER *dy, const float *a, NUMBER *dx,   \
                                                      float *sums, int64_t images, int64_t channels, int64_t inner,    \
                                                      int64_t of_part)                                                 \
    {                                                                                                                  \
        float slopes[TILE], tile[TILE];                                                                                \
        int64_t end = images * inner * channels, size = of_part * inner * channels, period = period_of(channels);      \
        for (int64_t i = 0; period * LANES <= TILE && i < period * LANES; i++)                                         \
            slopes[i] = a[i % channels];                                                                               \
        for (int64_t at = 0; at < end; at += size, sums += channels) {                                                 \
            int64_t count = end - at < size ? end - at : size;                                                         \
            for (int64_t c = 0; c < channels; c++)                                                                     \
                sums[c] = 0;                                                                                           \
            if (period * LANES <= TILE) {                                                                              \
                for (int64_t i = 0; i < period * LANES; i++)                                                           \
                    tile[i] = 0;                                                                                       \
                NAME##_backward(v + at, dy + at, slopes, dx + at, tile, count, period);                                \
                for (int64_t i = 0; i < period * LANES; i++)                                                           \
                    sums[i % channels] += tile[i];                                                                     \
            } else                                                                                                     \
                for (int64_t i = at; i < at + count; i += channels)                                                    \
                    NAME##_backward(v + i, dy + i, a, dx + i, sums, channels, period);                                 \
        }                                                                                                              \
    }

PRELU(f32, float, f32_of_f32)
PRELU(bf16, uint16_t, bf16_of_f32)

// da [channels] from the sums of all parts; those of y are a times those of x.
EXPORT void rectifiers_prelu_slopes(const float *sums, const float *a, float *da, int64_t parts, int64_t channels,
                                    int64_t from_output)
{
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0;
        for (int64_t part = 0; part < parts; part++)
            sum += sums[part * channels + c];
        da[c] = from_output ? (float)sum / a[c] : (float)sum;
    }
}
