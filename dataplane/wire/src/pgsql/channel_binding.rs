//! Channel binding of SCRAM-SHA-256-PLUS: a hash of the certificate that both ends see (RFC 5929, section 4).

use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// `tls-server-end-point` of a server's certificate (DER): its hash with the function of its signature, SHA-256 where that
/// is MD5 or SHA-1. `None` = the signature has no such function (Ed25519), or one that is not known here (RSASSA-PSS): then
/// there is no binding.
#[must_use]
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(match signature_hash(certificate)? {
        Hash::Sha256 => Sha256::digest(certificate).to_vec(),
        Hash::Sha384 => Sha384::digest(certificate).to_vec(),
        Hash::Sha512 => Sha512::digest(certificate).to_vec(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { algorithm OID, … }, … }` (RFC 5280, 4.1)
fn signature_hash(certificate: &[u8]) -> Option<Hash> {
    const SEQUENCE: u8 = 0x30;
    const OID: u8 = 0x06;
    let (body, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(body, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    let (oid, _) = element(algorithm, OID)?;
    match oid {
        // 1.2.840.113549.1.1: RSA with MD5, SHA-1, SHA-256, SHA-384, SHA-512.
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, function] => match function {
            4 | 5 | 11 => Some(Hash::Sha256),
            12 => Some(Hash::Sha384),
            13 => Some(Hash::Sha512),
            _ => None,
        },
        // 1.2.840.10045.4.1: ECDSA with SHA-1.
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01] => Some(Hash::Sha256),
        // 1.2.840.10045.4.3: ECDSA with SHA-2.
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, function] => match function {
            2 => Some(Hash::Sha256),
            3 => Some(Hash::Sha384),
            4 => Some(Hash::Sha512),
            _ => None,
        },
        _ => None,
    }
}

/// Contents of the DER element at the front, if it has this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let [found, length, rest @ ..] = bytes else { return None };
    if *found != tag {
        return None;
    }
    let (length, rest) = match usize::from(*length) {
        short @ 0..=0x7f => (short, rest),
        // Lengths of up to three bytes: certificates are far smaller than 16 MiB.
        long @ 0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(long - 0x80)?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(oid: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, body: &[u8]| [&[tag, body.len() as u8][..], body].concat();
        let algorithm = wrap(0x30, &[wrap(0x06, oid), vec![5, 0]].concat());
        wrap(0x30, &[wrap(0x30, b"to be signed"), algorithm, vec![3, 1, 0]].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        let rsa = |function| vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, function];
        let ecdsa = |function| vec![0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, function];
        for (oid, length) in [
            (rsa(4), Some(32)),
            (rsa(5), Some(32)),
            (rsa(11), Some(32)),
            (rsa(12), Some(48)),
            (rsa(13), Some(64)),
            (ecdsa(2), Some(32)),
            (ecdsa(3), Some(48)),
            (ecdsa(4), Some(64)),
            // RSASSA-PSS, Ed25519.
            (rsa(10), None),
            (vec![0x2b, 0x65, 0x70], None),
        ] {
            let certificate = certificate(&oid);
            assert_eq!(server_end_point(&certificate).map(|hash| hash.len()), length, "{oid:x?}");
            for cut in 0..certificate.len() - 3 {
                // Whatever is cut off, there is no panic; a hash only while the algorithm is there.
                let _ = server_end_point(&certificate[..cut]);
            }
        }
        assert_eq!(server_end_point(&certificate(&rsa(11))), Some(Sha256::digest(certificate(&rsa(11))).to_vec()));
    }

    #[test]
    fn no_certificate() {
        for bytes in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x83\xff\xff", b"\x31\x00"] {
            assert_eq!(server_end_point(bytes), None, "{bytes:x?}");
        }
    }
}
