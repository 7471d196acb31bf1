// A loop of fused multiply-adds between registers: what no product of matrices on this processor is faster than.
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
enum { CHAINS = 12 }; // more than the units times their delay, and fewer than there are registers

EXPORT const char *rectifiers_source_hash(void) { return SOURCE_HASH; }

#define LOOP(NAME, BYTES, ...)                                                                                         \
    __attribute__((optimize("fp-contract=fast"), __VA_ARGS__)) static double NAME(int64_t rounds, float *sum)          \
    {                                                                                                                  \
        typedef float lanes __attribute__((vector_size(BYTES)));                                                       \
        lanes chains[CHAINS], factor = sum[0] - (lanes){0}, term = sum[1] - (lanes){0}, all = {0};                     \
        for (int k = 0; k < CHAINS; k++)                                                                               \
            chains[k] = (float)k - (lanes){0};                                                                         \
        for (int64_t i = 0; i < rounds; i++)                                                                           \
            for (int k = 0; k < CHAINS; k++)                                                                           \
                chains[k] = chains[k] * factor + term;                                                                 \
        for (int k = 0; k < CHAINS; k++)                                                                               \
            all += chains[k];                                                                                          \
        sum[0] = all[0];                                                                                               \
        return 2.0 * rounds * CHAINS * (BYTES / sizeof(float));                                                        \
    }

#if defined(__x86_64__)
LOOP(avx512, 64, target("avx512f"))
LOOP(avx2, 32, target("avx2,fma"))
#endif
LOOP(plain, 16, unused)

// Makes `rounds` rounds and returns the number of additions and multiplications. sum: two numbers; the first is changed,
// so that nothing is left out.
EXPORT double rectifiers_fma(int64_t rounds, float *sum)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return avx512(rounds, sum);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return avx2(rounds, sum);
#endif
    return plain(rounds, sum);
}
