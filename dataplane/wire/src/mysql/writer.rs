//! Fields of a payload, appended to a buffer. The mirror of [`super::reader`].

/// Appends protocol fields.
pub trait Put {
    /// `int<1>`.
    fn u8(&mut self, value: u8);
    /// `int<2>`.
    fn u16(&mut self, value: u16);
    /// `int<3>`, the low 24 bits.
    fn u24(&mut self, value: u32);
    /// `int<4>`.
    fn u32(&mut self, value: u32);
    /// `int<8>`.
    fn u64(&mut self, value: u64);
    /// `int<lenenc>`.
    fn lenenc(&mut self, value: u64);
    /// Bytes as they are.
    fn bytes(&mut self, value: &[u8]);
    /// `string<lenenc>`.
    fn lenenc_bytes(&mut self, value: &[u8]);
    /// `string<NUL>`; `value` must not contain NUL.
    fn nul_bytes(&mut self, value: &[u8]);
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) {
        self.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u24(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes()[..3]);
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn lenenc(&mut self, value: u64) {
        match value {
            0..=0xfa => self.push(value as u8),
            0xfb..=0xffff => {
                self.push(0xfc);
                self.extend_from_slice(&value.to_le_bytes()[..2]);
            }
            0x1_0000..=0xff_ffff => {
                self.push(0xfd);
                self.extend_from_slice(&value.to_le_bytes()[..3]);
            }
            _ => {
                self.push(0xfe);
                self.extend_from_slice(&value.to_le_bytes());
            }
        }
    }

    fn bytes(&mut self, value: &[u8]) {
        self.extend_from_slice(value);
    }

    fn lenenc_bytes(&mut self, value: &[u8]) {
        self.lenenc(value.len() as u64);
        self.extend_from_slice(value);
    }

    fn nul_bytes(&mut self, value: &[u8]) {
        debug_assert!(!value.contains(&0));
        self.extend_from_slice(value);
        self.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::reader::Reader;

    #[test]
    fn length_encoded_integers_round_trip_at_their_borders() {
        for value in [0, 250, 251, 0xffff, 0x1_0000, 0xff_ffff, 0x100_0000, u64::MAX] {
            let mut out = Vec::new();
            out.lenenc(value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.lenenc("v"), Ok(value));
            assert!(reader.is_empty(), "{value}");
        }
    }
}
