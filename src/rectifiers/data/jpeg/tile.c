/* The same coefficients, encoded again with a restart marker after every few MCUs, so that parts can be read alone. */
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

#define TILE_PX 64     /* a tile's width is near this: measured fastest, and the file is no larger than the original */

void count_scans(j_common_ptr decoder) {
    if (((j_decompress_ptr)decoder)->input_scan_number > MOST_SCANS) decoder->err->error_exit(decoder);
}

/* The restart interval for `mcus` a row of `width` px each: a divisor nearest to TILE_PX, else the whole row. */
static int interval(int mcus, int width) {
    int best = mcus;
    for (int b = 2 * TILE_PX / width; 4 * b * width >= 3 * TILE_PX; b--)
        if (mcus % b == 0 && abs(b * width - TILE_PX) < abs(best * width - TILE_PX)) best = b;
    return best;
}

/* Whether the luma and chroma samplings are those that `rectifiers_read` reads. */
static int handled(const struct jpeg_decompress_struct *source) {
    const jpeg_component_info *parts = source->comp_info;
    if ((int64_t)source->image_height * source->image_width > LARGEST_PIXELS || source->arith_code) return 0;
    if (source->jpeg_color_space == JCS_GRAYSCALE) return parts[0].h_samp_factor == 1 && parts[0].v_samp_factor == 1;
    if (source->jpeg_color_space != JCS_YCbCr) return 0;
    for (int i = 1; i < 3; i++)
        if (parts[i].h_samp_factor != 1 || parts[i].v_samp_factor != 1) return 0;
    int h = parts[0].h_samp_factor, v = parts[0].v_samp_factor;
    return (h == 1 && v == 1) || (h == 2 && (v == 1 || v == 2));
}

/* Whether all bits of all coefficients came: a decoder smooths over those that did not, and would not once rewritten. */
static int whole(const struct jpeg_decompress_struct *source) {
    if (!source->progressive_mode) return 1;
    for (int i = 0; i < source->num_components; i++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (source->coef_bits[i][k] != 0) return 0;
    return 1;
}

/* Where the new file goes: memory that grows, and that can be found and freed after a jump. */
struct sink {
    struct jpeg_destination_mgr manager;
    uint8_t *bytes;
    size_t room;
};

static boolean grow(j_compress_ptr target) {
    struct sink *sink = (struct sink *)target->dest;
    size_t filled = sink->room; /* libjpeg asks when all room is used, whatever free_in_buffer says */
    size_t room = filled ? 2 * filled : 1 << 16;
    uint8_t *bytes = realloc(sink->bytes, room);
    if (!bytes) target->err->error_exit((j_common_ptr)target);
    sink->bytes = bytes;
    sink->room = room;
    sink->manager.next_output_byte = bytes + filled;
    sink->manager.free_in_buffer = room - filled;
    return TRUE;
}

static void start_sink(j_compress_ptr target) { grow(target); }
static void end_sink(j_compress_ptr target) { (void)target; }

int rectifiers_tile(const uint8_t *jpeg, size_t size, uint8_t **tiled, size_t *tiled_size) {
    struct jpeg_decompress_struct source;
    struct jpeg_compress_struct target;
    struct jpeg_progress_mgr progress;
    struct trap trap;
    struct sink sink;
    volatile enum outcome outcome = NOT_HANDLED;
    memset(&source, 0, sizeof source);
    memset(&target, 0, sizeof target);
    memset(&progress, 0, sizeof progress);
    memset(&sink, 0, sizeof sink);

    sink.manager.init_destination = start_sink;
    sink.manager.empty_output_buffer = grow;
    sink.manager.term_destination = end_sink;
    progress.progress_monitor = count_scans;
    source.err = target.err = set_trap(&trap);
    *tiled = NULL;
    *tiled_size = 0;
    if (size == 0) return NOT_HANDLED;

    if (!setjmp(trap.escape)) {
        jpeg_create_decompress(&source);
        jpeg_create_compress(&target);
        source.progress = &progress;
        jpeg_mem_src(&source, (unsigned char *)jpeg, (unsigned long)size);
        if (jpeg_read_header(&source, TRUE) == JPEG_HEADER_OK && handled(&source)) {
            jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&source);
            if (whole(&source)) {
                jpeg_copy_critical_parameters(&source, &target);
                target.optimize_coding = TRUE;
                int width = DCTSIZE * source.max_h_samp_factor;
                target.restart_interval = (unsigned)interval(((int)source.image_width + width - 1) / width, width);
                target.dest = &sink.manager;
                jpeg_write_coefficients(&target, coefficients);
                jpeg_finish_compress(&target);
                *tiled = sink.bytes;
                *tiled_size = sink.room - sink.manager.free_in_buffer;
                outcome = DONE;
            }
        }
    }

    jpeg_destroy_compress(&target);
    jpeg_destroy_decompress(&source);
    if (outcome != DONE) free(sink.bytes);
    return outcome;
}

void rectifiers_free(uint8_t *tiled) { free(tiled); }
