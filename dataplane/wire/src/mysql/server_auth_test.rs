use super::*;
use crate::mysql::auth::{native_reply, sha2_reply};

const GREETING: Scramble = *b"abcdefgh12345678ABCD";
const FRESH: Scramble = *b"ABCDEFGH12345678abcd";
const HASH: &[u8] = b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";

fn sha2_hash() -> Vec<u8> {
    super::super::auth::Sha2Hash::new(b"secret", *b"0123456789abcdefghij").text()
}

fn begin(stored: &[u8], offered: &str, plugin: Option<&str>, reply: &[u8], secure: bool) -> (ServerAuth, AuthStep) {
    let first = FirstReply { offered, scramble: GREETING, client_plugin: plugin.map(str::as_bytes), reply, fresh_scramble: FRESH, secure };
    ServerAuth::begin(vec![StoredPassword::parse(stored)], None, &first)
}

fn native(scramble: &Scramble) -> Vec<u8> {
    native_reply(&native_stage1(b"secret"), scramble).to_vec()
}

fn accepted(step: &AuthStep) -> bool {
    matches!(step, AuthStep::Accepted { .. })
}

#[test]
fn native_clients_log_in_at_once_where_it_was_offered() {
    for stored in [&b"secret"[..], HASH] {
        assert!(accepted(&begin(stored, NATIVE, Some(NATIVE), &native(&GREETING), false).1));
        assert!(accepted(&begin(stored, NATIVE, None, &native(&GREETING), false).1), "clients without plugin names");
        assert_eq!(begin(stored, NATIVE, Some(NATIVE), &[0; 20], false).1, AuthStep::Denied(Denial::WrongPassword));
        assert_eq!(begin(stored, NATIVE, Some(NATIVE), b"", false).1, AuthStep::Denied(Denial::WrongPassword));
    }
    assert!(accepted(&begin(b"", NATIVE, Some(NATIVE), b"", false).1));
    assert_eq!(begin(b"", NATIVE, Some(NATIVE), &[1; 20], false).1, AuthStep::Denied(Denial::WrongPassword));
}

#[test]
fn a_caching_sha2_client_is_answered_in_its_own_plugin() {
    let (mut auth, step) = begin(b"secret", NATIVE, Some(CACHING_SHA2), b"", false);
    let AuthStep::Continue(switch) = step else { panic!("{step:?}") };
    let switch = AuthSwitch::decode(&switch).unwrap();
    assert_eq!((switch.plugin, switch.scramble()), (CACHING_SHA2.as_bytes(), Some(FRESH)));
    let step = auth.on_reply(&sha2_reply(b"secret", &FRESH));
    assert!(matches!(&step, AuthStep::Accepted { before, proof: Proof::Clear(_), which: 0 } if before == &[1, 3]), "{step:?}");

    let (mut auth, _) = begin(b"secret", NATIVE, Some(CACHING_SHA2), b"", false);
    assert_eq!(auth.on_reply(&sha2_reply(b"wrong", &FRESH)), AuthStep::Denied(Denial::WrongPassword));
    assert!(accepted(&begin(b"secret", CACHING_SHA2, Some(CACHING_SHA2), &sha2_reply(b"secret", &GREETING), false).1));
}

#[test]
fn full_authentication_needs_an_encrypted_connection() {
    let reply = sha2_reply(b"secret", &GREETING);
    let stored = sha2_hash();
    assert_eq!(begin(&stored, CACHING_SHA2, Some(CACHING_SHA2), &reply, false).1, AuthStep::Denied(Denial::NeedsSecureChannel));
    let (mut auth, step) = begin(&stored, CACHING_SHA2, Some(CACHING_SHA2), &reply, true);
    assert_eq!(step, AuthStep::Continue(vec![1, 4]));
    assert!(accepted(&auth.on_reply(b"secret\0")));
    let (mut auth, _) = begin(&stored, CACHING_SHA2, Some(CACHING_SHA2), &reply, true);
    assert_eq!(auth.on_reply(b"wrong\0"), AuthStep::Denied(Denial::WrongPassword));
}

#[test]
fn a_password_learnt_before_gives_the_fast_path() {
    let first = FirstReply {
        offered: CACHING_SHA2,
        scramble: GREETING,
        client_plugin: Some(CACHING_SHA2.as_bytes()),
        reply: &sha2_reply(b"secret", &GREETING),
        fresh_scramble: FRESH,
        secure: false,
    };
    let known = Some(Zeroizing::new(b"secret".to_vec()));
    assert!(accepted(&ServerAuth::begin(vec![StoredPassword::parse(&sha2_hash())], known, &first).1));
}

#[test]
fn stored_forms_decide_the_switch() {
    let plugin_asked = |stored: &[u8], spoken: &str, secure| {
        let (auth, step) = begin(stored, NATIVE, Some(spoken), b"", secure);
        assert!(matches!(step, AuthStep::Continue(_)), "{step:?}");
        auth.plugin()
    };
    assert_eq!(plugin_asked(b"secret", "client_ed25519", false), NATIVE);
    assert_eq!(plugin_asked(HASH, CACHING_SHA2, false), NATIVE);
    assert_eq!(plugin_asked(HASH, CACHING_SHA2, true), CACHING_SHA2);
    assert_eq!(plugin_asked(&sha2_hash(), NATIVE, false), CACHING_SHA2);
    assert_eq!(plugin_asked(b"secret", CLEAR, false), NATIVE, "no password in clear over plain text");
    assert!(accepted(&begin(b"secret", NATIVE, Some(CLEAR), b"secret\0", true).1));
}

#[test]
fn unknown_users_look_like_wrong_passwords() {
    let first = FirstReply {
        offered: NATIVE,
        scramble: GREETING,
        client_plugin: Some(NATIVE.as_bytes()),
        reply: &[1; 20],
        fresh_scramble: FRESH,
        secure: false,
    };
    assert_eq!(ServerAuth::begin(vec![StoredPassword::Nobody], None, &first).1, AuthStep::Denied(Denial::WrongPassword));
    let (mut auth, step) = ServerAuth::change_user(vec![StoredPassword::Nobody], None, &first);
    assert!(matches!(step, AuthStep::Continue(_)));
    assert_eq!(auth.on_reply(&[1; 20]), AuthStep::Denied(Denial::WrongPassword));
}

#[test]
fn the_second_password_is_tried_after_the_first() {
    let first = FirstReply {
        offered: NATIVE,
        scramble: GREETING,
        client_plugin: Some(NATIVE.as_bytes()),
        reply: &native(&GREETING),
        fresh_scramble: FRESH,
        secure: false,
    };
    let passwords = vec![StoredPassword::parse(b"old"), StoredPassword::parse(b"secret")];
    assert!(matches!(ServerAuth::begin(passwords, None, &first).1, AuthStep::Accepted { which: 1, .. }));
}
