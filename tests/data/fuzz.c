/* Damages JPEG files at random and reads them: `fuzz COUNT FILE...`, compiled with the address sanitizer.

   Every mutant lies in a block of exactly its size, so that a read beyond it is seen. Prints how many of COUNT were
   cropped and tiled. */
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

static uint64_t state = 88172645463325252ULL;

static size_t below(size_t bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 11) % bound;
}

static size_t mutate(uint8_t *jpeg, size_t size) {
    size_t frame = 0, sizes = 0;
    for (size_t i = 0; i + 9 < size && !frame; i++)
        if (jpeg[i] == 0xFF && (jpeg[i + 1] == 0xC0 || jpeg[i + 1] == 0xC2)) frame = i;
    switch (below(6)) {
    case 0: /* flip bits */
        for (size_t n = 1 + below(8); n > 0; n--) jpeg[below(size)] ^= (uint8_t)(1u << below(8));
        return size;
    case 1: return below(size); /* cut */
    case 2: /* edit a marker */
        for (size_t at = below(size), i = 0; i < size; i++, at = (at + 1) % size)
            if (at > 0 && jpeg[at - 1] == 0xFF && jpeg[at] != 0) {
                jpeg[at] = (uint8_t)below(256);
                break;
            }
        return size;
    case 3: /* another size, sampling or precision; small sizes mostly, as large ones take their time */
        sizes = below(3) ? 6 + 2 * below(2) : 4 + below(12);
        if (frame + sizes < size) jpeg[frame + sizes] = (uint8_t)below(256);
        return size;
    case 4: { /* lose a piece */
        size_t from = below(size), length = below(size - from);
        memmove(jpeg + from, jpeg + from + length, size - from - length);
        return size - length;
    }
    default: jpeg[below(size < 700 ? size : 700)] = (uint8_t)below(256); return size; /* the header */
    }
}

static int read_one(const uint8_t *jpeg, size_t size) {
    int height, width;
    if (rectifiers_measure(jpeg, size, &height, &width) != DONE) return 0;
    int out_height = 1 + (int)below(300), out_width = below(2) ? 1 + (int)below(300) : (int)((int64_t)out_height * width / height);
    if (out_width < 1 || out_width > 4000) out_width = 300;
    struct view views[2];
    int count = 1 + (int)below(2);
    for (int i = 0; i < count; i++) {
        int rows = 1 + (int)below((size_t)out_height), columns = 1 + (int)below((size_t)out_width);
        int top = (int)below((size_t)(out_height - rows) + 1), left = (int)below((size_t)(out_width - columns) + 1);
        uint8_t *planes = malloc(3 * (size_t)rows * (size_t)columns);
        views[i] = (struct view){out_height, out_width, top, left, rows, columns, (int)below(2), planes};
        out_height = 1 + (int)below(300); /* of the next view */
    }
    int done = rectifiers_read(jpeg, size, count, views) == DONE;
    for (int i = 0; i < count; i++) free(views[i].planes);
    return done;
}

int main(int count, char **arguments) {
    int cropped = 0, tiled = 0, mutants = atoi(arguments[1]);
    for (int n = 0; n < mutants; n++) {
        FILE *file = fopen(arguments[2 + n % (count - 2)], "rb");
        fseek(file, 0, SEEK_END);
        size_t size = (size_t)ftell(file);
        rewind(file);
        uint8_t *work = malloc(size);
        if (fread(work, 1, size, file) != size) return 2;
        fclose(file);
        for (size_t times = 1 + below(3); times > 0 && size > 1; times--) size = mutate(work, size);
        uint8_t *mutant = malloc(size ? size : 1);
        memcpy(mutant, work, size);
        free(work);
        cropped += read_one(mutant, size);
        char text[200];
        rectifiers_check(mutant, size, text);
        uint8_t *out;
        size_t out_size;
        if (rectifiers_tile(mutant, size, &out, &out_size) == DONE) {
            tiled++;
            read_one(out, out_size);
            rectifiers_free(out);
        }
        free(mutant);
    }
    printf("%d %d\n", cropped, tiled);
    return 0;
}
