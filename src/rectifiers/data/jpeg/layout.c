/* The markers of a JPEG file, without decoding it. Whatever is unusual is left to the reference path. */
#include <string.h>

#include "decoder.h"

static int number(const uint8_t *bytes) { return bytes[0] << 8 | bytes[1]; }

/* Whether the image resources of Photoshop lie whole in their segment, one behind the other, as Pillow reads them. */
static int resources_are_whole(const uint8_t *body, int length) {
    int at = 14; /* behind "Photoshop 3.0" and its zero */
    while (at + 4 <= length && memcmp(body + at, "8BIM", 4) == 0) {
        if (length - at < 7) return 0;
        int kind = number(body + at + 4);
        at += 7 + body[at + 6]; /* behind the name */
        at += at & 1;
        if (length - at < 4 || body[at] != 0 || body[at + 1] != 0) return 0; /* no segment holds more than 64 kB */
        int size = number(body + at + 2);
        at += 4;
        if (size > length - at || (kind == 0x03ED && size < 14)) return 0; /* Pillow reads 14 bytes of resolutions */
        at += size;
        at += at & 1;
    }
    return 1;
}

/* Whether Pillow opens a file with this application segment for sure; it parses some of them, and refuses broken ones. */
static int harmless(int marker, const uint8_t *body, int length) {
    switch (marker) {
    case APPLICATION: return length < 4 || memcmp(body, "JFIF", 4) != 0 || length >= 14;
    case APPLICATION + 2: return length >= 14 && memcmp(body, "ICC_PROFILE", 12) == 0;
    case APPLICATION + 13: return length < 14 || memcmp(body, "Photoshop 3.0", 14) != 0 || resources_are_whole(body, length);
    case APPLICATION + 14: return length < 5 || memcmp(body, "Adobe", 5) != 0 || length >= 12;
    default: return 1;
    }
}

/* Read the header of the frame: 8 bits a sample, grey or three components, of which the first may be sampled finer. */
static enum outcome read_frame(const uint8_t *body, int length, struct layout *layout) {
    if (length < 6 || body[0] != 8) return NOT_HANDLED;
    layout->height = number(body + 1);
    layout->width = number(body + 3);
    layout->components = body[5];
    if (layout->height == 0 || layout->width == 0 || (int64_t)layout->height * layout->width > LARGEST_PIXELS)
        return NOT_HANDLED;
    if ((layout->components != 1 && layout->components != 3) || length != 6 + 3 * layout->components)
        return NOT_HANDLED;

    int luma = body[7]; /* its sampling: horizontal in the upper four bits, vertical in the lower */
    if (layout->components == 1 ? luma != 0x11 : luma != 0x11 && luma != 0x21 && luma != 0x22) return NOT_HANDLED;
    for (int i = 1; i < layout->components; i++)
        if (body[7 + 3 * i] != 0x11) return NOT_HANDLED;

    layout->mcu_width = 8 * (luma >> 4);
    layout->mcu_height = 8 * (luma & 15);
    return DONE;
}

enum outcome read_layout(const uint8_t *jpeg, size_t size, struct layout *layout) {
    memset(layout, 0, sizeof *layout);
    if (size < 4 || jpeg[0] != 0xFF || jpeg[1] != START_OF_IMAGE) return NOT_HANDLED;
    for (size_t at = 2; at + 4 <= size;) {
        int marker = jpeg[at + 1];
        int length = number(jpeg + at + 2) - 2;
        const uint8_t *body = jpeg + at + 4;
        if (jpeg[at] != 0xFF || length < 0 || (size_t)length > size - at - 4) return NOT_HANDLED;
        at += 4 + (size_t)length;

        if (marker == FRAME_BASELINE || marker == FRAME_EXTENDED) {
            if (layout->components != 0 || read_frame(body, length, layout) != DONE) return NOT_HANDLED;
            layout->height_at = (size_t)(body - jpeg) + 1;
        } else if (marker == RESTART_INTERVAL) {
            if (length != 2) return NOT_HANDLED;
            layout->restart_mcus = number(body);
        } else if (marker == START_OF_SCAN) {
            layout->scan_at = at;
            int whole = layout->components != 0 && length >= 1 && body[0] == layout->components;
            return whole ? DONE : NOT_HANDLED;
        } else if (!(marker == HUFFMAN_TABLES || marker == QUANTISATION_TABLES || marker == COMMENT ||
                     (marker >= APPLICATION && marker <= APPLICATION + 15 && harmless(marker, body, length)))) {
            return NOT_HANDLED;
        }
    }
    return NOT_HANDLED;
}

static int up(int a, int b) { return (a + b - 1) / b; }

size_t tiles_of(const struct layout *layout) {
    size_t mcus = (size_t)up(layout->width, layout->mcu_width) * (size_t)up(layout->height, layout->mcu_height);
    size_t each = layout->restart_mcus ? (size_t)layout->restart_mcus : mcus;
    return (mcus + each - 1) / each;
}

enum outcome read_scan(const uint8_t *jpeg, size_t size, const struct layout *layout, size_t tiles, size_t *starts) {
    size_t at = layout->scan_at, seen = 0;
    if (starts) starts[0] = at;
    while (at + 1 < size) {
        const uint8_t *found = memchr(jpeg + at, 0xFF, size - 1 - at);
        if (!found) return NOT_HANDLED;
        at = (size_t)(found - jpeg) + 2;
        int marker = found[1];
        if (marker == 0) continue; /* a data byte of 0xFF, which is followed by 0 */
        seen++;
        if (marker == END_OF_IMAGE) {
            if (starts && seen == tiles) starts[tiles] = at;
            return seen == tiles ? DONE : NOT_HANDLED;
        }
        if (marker != RESTART + (int)((seen - 1) & 7) || seen >= tiles) return NOT_HANDLED;
        if (starts) starts[seen] = at;
    }
    return NOT_HANDLED; /* no end of image: Pillow calls it truncated */
}

int rectifiers_measure(const uint8_t *jpeg, size_t size, int *height, int *width) {
    struct layout layout;
    enum outcome outcome = read_layout(jpeg, size, &layout);
    *height = layout.height;
    *width = layout.width;
    return outcome;
}

#ifndef SOURCE_HASH
#define SOURCE_HASH ""
#endif

const char *rectifiers_source_hash(void) { return SOURCE_HASH; }
