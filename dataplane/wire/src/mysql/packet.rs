//! Framing: `int<3>` length, `int<1>` sequence id, payload. A payload of 0xFFFFFF bytes or more is sent in parts of 0xFFFFFF
//! bytes; the first shorter part (possibly empty) ends it.

use std::borrow::Cow;

use super::reader::WireError;

/// Bytes of a packet header.
pub const HEADER_LEN: usize = 4;
/// Payload bytes of a full part; another part follows it.
pub const MAX_PART: usize = 0xff_ffff;

/// A packet header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Payload bytes of this part.
    pub length: usize,
    /// Sequence id.
    pub sequence: u8,
}

impl Header {
    /// Reads the first four bytes of `bytes`; `None` = there are fewer.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [a, b, c, sequence] = *bytes.first_chunk::<HEADER_LEN>()?;
        Some(Self { length: usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16, sequence })
    }

    /// The four bytes. `length` must be at most [`MAX_PART`].
    #[must_use]
    pub const fn bytes(self) -> [u8; HEADER_LEN] {
        [self.length as u8, (self.length >> 8) as u8, (self.length >> 16) as u8, self.sequence]
    }

    /// `true` = this part is full, so that another one follows.
    #[must_use]
    pub const fn continues(self) -> bool {
        self.length == MAX_PART
    }
}

/// One whole packet found in a buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The payload; owned only where it came in several parts.
    pub payload: Cow<'a, [u8]>,
    /// Bytes of the buffer that it took, headers included.
    pub consumed: usize,
    /// Sequence id of its last part; the answer starts with the next.
    pub sequence: u8,
}

/// Finds the first whole packet in `buffer`. `Ok(None)` = more bytes are needed; nothing is consumed then.
///
/// `limit` bounds the payload (all parts); it is checked against the announced length, before the bytes arrive. Cost: looks at
/// headers only; copies only a payload of several parts.
pub fn decode_packet(buffer: &[u8], limit: usize) -> Result<Option<Packet<'_>>, WireError> {
    let Some(first) = Header::read(buffer) else { return Ok(None) };
    if first.length > limit {
        return Err(WireError::TooLong { announced: first.length, limit });
    }
    if !first.continues() {
        let end = HEADER_LEN + first.length;
        let Some(payload) = buffer.get(HEADER_LEN..end) else { return Ok(None) };
        return Ok(Some(Packet { payload: Cow::Borrowed(payload), consumed: end, sequence: first.sequence }));
    }
    decode_parts(buffer, limit)
}

/// The same for a packet of several parts: first find the end, then join.
fn decode_parts(buffer: &[u8], limit: usize) -> Result<Option<Packet<'_>>, WireError> {
    let mut position = 0;
    let mut total = 0;
    let mut expected: Option<u8> = None;
    let sequence = loop {
        let Some(header) = buffer.get(position..).and_then(Header::read) else { return Ok(None) };
        if expected.is_some_and(|sequence| sequence != header.sequence) {
            return Err(WireError::Sequence);
        }
        total += header.length;
        if total > limit {
            return Err(WireError::TooLong { announced: total, limit });
        }
        position += HEADER_LEN + header.length;
        if !header.continues() {
            break header.sequence;
        }
        expected = Some(header.sequence.wrapping_add(1));
    };
    if position > buffer.len() {
        return Ok(None);
    }
    let mut payload = Vec::with_capacity(total);
    for part in buffer[..position].chunks(HEADER_LEN + MAX_PART) {
        payload.extend_from_slice(&part[HEADER_LEN..]);
    }
    Ok(Some(Packet { payload: Cow::Owned(payload), consumed: position, sequence }))
}

/// Writes packets of one answer (or one request) with consecutive sequence ids.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    out: &'a mut Vec<u8>,
    sequence: u8,
}

impl<'a> PacketWriter<'a> {
    /// Appends to `out`; the first packet gets `sequence` (0 for a command, the request's last id + 1 for an answer).
    pub const fn new(out: &'a mut Vec<u8>, sequence: u8) -> Self {
        Self { out, sequence }
    }

    /// Sequence id of the next packet.
    #[must_use]
    pub const fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Bytes in the buffer, for a caller that flushes now and then.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.out.len()
    }

    /// The buffer, to be sent and cleared between packets.
    pub const fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// One packet whose payload `fill` appends; the header is written afterwards, a payload of 0xFFFFFF bytes and more is split.
    pub fn packet(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_LEN]);
        fill(self.out);
        let length = self.out.len() - start - HEADER_LEN;
        if length < MAX_PART {
            let header = Header { length, sequence: self.next() };
            self.out[start..start + HEADER_LEN].copy_from_slice(&header.bytes());
        } else {
            let payload = self.out.split_off(start + HEADER_LEN);
            self.out.truncate(start);
            self.payload(&payload);
        }
    }

    /// One packet with this payload.
    pub fn payload(&mut self, payload: &[u8]) {
        let mut rest = payload;
        loop {
            let (part, tail) = rest.split_at(rest.len().min(MAX_PART));
            let header = Header { length: part.len(), sequence: self.next() };
            self.out.extend_from_slice(&header.bytes());
            self.out.extend_from_slice(part);
            rest = tail;
            if !header.continues() {
                return;
            }
        }
    }

    const fn next(&mut self) -> u8 {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 64 << 20;

    #[test]
    fn a_packet_needs_all_its_bytes() {
        let bytes = [3, 0, 0, 7, b'a', b'b', b'c', 0xff];
        for end in 0..7 {
            assert_eq!(decode_packet(&bytes[..end], LIMIT), Ok(None), "{end}");
        }
        let packet = decode_packet(&bytes, LIMIT).unwrap().unwrap();
        assert_eq!((&*packet.payload, packet.consumed, packet.sequence), (&b"abc"[..], 7, 7));
    }

    #[test]
    fn the_limit_holds_before_the_bytes_arrive() {
        assert_eq!(decode_packet(&[0xff, 0xff, 0, 0], 1024), Err(WireError::TooLong { announced: 65_535, limit: 1024 }));
        assert_eq!(decode_packet(&[0xff, 0xff, 0xff, 0], 1 << 20), Err(WireError::TooLong { announced: MAX_PART, limit: 1 << 20 }));
    }

    #[test]
    fn large_payloads_are_split_and_joined() {
        for length in [MAX_PART - 1, MAX_PART, MAX_PART + 1, 2 * MAX_PART] {
            let payload: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut out = Vec::new();
            let mut writer = PacketWriter::new(&mut out, 254);
            writer.packet(|out| out.extend_from_slice(&payload));
            let parts = length / MAX_PART + 1;
            assert_eq!(writer.sequence(), 254u8.wrapping_add(parts as u8));
            assert_eq!(out.len(), length + parts * HEADER_LEN);
            assert_eq!(decode_packet(&out[..out.len() - 1], LIMIT), Ok(None));
            let packet = decode_packet(&out, LIMIT).unwrap().unwrap();
            assert!(*packet.payload == payload && packet.consumed == out.len(), "{length}");
        }
    }

    #[test]
    fn parts_must_count_up() {
        let mut out = Vec::new();
        PacketWriter::new(&mut out, 0).payload(&vec![0; MAX_PART + 1]);
        out[HEADER_LEN + MAX_PART + 3] = 9;
        assert_eq!(decode_packet(&out, LIMIT), Err(WireError::Sequence));
    }
}
