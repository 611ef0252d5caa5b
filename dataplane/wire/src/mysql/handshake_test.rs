use super::*;

fn greeting() -> Greeting {
    Greeting {
        server_version: "8.0.11".into(),
        connection_id: 0x0100_0007,
        scramble: *b"abcdefgh12345678ABCD",
        capabilities: Capabilities::SERVER_DEFAULT,
        charset: 33,
        status: Status::AUTOCOMMIT,
        plugin: NATIVE.into(),
    }
}

#[test]
fn a_greeting_byte_by_byte() {
    let mut out = Vec::new();
    greeting().encode(&mut out);
    let mut expected = vec![10];
    expected.extend_from_slice(b"8.0.11\0");
    expected.extend_from_slice(&[7, 0, 0, 1]); // connection id
    expected.extend_from_slice(b"abcdefgh\0");
    expected.extend_from_slice(&[0x0f, 0xf7]); // capabilities, low
    expected.extend_from_slice(&[33, 2, 0]); // character set, status
    expected.extend_from_slice(&[0xbf, 0x81]); // capabilities, high
    expected.push(21);
    expected.extend_from_slice(&[0; 10]);
    expected.extend_from_slice(b"12345678ABCD\0mysql_native_password\0");
    assert_eq!(out, expected);
    assert_eq!(Greeting::decode(&out), Ok(greeting()));
    for end in 0..out.len() - NATIVE.len() - 1 {
        assert!(Greeting::decode(&out[..end]).is_err(), "{end}");
    }
}

#[test]
fn a_response_with_everything() {
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, "_client_name", "test");
    let response = HandshakeResponse {
        capabilities: Capabilities::SERVER_DEFAULT,
        max_packet: 1 << 24,
        charset: 45,
        user: b"app",
        auth: &[1; 20],
        schema: Some(b"shop"),
        plugin: Some(NATIVE.as_bytes()),
        attributes: &attributes,
    };
    let mut out = Vec::new();
    response.encode(&mut out);
    assert_eq!(HandshakeResponse::decode(&out), Ok(response));
    let required = 32 + b"app\0".len() + 21;
    for end in 0..required {
        assert!(HandshakeResponse::decode(&out[..end]).is_err(), "{end}");
    }
}

#[test]
fn an_authentication_reply_may_not_reach_beyond_its_packet() {
    let mut out = Vec::new();
    out.u32((Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION).0);
    out.u32(0);
    out.u8(33);
    out.bytes(&[0; 23]);
    out.nul_bytes(b"u");
    out.u8(200);
    out.bytes(&[1; 20]);
    assert_eq!(HandshakeResponse::decode(&out), Err(WireError::Truncated("authentication reply")));
}

#[test]
fn old_clients_are_refused_and_tls_requests_recognised() {
    let mut out = Vec::new();
    out.u32(Capabilities::SSL.0);
    out.bytes(&[0; 28]);
    assert!(HandshakeResponse::decode(&out).is_err());
    assert!(SslRequest::decode(&out).is_some());
    out.push(0);
    assert!(SslRequest::decode(&out).is_none());
}

#[test]
fn switches_and_user_changes_round_trip() {
    let mut out = Vec::new();
    let switch = AuthSwitch { plugin: CACHING_SHA2.as_bytes(), data: b"abcdefgh12345678ABCD" };
    switch.encode(&mut out);
    assert_eq!(AuthSwitch::decode(&out), Ok(switch.clone()));
    assert_eq!(switch.scramble(), Some(*b"abcdefgh12345678ABCD"));
    assert!(AuthSwitch::decode(&[0xfe]).is_err());

    let change = ChangeUser { user: b"u", auth: &[9; 20], schema: None, charset: Some(255), plugin: Some(NATIVE.as_bytes()) };
    out.clear();
    change.encode(&mut out);
    assert_eq!(ChangeUser::decode(&out[1..], Capabilities::SERVER_DEFAULT), Ok(change));
    assert!(ChangeUser::decode(b"u\0\xffabc", Capabilities::SERVER_DEFAULT).is_err());
}

#[test]
fn scrambles_avoid_the_bytes_that_end_or_split_them() {
    for _ in 0..50 {
        let scramble = new_scramble().unwrap();
        assert!(scramble.iter().all(|&byte| byte != 0 && byte != b'$' && byte < 0x80));
    }
}

#[test]
fn login_parsers_never_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = Greeting::decode(bytes);
        let _ = HandshakeResponse::decode(bytes);
        let _ = AuthSwitch::decode(bytes);
        let _ = ChangeUser::decode(bytes, Capabilities::SERVER_DEFAULT);
        let _ = SslRequest::decode(bytes);
    });
}
