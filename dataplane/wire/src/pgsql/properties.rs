//! Nothing that decodes panics, whatever the bytes; what is decoded can be encoded again.

use super::auth::{CleartextPolicy, ClientAuth, Method, Secrets, ServerAuth};
use super::error_fields::ErrorFields;
use super::frontend::FrontendMessage;
use super::scanner::{Scanner, Step};
use super::startup::{FirstPacket, decode_first_packet};
use super::{backend, frame, frontend};

#[test]
fn first_packets_never_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        if let Ok(Some((packet, size))) = decode_first_packet(bytes) {
            assert!(size <= bytes.len());
            if let FirstPacket::Startup(packet) = packet
                && let Ok(parameters) = packet.parameters()
            {
                assert!(!parameters.user.is_empty() && !parameters.database.is_empty());
                let _ = (packet.negotiate(&parameters), parameters.refuse_replication());
            }
        }
    });
}

#[test]
fn client_messages_never_panic_and_come_back() {
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(tag, body)| {
        let mut out = Vec::new();
        match FrontendMessage::decode(frame::Frame { tag: *tag, body }) {
            Ok(FrontendMessage::Query(sql)) => frontend::query(&mut out, sql),
            Ok(FrontendMessage::Parse(parse)) => frontend::parse(&mut out, parse.name, parse.sql, parse.parameter_types),
            Ok(FrontendMessage::Bind(bind)) => {
                let _ = bind.arguments();
                frontend::bind(&mut out, bind.portal, bind.statement, bind.rest);
            }
            Ok(FrontendMessage::Describe(target, name)) => frontend::describe(&mut out, target, name),
            Ok(FrontendMessage::Close(target, name)) => frontend::close(&mut out, target, name),
            Ok(FrontendMessage::Execute { portal, max_rows }) => frontend::execute(&mut out, portal, max_rows),
            _ => return,
        }
        let again = frame::decode(&out, usize::MAX >> 1).unwrap().unwrap();
        assert_eq!((again.tag, again.body), (*tag, &body[..]));
    });
}

#[test]
fn server_messages_never_panic() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|body| {
        let _ = ErrorFields::decode(body);
        let _ = backend::Authentication::decode(body);
        let _ = backend::decode_parameter_status(body);
        let _ = backend::decode_backend_key_data(body);
        let _ = backend::decode_command_complete(body);
        let _ = frontend::decode_sasl_initial_response(body);
        let mut scanner = Scanner::default();
        let mut at = 0;
        while let Ok(step) = scanner.next(&body[at..]) {
            at += match step {
                Step::Whole { size, .. } | Step::Start { size, .. } | Step::Rest { size } => size,
                Step::Need => break,
            };
        }
        assert!(at <= body.len());
    });
}

#[test]
fn logins_never_panic() {
    let secrets = std::sync::Arc::new(Secrets::unknown("u", b"s"));
    bolero::check!().with_type::<(Vec<u8>, Vec<u8>)>().for_each(|(first, second)| {
        for method in [Method::Cleartext, Method::Md5, Method::Scram] {
            let mut out = Vec::new();
            let mut server = ServerAuth::start("u", secrets.clone(), method, None, [0; 18], &mut out);
            let _ = (server.on_message(first, &mut out), server.on_message(second, &mut out));
        }
        let mut client = ClientAuth::new("u", "p", CleartextPolicy::Allow);
        let mut out = Vec::new();
        let _ = client.on_request(b"\0\0\0\x0aSCRAM-SHA-256\0\0", &[0; 18], &mut out);
        let _ = (client.on_request(first, &[0; 18], &mut out), client.on_request(second, &[0; 18], &mut out));
    });
}
