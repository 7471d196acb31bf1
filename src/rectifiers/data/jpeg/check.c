/* Whether all data of a JPEG file are there: its coefficients are read, which takes a third of decoding it. */
#include <string.h>

#include <jerror.h>

#include "decoder.h"

struct listener {
    struct trap trap;
    char *text; /* room for JMSG_LENGTH_MAX characters */
};

/* Whether the bytes before the reader are none that a scan could have left: encoders fill files with them. */
static int is_padding(j_decompress_ptr source, int count) {
    const JOCTET *end = source->src->next_input_byte;
    for (int i = 1; i <= count; i++)
        if (end[-i] != end[-1] || (end[-i] != 0x00 && end[-i] != 0xFF)) return 0;
    return 1;
}

/* Keep the first warning that says of a scan that its data are damaged; others are of metadata and versions. */
static void listen(j_common_ptr common, int level) {
    struct listener *listener = (struct listener *)common->err;
    j_decompress_ptr source = (j_decompress_ptr)common;
    if (level >= 0 || listener->text[0]) return;
    switch (common->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
        if (source->input_scan_number == 0 || is_padding(source, common->err->msg_parm.i[0])) return;
        break;
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: break;
    default: return;
    }
    common->err->format_message(common, listener->text);
}

int rectifiers_check(const uint8_t *jpeg, size_t size, char *text) {
    struct jpeg_decompress_struct source;
    struct jpeg_progress_mgr progress;
    struct listener listener;
    volatile enum outcome outcome = NOT_HANDLED;
    memset(&source, 0, sizeof source);
    memset(&progress, 0, sizeof progress);
    text[0] = '\0';

    listener.text = text;
    source.err = set_trap(&listener.trap);
    source.err->emit_message = listen;
    progress.progress_monitor = count_scans;
    if (size == 0) return NOT_HANDLED;

    if (!setjmp(listener.trap.escape)) {
        jpeg_create_decompress(&source);
        source.progress = &progress;
        jpeg_mem_src(&source, (unsigned char *)jpeg, (unsigned long)size);
        jpeg_read_header(&source, TRUE);
        if ((int64_t)source.image_height * source.image_width <= LARGEST_PIXELS) {
            jpeg_read_coefficients(&source);
            outcome = DONE;
        }
    }
    jpeg_destroy_decompress(&source);
    return outcome;
}
