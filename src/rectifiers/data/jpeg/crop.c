/* Resized views of a JPEG file: decodes once the region that their resizes read, and resizes only that. */
#include <stdlib.h>
#include <string.h>

#include "decoder.h"

static void leave(j_common_ptr decoder) { longjmp(((struct trap *)decoder->err)->escape, 1); }

static void hear(j_common_ptr decoder, int level) {
    if (level < 0) leave(decoder); /* a warning: the data is corrupt, and Pillow is to say what becomes of it */
}

struct jpeg_error_mgr *set_trap(struct trap *trap) {
    struct jpeg_error_mgr *manager = jpeg_std_error(&trap->manager);
    manager->error_exit = leave;
    manager->emit_message = hear;
    return manager;
}

/* The resize of one view. */
struct resize {
    struct taps rows, columns;
    int32_t *sums;    /* of one output line */
    uint8_t *resized; /* the region's rows at the view's width */
};

/* Everything that one call owns, so that a jump out of libjpeg leaves nothing behind. */
struct work {
    struct jpeg_decompress_struct decoder;
    struct trap trap;
    struct layout layout;
    int count; /* of views */
    const struct view *views;
    struct resize *resizes;
    size_t *starts;     /* of the restart intervals */
    uint8_t *assembled; /* a smaller JPEG of the tiles that are needed */
    uint8_t *pixels;    /* four decoded rows of RGBX */
    int32_t *groups;    /* the same, interleaved */
};

#define CONTEXT_PX 2    /* chroma is interpolated from the neighbours' too */
#define NARROWEST_PX 32 /* libjpeg takes another interpolation for very narrow images */

static int least(int a, int b) { return a < b ? a : b; }
static int most(int a, int b) { return a > b ? a : b; }

/* What has to be decoded so that `need` comes out as it does in the whole image. */
static struct box with_context(struct box need, int height, int width) {
    struct box box = {most(0, need.top - CONTEXT_PX), least(height, need.bottom + CONTEXT_PX),
                      most(0, need.left - CONTEXT_PX), least(width, need.right + CONTEXT_PX)};
    if (box.right - box.left < NARROWEST_PX) box.right = least(width, box.left + NARROWEST_PX);
    if (box.right - box.left < NARROWEST_PX) box.left = most(0, box.right - NARROWEST_PX);
    return box;
}

/* Put a JPEG of the tiles that touch `box` together, `size` bytes, and widen `box` to what they cover. */
static enum outcome assemble(struct work *work, const uint8_t *jpeg, struct box *box, size_t *size) {
    const struct layout *layout = &work->layout;
    int across = (layout->width + layout->mcu_width - 1) / layout->mcu_width;
    int a_row = across / layout->restart_mcus; /* tiles */
    int tile_width = layout->restart_mcus * layout->mcu_width;
    int first_row = box->top / layout->mcu_height, last_row = (box->bottom - 1) / layout->mcu_height;
    int first = box->left / tile_width, last = (box->right - 1) / tile_width;

    size_t total = layout->scan_at + 2, tiles = 0;
    for (int row = first_row; row <= last_row; row++) {
        const size_t *start = work->starts + (size_t)row * (size_t)a_row;
        total += start[last + 1] - start[first];
    }
    uint8_t *out = work->assembled = malloc(total);
    if (!out) return NO_MEMORY;

    box->top = first_row * layout->mcu_height;
    box->left = first * tile_width;
    box->bottom = least(layout->height, (last_row + 1) * layout->mcu_height);
    box->right = least(layout->width, (last + 1) * tile_width);

    /* The header is the whole image's, but for its height and width. */
    memcpy(out, jpeg, layout->scan_at);
    int height = box->bottom - box->top, width = box->right - box->left;
    uint8_t sizes[4] = {(uint8_t)(height >> 8), (uint8_t)height, (uint8_t)(width >> 8), (uint8_t)width};
    memcpy(out + layout->height_at, sizes, 4);

    /* Restart markers count from 0 to 7 over and over, and the last tile ends the image instead. */
    uint8_t *end = out + layout->scan_at;
    for (int row = first_row; row <= last_row; row++) {
        const size_t *start = work->starts + (size_t)row * (size_t)a_row;
        for (int i = first; i <= last; i++, tiles++) {
            size_t length = start[i + 1] - start[i]; /* with the marker at its end */
            memcpy(end, jpeg + start[i], length);
            end += length;
            end[-1] = (uint8_t)(RESTART + (tiles & 7));
        }
    }
    end[-1] = END_OF_IMAGE;
    *size = (size_t)(end - out);
    return DONE;
}

/* Check the whole scan; of a file with restart markers, leave in `work->assembled` only the tiles that touch `box`.
   `jpeg` and `size` become the file to decode, and `frame` the part of the image that it holds. */
static enum outcome choose_file(struct work *work, const uint8_t **jpeg, size_t *size, struct box box,
                                struct box *frame) {
    const struct layout *layout = &work->layout;
    int across = (layout->width + layout->mcu_width - 1) / layout->mcu_width;
    size_t tiles = tiles_of(layout);
    int tiled = layout->restart_mcus && layout->restart_mcus <= across && across % layout->restart_mcus == 0;
    if (tiles > *size) return NOT_HANDLED; /* a tile has a byte at least */
    if (tiled && !(work->starts = malloc(sizeof(size_t) * (tiles + 1)))) return NO_MEMORY;
    if (read_scan(*jpeg, *size, layout, tiles, work->starts) != DONE) return NOT_HANDLED;

    *frame = (struct box){0, layout->height, 0, layout->width};
    if (!tiled) return DONE;
    *frame = box;
    enum outcome outcome = assemble(work, *jpeg, frame, size);
    *jpeg = work->assembled;
    return outcome;
}

/* Start decoding at row `need.top`, between the columns of `box`; `left` takes the first column, counted in the image.
   libjpeg begins at the iMCU that holds it. */
static enum outcome start_decoder(struct work *work, const uint8_t *jpeg, size_t size, struct box frame,
                                  struct box box, struct box need, int *left) {
    struct jpeg_decompress_struct *decoder = &work->decoder;
    jpeg_mem_src(decoder, (unsigned char *)jpeg, (unsigned long)size);
    if (jpeg_read_header(decoder, TRUE) != JPEG_HEADER_OK) return NOT_HANDLED;
    if ((int)decoder->image_height != frame.bottom - frame.top || (int)decoder->image_width != frame.right - frame.left)
        return NOT_HANDLED;
    J_COLOR_SPACE space = decoder->jpeg_color_space;
    if (space != JCS_YCbCr && space != JCS_GRAYSCALE) return NOT_HANDLED;

    decoder->out_color_space = JCS_EXT_RGBX; /* four bytes a pixel, as the resize reads them */
    jpeg_start_decompress(decoder);
    JDIMENSION first = (JDIMENSION)(box.left - frame.left), width = (JDIMENSION)(box.right - box.left);
    if (first > 0 || width < decoder->output_width) jpeg_crop_scanline(decoder, &first, &width);
    if (need.top > frame.top) {
        JDIMENSION skipped = (JDIMENSION)(need.top - frame.top);
        if (jpeg_skip_scanlines(decoder, skipped) != skipped) return NOT_HANDLED;
    }
    *left = frame.left + (int)first;
    return DONE;
}

/* Prepare the resize of every view, and leave in `need` the part of the image that they read. */
static enum outcome plan(struct work *work, struct box *need) {
    int height = work->layout.height, width = work->layout.width;
    *need = (struct box){height, 0, width, 0};
    for (int i = 0; i < work->count; i++) {
        const struct view *view = work->views + i;
        struct taps *rows = &work->resizes[i].rows, *columns = &work->resizes[i].columns;
        if (view->rows < 1 || view->top < 0 || view->top > view->height - view->rows) return NOT_HANDLED;
        if (view->columns < 1 || view->left < 0 || view->left > view->width - view->columns) return NOT_HANDLED;

        /* Pillow shrinks columns before rows where that leaves fewer; its rule is its own, so such tall images are too. */
        if (height > view->height && height - view->height >= 2 * (width - view->width)) return NOT_HANDLED;

        enum outcome outcome = make_taps(rows, width, view->width, view->left, view->columns);
        if (outcome == DONE) outcome = make_taps(columns, height, view->height, view->top, view->rows);
        if (outcome != DONE) return outcome;

        need->top = least(need->top, columns->first[0]);
        need->bottom = most(need->bottom, columns->first[view->rows - 1] + columns->count[view->rows - 1]);
        need->left = least(need->left, rows->first[0]);
        need->right = most(need->right, rows->first[view->columns - 1] + rows->count[view->columns - 1]);
    }
    return DONE;
}

/* Decode the rows of `need`, four at a time, and resize them to the views. */
static enum outcome decode(struct work *work, const uint8_t *jpeg, size_t size, struct box need) {
    struct jpeg_decompress_struct *decoder = &work->decoder;
    struct box box = with_context(need, work->layout.height, work->layout.width), frame;
    int left;
    enum outcome outcome = choose_file(work, &jpeg, &size, box, &frame);
    if (outcome == DONE) outcome = start_decoder(work, jpeg, size, frame, box, need, &left);
    if (outcome != DONE) return outcome;

    size_t line = 4 * (size_t)decoder->output_width;
    int rows = need.bottom - need.top;
    work->pixels = malloc(4 * line);
    work->groups = aligned_alloc(64, 16 * sizeof(int32_t) * (size_t)decoder->output_width);
    if (!work->pixels || !work->groups) return NO_MEMORY;
    for (int i = 0; i < work->count; i++) {
        struct resize *resize = work->resizes + i;
        size_t columns = (size_t)work->views[i].columns;
        resize->sums = aligned_alloc(64, 16 * sizeof(int32_t) * columns);
        resize->resized = malloc(4 * columns * (size_t)(rows + 3));
        if (!resize->sums || !resize->resized) return NO_MEMORY;
    }

    for (int row = 0; row < rows; row += 4) {
        int count = least(4, rows - row);
        for (int i = 0; i < count; i++) {
            JSAMPROW pixels = work->pixels + line * (size_t)i;
            if (jpeg_read_scanlines(decoder, &pixels, 1) != 1) return NOT_HANDLED;
        }
        interleave_rows(work->pixels, line, count, work->groups);
        for (int i = 0; i < work->count; i++) {
            struct resize *resize = work->resizes + i;
            uint8_t *to = resize->resized + 4 * (size_t)work->views[i].columns * (size_t)row;
            resample_rows(work->groups, left, &resize->rows, work->views[i].mirrored, resize->sums, to);
        }
    }
    for (int i = 0; i < work->count; i++) {
        const struct resize *resize = work->resizes + i;
        const struct view *view = work->views + i;
        resample_columns(resize->resized, need.top, view->columns, &resize->columns, resize->sums, view->planes);
    }
    return DONE;
}

int rectifiers_read(const uint8_t *jpeg, size_t size, int count, const struct view *views) {
    struct work work;
    memset(&work, 0, sizeof work);
    volatile enum outcome outcome = read_layout(jpeg, size, &work.layout);
    if (outcome != DONE || count < 1) return NOT_HANDLED;

    work.views = views;
    work.resizes = calloc((size_t)count, sizeof *work.resizes);
    if (!work.resizes) return NO_MEMORY;
    work.count = count;
    work.decoder.err = set_trap(&work.trap);
    struct box need;
    outcome = plan(&work, &need);
    if (outcome == DONE) {
        if (setjmp(work.trap.escape)) {
            outcome = NOT_HANDLED;
        } else {
            jpeg_create_decompress(&work.decoder);
            outcome = decode(&work, jpeg, size, need);
        }
        jpeg_destroy_decompress(&work.decoder);
    }

    for (int i = 0; i < count; i++) {
        free_taps(&work.resizes[i].rows);
        free_taps(&work.resizes[i].columns);
        free(work.resizes[i].sums);
        free(work.resizes[i].resized);
    }
    free(work.resizes);
    free(work.starts);
    free(work.assembled);
    free(work.pixels);
    free(work.groups);
    return outcome;
}
