/* JPEG files as training and testing read them: only what the views need, bit for bit what Pillow makes of the whole.

   crop.c decodes and resizes views, by way of layout.c (markers) and resample.c (the resize). tile.c adds restart
   markers to a file, so that a crop can skip the rest of it, and check.c finds damage.

   Every function returns DONE, or says why the caller has to take the reference path (Pillow). None of them writes to
   stderr, keeps state between calls, or reads or writes outside the buffers it is given. */
#ifndef RECTIFIERS_DECODER_H
#define RECTIFIERS_DECODER_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

enum outcome {
    DONE = 0,
    NOT_HANDLED = 1, /* another format or flavour, or a file that libjpeg finds an error in */
    NO_MEMORY = 2,
};

/* The second byte of a marker, after 0xFF. */
enum marker {
    FRAME_BASELINE = 0xC0,
    FRAME_EXTENDED = 0xC1,
    HUFFMAN_TABLES = 0xC4,
    RESTART = 0xD0, /* to 0xD7, in turn */
    START_OF_IMAGE = 0xD8,
    END_OF_IMAGE = 0xD9,
    START_OF_SCAN = 0xDA,
    QUANTISATION_TABLES = 0xDB,
    RESTART_INTERVAL = 0xDD,
    APPLICATION = 0xE0, /* to 0xEF */
    COMMENT = 0xFE,
};

#define LARGEST_PIXELS 89000000 /* that of data/images.py: the reference refuses what is larger */

/* What the markers of a sequential 8-bit JPEG with one scan say. */
struct layout {
    int height, width;          /* px */
    int components;             /* 1 or 3 */
    int mcu_height, mcu_width;  /* px of one MCU */
    int restart_mcus;           /* between two restart markers; 0 where there are none */
    size_t height_at;           /* offset of the frame's height, two bytes; its width follows */
    size_t scan_at;             /* offset of the first entropy-coded byte */
};

/* A part of the image as it is when resized to `height` x `width`: `rows` x `columns` px from (top, left) on. */
struct view {
    int height, width, top, left, rows, columns, mirrored;
    uint8_t *planes; /* where it goes, [3][rows][columns] */
};

/* Rows and columns of pixels, the second bound excluded. */
struct box {
    int top, bottom, left, right;
};

/* One axis of a resize: output i is the sum of its `count` inputs from `first`, weighted in units of 2^-WEIGHT_BITS. */
struct taps {
    int outputs, most;  /* how many outputs, and the room for one output's weights */
    int *first, *count; /* [outputs], inputs counted from the start of the whole axis */
    int32_t *weights;   /* [outputs][most] */
};
#define WEIGHT_BITS 22

/* libjpeg's errors and warnings both end in a jump: a file with either goes to the reference path. */
struct trap {
    struct jpeg_error_mgr manager;
    jmp_buf escape;
};
struct jpeg_error_mgr *set_trap(struct trap *trap); /* what a decoder's `err` is to be */

#define MOST_SCANS 200 /* of a progressive file; a hostile one has thousands, and each is a pass over the image */
void count_scans(j_common_ptr decoder); /* an error above MOST_SCANS */

enum outcome read_layout(const uint8_t *jpeg, size_t size, struct layout *layout);
/* Check the scan to its end; `starts` is NULL or takes the offset of every restart interval and the end's, tiles + 1. */
enum outcome read_scan(const uint8_t *jpeg, size_t size, const struct layout *layout, size_t tiles, size_t *starts);
size_t tiles_of(const struct layout *layout); /* how many restart intervals the scan has */

/* The taps of `outputs` outputs, from number `first` on, of an axis that is resized from `inputs` to `resized` px. */
enum outcome make_taps(struct taps *taps, int inputs, int resized, int first, int outputs);
void free_taps(struct taps *taps);
/* Rows of RGBX pixels, `line` bytes each, to groups [pixel][row][4] of four rows; row 0 stands in for those above count. */
void interleave_rows(const uint8_t *pixels, size_t line, int count, int32_t *groups);
/* Groups from input column `left` on to resized rows [4][outputs][4], mirrored on request; sums has the same shape. */
void resample_rows(const int32_t *groups, int left, const struct taps *taps, int mirrored, int32_t *sums,
                   uint8_t *rows);
/* Resized rows [height][width][4] from input row `top` on to three planes [outputs][width]; sums: [width][4]. */
void resample_columns(const uint8_t *rows, int top, int width, const struct taps *taps, int32_t *sums, uint8_t *planes);

/* The interface; __init__.py says what the functions do. */
#define INTERFACE __attribute__((visibility("default")))
INTERFACE const char *rectifiers_source_hash(void);
INTERFACE int rectifiers_measure(const uint8_t *jpeg, size_t size, int *height, int *width);
INTERFACE int rectifiers_read(const uint8_t *jpeg, size_t size, int count, const struct view *views);
INTERFACE int rectifiers_tile(const uint8_t *jpeg, size_t size, uint8_t **tiled, size_t *tiled_size);
/* `text` takes libjpeg's warning of damaged data, or nothing, and has room for JMSG_LENGTH_MAX characters. */
INTERFACE int rectifiers_check(const uint8_t *jpeg, size_t size, char *text);
INTERFACE void rectifiers_free(uint8_t *tiled);

#endif
