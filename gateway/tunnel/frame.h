/* How frames are read without protobuf's library (proto/tunnel.proto has the contract, frames.py does it in
   Python). Shared by the compiled parts of both brokers. */

#ifndef DDSWAN_FRAME_H
#define DDSWAN_FRAME_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LENGTH_BYTES 4
#define HEADER_BYTES 8
#define PROTOCOL_VERSION 1

typedef struct {
    const uint8_t *at, *end;
} text;

/* Fields as they are tagged on the wire. */
enum { NUMBER = 0, OCTETS = 2 };
#define TAG(field, kind) ((field) << 3 | (kind))
#define TO TAG(1, OCTETS)
#define TRACE TAG(2, OCTETS)
#define OPEN TAG(22, OCTETS)
#define BATCH TAG(23, OCTETS)
#define STREAM TAG(1, OCTETS)

static inline bool get(text *from, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; from->at < from->end && shift < 64; shift += 7) {
        uint8_t next = *from->at++;
        *value |= (uint64_t)(next & 0x7F) << shift;
        if (next < 0x80)
            return true;
    }
    return false;
}

static inline bool get_octets(text *from, text *value)
{
    uint64_t size;
    if (!get(from, &size) || size > (uint64_t)(from->end - from->at))
        return false;
    *value = (text){from->at, from->at + size};
    from->at += size;
    return true;
}

/* The next record, if all of it is there: the frame behind its length. */
static inline bool get_record(text *from, text *frame)
{
    uint32_t size;
    if (from->end - from->at < LENGTH_BYTES)
        return false;
    memcpy(&size, from->at, sizeof size);
    size = le32toh(size);
    if (size > (uint64_t)(from->end - from->at - LENGTH_BYTES))
        return false;
    *frame = (text){from->at + LENGTH_BYTES, from->at + LENGTH_BYTES + size};
    from->at = frame->end;
    return true;
}

/* False: it is no frame. What is behind the envelope is the payload. */
static inline bool get_envelope(text frame, text *envelope)
{
    static const uint8_t start[] = {PROTOCOL_VERSION, 0, 0, 0};
    uint32_t size;
    if (frame.end - frame.at < HEADER_BYTES || memcmp(frame.at, start, sizeof start) != 0)
        return false;
    memcpy(&size, frame.at + sizeof start, sizeof size);
    size = le32toh(size);
    frame.at += HEADER_BYTES;
    if (size > (uint64_t)(frame.end - frame.at))
        return false;
    *envelope = (text){frame.at, frame.at + size};
    return true;
}

#endif
