// The backward pass of PReLU, y = x > 0 ? x : a x, in one pass over its numbers: dx, and for every image and slope the
// sum of dy x over x <= 0, which da is made of. `v` is x, or y, whose sign is that of x where a > 0.
//
// Sums are kept apart by image and added in one order, so that no number of threads changes a bit.
#include <stdint.h>

#if defined(__x86_64__) && defined(__linux__)
// by instructions and not by level ("arch=x86-64-v4"), which GCC takes from 12 on
#define FASTEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FASTEST
#endif
#define EXPORT __attribute__((visibility("default")))

enum { LANES = 16 };
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));

EXPORT const char *rectifiers_source_hash(void) { return SOURCE_HASH; }

// bfloat16 is the upper half of a float; it is rounded to the nearest, ties to even, and a NaN stays one
static inline float f32_of_bf16(uint16_t half)
{
    union { uint32_t u; float f; } both = {.u = (uint32_t)half << 16};
    return both.f;
}
static inline uint16_t bf16_of_f32(float number)
{
    union { float f; uint32_t u; } both = {.f = number};
    return number != number ? 0x7fc0 : (both.u + 0x7fff + (both.u >> 16 & 1)) >> 16;
}
static inline float f32_of_f32(float number) { return number; }

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

// NAME_map: `count` numbers with one slope. NAME_maps: [images, channels, inner]; NAME_last: [images, places, channels].
// sums: [images, channels], filled. stride: 1 where every channel has a slope, 0 where they share one.
#define BACKWARD(NAME, NUMBER, TO_NUMBER)                                                                              \
    FASTEST static float NAME##_map(const NUMBER *restrict v, const NUMBER *restrict dy, NUMBER *restrict dx,          \
                                    int64_t count, float a)                                                            \
    {                                                                                                                  \
        lanes sum = {0};                                                                                               \
        float rest = 0;                                                                                                \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES) {                                                                       \
            lanes x = LOAD_##NAME(v + i), e = LOAD_##NAME(dy + i);                                                     \
            bits above = (bits)(x > 0);                                                                                \
            STORE_##NAME(dx + i, (lanes)((above & (bits)e) | (~above & (bits)(a * e))));                               \
            sum += (lanes)(~above & (bits)(e * x));                                                                    \
        }                                                                                                              \
        for (; i < count; i++) {                                                                                       \
            float x = f32_of_##NAME(v[i]), e = f32_of_##NAME(dy[i]);                                                   \
            dx[i] = TO_NUMBER(x > 0 ? e : a * e);                                                                      \
            rest += x > 0 ? 0 : e * x;                                                                                 \
        }                                                                                                              \
        for (int k = 0; k < LANES; k++)                                                                                \
            rest += sum[k];                                                                                            \
        return rest;                                                                                                   \
    }                                                                                                                  \
    EXPORT void rectifiers_prelu_maps_##NAME(const NUMBER *v, const NUMBER *dy, const float *a, int64_t stride,        \
                                             NUMBER *dx, float *sums, int64_t images, int64_t channels, int64_t inner) \
    {                                                                                                                  \
        for (int64_t map = 0; map < images * channels; map++)                                                          \
            sums[map] = NAME##_map(v + map * inner, dy + map * inner, dx + map * inner, inner,                         \
                                   a[map % channels * stride]);                                                        \
    }                                                                                                                  \
    FASTEST static void NAME##_places(const NUMBER *restrict v, const NUMBER *restrict dy, const float *restrict a,    \
                                      int64_t stride, NUMBER *restrict dx, float *restrict sum, int64_t places,        \
                                      int64_t channels)                                                                \
    {                                                                                                                  \
        for (int64_t place = 0; place < places; place++, v += channels, dy += channels, dx += channels) {              \
            int64_t c = 0;                                                                                             \
            for (; c + LANES <= channels; c += LANES) {                                                                \
                lanes x = LOAD_##NAME(v + c), e = LOAD_##NAME(dy + c);                                                 \
                lanes slope = stride ? LOAD_f32(a + c) : a[0] - (lanes){0};                                            \
                bits above = (bits)(x > 0);                                                                            \
                STORE_##NAME(dx + c, (lanes)((above & (bits)e) | (~above & (bits)(slope * e))));                       \
                STORE_f32(sum + c, LOAD_f32(sum + c) + (lanes)(~above & (bits)(e * x)));                               \
            }                                                                                                          \
            for (; c < channels; c++) {                                                                                \
                float x = f32_of_##NAME(v[c]), e = f32_of_##NAME(dy[c]);                                               \
                dx[c] = TO_NUMBER(x > 0 ? e : a[c * stride] * e);                                                      \
                sum[c] += x > 0 ? 0 : e * x;                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    EXPORT void rectifiers_prelu_last_##NAME(const NUMBER *v, const NUMBER *dy, const float *a, int64_t stride,        \
                                             NUMBER *dx, float *sums, int64_t images, int64_t channels, int64_t inner) \
    {                                                                                                                  \
        for (int64_t n = 0; n < images; n++) {                                                                         \
            int64_t at = n * channels * inner;                                                                         \
            for (int64_t c = 0; c < channels; c++)                                                                     \
                sums[n * channels + c] = 0;                                                                            \
            NAME##_places(v + at, dy + at, a, stride, dx + at, sums + n * channels, inner, channels);                  \
        }                                                                                                              \
    }

BACKWARD(f32, float, f32_of_f32)
BACKWARD(bf16, uint16_t, bf16_of_f32)
