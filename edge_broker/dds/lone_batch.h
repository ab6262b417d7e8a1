/* The layout of a batch of one sample as it travels over a direct link. */

#ifndef DDSWAN_LONE_BATCH_H
#define DDSWAN_LONE_BATCH_H

#include "bulk.h" /* Python.h comes before all else */

#include "../../gateway/tunnel/frame.h"

#define MOST_HEAD 512
#define MOST_SAMPLE (8 * 1024)
#define MOST_RECORD (MOST_SAMPLE + 2 * MOST_HEAD)

typedef struct {
    uint8_t bytes[MOST_HEAD];
    size_t size;
} blob;

/* False: there is no room for it. */
bool copy(blob *into, const Py_buffer *from);

typedef struct {
    text stream, times, payload;
    uint64_t first, count, uniform;
} lone;

/* One sample as a record of a wire; returns its size. `to` are whole fields, `stream` is the value;
   `sent_ns` 0: nobody asks. */
size_t encode(uint8_t *record, const blob *to, const blob *stream, uint64_t first,
              const sample *what, int64_t sent_ns);
/* False: the frame is something else, or says more than a lone batch does. */
bool read_frame(text frame, lone *found);

#endif
