use super::*;

const SCRAMBLE: &Scramble = b"abcdefgh12345678ABCD";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

/// `authentication_string` of a user with password `secret`, made by MySQL 9.7.
fn sha2_of_a_real_server() -> Vec<u8> {
    hex(
        "244124303041246C0B4C1D19535E440161743D425E7B1F13506E364C6D44722F38555567475A48335A71445039483556666545726C6F6F72614B76416D593175456244577642",
    )
}

#[test]
fn replies_equal_an_independent_computation() {
    let stage1 = native_stage1(b"secret");
    assert_eq!(native_reply(&stage1, SCRAMBLE).to_vec(), hex("4cf20732bfcfe42069a3603730f2749adb565009"));
    assert_eq!(sha2_reply(b"secret", SCRAMBLE).to_vec(), hex("e4837ee472299d2edcc016c170f20e510a50e6b2c24d1f2dec3810e4d81b932f"));
    assert_eq!(native_hash_text(b"secret"), "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
}

#[test]
fn a_native_reply_gives_stage_1_to_who_knows_stage_2() {
    let stage1 = native_stage1(b"secret");
    let reply = native_reply(&stage1, SCRAMBLE);
    assert_eq!(native_verify(&native_stage2(&stage1), SCRAMBLE, &reply), Some(stage1));
    assert_eq!(native_verify(&native_stage2(&native_stage1(b"other")), SCRAMBLE, &reply), None);
    assert_eq!(native_verify(&native_stage2(&stage1), SCRAMBLE, &reply[..19]), None);
}

#[test]
fn sha256_crypt_agrees_with_mysql_9() {
    let text = sha2_of_a_real_server();
    let hash = Sha2Hash::parse(&text).unwrap();
    assert!(hash.verify(b"secret"));
    assert!(!hash.verify(b"Secret"));
    assert_eq!(hash.text(), text);
    assert_eq!(Sha2Hash::new(b"x", *b"0123456789abcdefghij").text().len(), 70);
}

#[test]
fn stored_forms_are_told_apart() {
    assert_eq!(StoredPassword::parse(b""), StoredPassword::Empty);
    assert!(matches!(StoredPassword::parse(b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"), StoredPassword::Native(_)));
    assert!(matches!(StoredPassword::parse(&sha2_of_a_real_server()), StoredPassword::Sha2(_)));
    for clear in [&b"*14E6"[..], b"*Z4E65567ABDB5135D0CFD9A70B3032C179A49EE7", b"$A$005$short", b"$A$FFF$", b"plain"] {
        assert!(matches!(StoredPassword::parse(clear), StoredPassword::Clear(_)), "{clear:?}");
    }
}

#[test]
fn every_stored_form_checks_a_clear_password() {
    let forms = [b"secret".to_vec(), b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7".to_vec(), sha2_of_a_real_server()];
    for form in forms {
        let stored = StoredPassword::parse(&form);
        assert!(stored.verify_clear(b"secret") && !stored.verify_clear(b"wrong") && !stored.verify_clear(b""), "{stored:?}");
    }
    assert!(StoredPassword::Empty.verify_clear(b"") && !StoredPassword::Empty.verify_clear(b"x"));
    assert!(!StoredPassword::Nobody.verify_clear(b""));
}

/// 2048 bits, made by MySQL 9.7 at initialisation of a throw-away server.
const PEM: &str = include_str!("testdata/server_public_key.pem");

#[test]
fn rsa_takes_a_real_key_and_refuses_bad_ones() {
    let cipher = rsa_encrypt(PEM.as_bytes(), b"secret", SCRAMBLE).unwrap();
    assert_eq!(cipher.len(), 256);
    assert_ne!(cipher, rsa_encrypt(PEM.as_bytes(), b"secret", SCRAMBLE).unwrap(), "OAEP is randomised");
    assert_eq!(rsa_encrypt(PEM.as_bytes(), &[b'x'; 300], SCRAMBLE), Err(RsaError::TooLong));
    for bad in [&b""[..], b"\xff\xfe", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", &PEM.as_bytes()[..200]] {
        assert_eq!(rsa_encrypt(bad, b"secret", SCRAMBLE), Err(RsaError::Key));
    }
}

#[test]
fn an_oaep_block_decodes_to_its_message() {
    let mut block = oaep_block(b"hello", 128, [7; OAEP_HASH]).unwrap();
    assert_eq!((block.len(), block[0]), (128, 0));
    let (seed, data) = block[1..].split_at_mut(OAEP_HASH);
    mask(seed, data);
    mask(data, seed);
    assert_eq!(seed, [7; OAEP_HASH]);
    assert_eq!(&data[..OAEP_HASH], sha1(&[&[]]));
    assert!(data.ends_with(b"\0\x01hello"));
}

#[test]
fn parsers_of_secrets_never_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = StoredPassword::parse(bytes);
        let _ = rsa_encrypt(bytes, b"x", SCRAMBLE);
        let _ = native_verify(&[0; 20], SCRAMBLE, bytes);
    });
}
