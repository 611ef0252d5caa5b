use super::*;
use crate::mysql::column::{Column, End, write_columns, write_definitions, write_text_row};
use crate::mysql::error_code;
use crate::mysql::packet::{MAX_PART, PacketWriter};
use crate::mysql::response::ErrPacket;

const EOF: Capabilities = Capabilities::PROTOCOL_41;
const NO_EOF: Capabilities = Capabilities(Capabilities::DEPRECATE_EOF.0 | Capabilities::SESSION_TRACK.0);

/// Feeds `bytes` in pieces of `step` and returns what a client would get.
fn relay(scanner: &mut AnswerScanner, bytes: &[u8], step: usize) -> Result<Vec<u8>, WireError> {
    let mut sent = Vec::new();
    let mut kept = Vec::new();
    for piece in bytes.chunks(step) {
        kept.extend_from_slice(piece);
        let scanned = scanner.scan(&mut kept)?;
        sent.extend_from_slice(&kept[..scanned.forward]);
        kept.truncate(scanned.end);
        kept.drain(..scanned.forward);
    }
    assert!(kept.is_empty() || !scanner.is_done());
    Ok(sent)
}

fn two_results(capabilities: Capabilities) -> Vec<u8> {
    let mut out = Vec::new();
    let mut packets = PacketWriter::new(&mut out, 1);
    for status in [Status::AUTOCOMMIT.with(Status::MORE_RESULTS), Status::AUTOCOMMIT] {
        write_columns(&[Column::text("a"), Column::text("b")], capabilities, status, &mut packets);
        for _ in 0..20 {
            write_text_row([Some(&b"\xfe\xff\x00"[..]), None], &mut packets);
        }
        End { status, warnings: 2 }.write(capabilities, &mut packets);
    }
    out
}

#[test]
fn results_pass_unchanged_in_pieces_of_any_size() {
    for capabilities in [EOF, NO_EOF] {
        let bytes = two_results(capabilities);
        for step in [1, 2, 3, 5, 7, 64, bytes.len()] {
            let mut scanner = AnswerScanner::new(Question::Results, capabilities, capabilities);
            assert_eq!(relay(&mut scanner, &bytes, step).unwrap(), bytes, "{step}");
            assert!(scanner.is_done());
            assert_eq!(scanner.answer().warnings, 2);
        }
        let mut scanner = AnswerScanner::new(Question::Results, capabilities, capabilities);
        let sent = relay(&mut scanner, &bytes[..bytes.len() - 1], 9).unwrap();
        assert!(!scanner.is_done() && sent.len() < bytes.len(), "the last packet is kept until it is whole");
    }
}

#[test]
fn an_answer_in_one_piece_leaves_in_one_piece() {
    let mut bytes = two_results(NO_EOF);
    let mut scanner = AnswerScanner::new(Question::Results, NO_EOF, NO_EOF);
    let length = bytes.len();
    assert_eq!(scanner.scan(&mut bytes), Ok(Scanned { forward: length, end: length }));
}

#[test]
fn rows_of_more_than_a_full_part() {
    for capabilities in [EOF, NO_EOF] {
        for length in [MAX_PART - 9, MAX_PART - 8, MAX_PART + 10] {
            let mut bytes = Vec::new();
            let mut packets = PacketWriter::new(&mut bytes, 1);
            write_columns(&[Column::text("a")], capabilities, Status::default(), &mut packets);
            let value = vec![0xfe; length];
            write_text_row([Some(&value[..])], &mut packets);
            End::default().write(capabilities, &mut packets);
            let mut scanner = AnswerScanner::new(Question::Results, capabilities, capabilities);
            assert!(relay(&mut scanner, &bytes, 65_536).unwrap() == bytes, "{length}");
            assert!(scanner.is_done());
        }
    }
}

#[test]
fn session_state_is_kept_and_stripped_for_a_client_without_it() {
    let state = b"\x01\x05\x04shop";
    let mut bytes = Vec::new();
    let mut packets = PacketWriter::new(&mut bytes, 1);
    let first = Status::MORE_RESULTS.with(Status::SESSION_STATE_CHANGED);
    packets.packet(|out| OkPacket { status: first, info: b"hi", state, ..OkPacket::default() }.encode(0, out));
    packets.packet(|out| OkPacket { affected: 7, insert_id: 9, ..OkPacket::default() }.encode(0, out));
    for step in [1, bytes.len()] {
        let mut scanner = AnswerScanner::new(Question::Results, NO_EOF, Capabilities::DEPRECATE_EOF);
        let sent = relay(&mut scanner, &bytes, step).unwrap();
        assert_eq!(sent, b"\x0a\0\0\x01\0\0\0\x08\0\0\0\x02hi\x07\0\0\x02\0\x07\x09\0\0\0\0");
        assert!(scanner.is_done());
        let answer = scanner.into_answer();
        assert_eq!((answer.state.as_slice(), answer.affected, answer.insert_id), (&state[..], 7, 9));
    }
    let mut scanner = AnswerScanner::new(Question::Results, NO_EOF, NO_EOF);
    assert_eq!(relay(&mut scanner, &bytes, 5).unwrap(), bytes);
}

#[test]
fn the_flag_of_session_state_is_taken_out_of_an_eof() {
    let changed = Status::AUTOCOMMIT.with(Status::SESSION_STATE_CHANGED);
    let bytes = |status: Status| {
        let mut bytes = Vec::new();
        let mut packets = PacketWriter::new(&mut bytes, 1);
        write_columns(&[Column::text("a")], EOF, status, &mut packets);
        write_text_row([None], &mut packets);
        End { status, warnings: 3 }.write(EOF, &mut packets);
        bytes
    };
    for step in [1, 7, 1000] {
        let mut scanner = AnswerScanner::new(Question::Results, EOF.with(Capabilities::SESSION_TRACK), EOF);
        assert_eq!(relay(&mut scanner, &bytes(changed), step).unwrap(), bytes(Status::AUTOCOMMIT));
        assert_eq!(scanner.answer().status, Some(changed));
    }
}

#[test]
fn prepare_answers_get_the_clients_statement_id() {
    for capabilities in [EOF, NO_EOF] {
        for (parameters, columns) in [(0u16, 0u16), (2, 0), (0, 3), (2, 3)] {
            let mut bytes = Vec::new();
            let mut packets = PacketWriter::new(&mut bytes, 1);
            packets.packet(|out| PrepareOk { statement: 77, columns, parameters, warnings: 0 }.encode(out));
            for count in [parameters, columns] {
                write_definitions(&vec![Column::text("?"); usize::from(count)], capabilities, Status::default(), &mut packets);
            }
            let mut scanner = AnswerScanner::new(Question::Prepare, capabilities, capabilities).with_statement(5);
            let sent = relay(&mut scanner, &bytes, 3).unwrap();
            assert!(scanner.is_done(), "{parameters} {columns}");
            assert_eq!(PrepareOk::decode(&sent[4..]).unwrap().statement, 5);
            assert_eq!(scanner.answer().prepared.unwrap().statement, 77);
            assert_eq!(sent[9..], bytes[9..]);
        }
    }
}

#[test]
fn errors_end_an_answer_anywhere_but_among_definitions() {
    let mut bytes = Vec::new();
    let mut packets = PacketWriter::new(&mut bytes, 1);
    write_columns(&[Column::text("a")], EOF, Status::default(), &mut packets);
    write_text_row([None], &mut packets);
    packets.packet(|out| ErrPacket::new(error_code::INTERRUPTED, "stop").encode(out));
    let mut scanner = AnswerScanner::new(Question::Results, EOF, EOF);
    assert_eq!(relay(&mut scanner, &bytes, 4).unwrap(), bytes);
    assert!(scanner.is_done());
    assert_eq!(scanner.answer().error, Some(ErrPacket::new(error_code::INTERRUPTED, "stop")));
}

#[test]
fn cursors_end_after_their_columns() {
    for capabilities in [EOF, NO_EOF] {
        let mut bytes = Vec::new();
        let mut packets = PacketWriter::new(&mut bytes, 1);
        write_columns(&[Column::text("a")], capabilities, Status::CURSOR_EXISTS, &mut packets);
        if capabilities == NO_EOF {
            End { status: Status::CURSOR_EXISTS, warnings: 0 }.write(capabilities, &mut packets);
        }
        let mut scanner = AnswerScanner::new(Question::Results, capabilities, capabilities);
        relay(&mut scanner, &bytes, 6).unwrap();
        assert!(scanner.is_done() && scanner.answer().status.unwrap().contains(Status::CURSOR_EXISTS));
    }
}

#[test]
fn sequence_ids_are_shifted_once() {
    let bytes = two_results(EOF);
    for step in [1, 6, bytes.len()] {
        let mut scanner = AnswerScanner::new(Question::Results, EOF, EOF).with_sequence_shift(3);
        let sent = relay(&mut scanner, &bytes, step).unwrap();
        let (mut at, mut expected) = (0, 4u8);
        while at < sent.len() {
            let header = Header::read(&sent[at..]).unwrap();
            assert_eq!(header.sequence, expected, "{step}");
            expected = expected.wrapping_add(1);
            at += HEADER_LEN + header.length;
        }
        assert_eq!(scanner.last_sequence(), Some(expected.wrapping_sub(1)));
    }
}

#[test]
fn one_packet_answers() {
    let simple: [(&[u8], Question); 4] = [
        (&[7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0], Question::Simple),
        (&[5, 0, 0, 1, 0xfe, 0, 0, 2, 0], Question::Simple),
        (b"\x04\0\0\x01Up 1", Question::Text),
        (&[5, 0, 0, 1, 0xfe, 0, 0, 2, 0], Question::Rows),
    ];
    for (bytes, question) in simple {
        let mut scanner = AnswerScanner::new(question, EOF, EOF);
        assert_eq!(relay(&mut scanner, bytes, 1).unwrap(), bytes);
        assert!(scanner.is_done());
    }
}

#[test]
fn a_file_is_asked_for_and_then_answered() {
    let mut scanner = AnswerScanner::new(Question::Results, EOF, EOF);
    relay(&mut scanner, b"\x02\0\0\x01\xfbf", 2).unwrap();
    assert!(scanner.wants_file());
    scanner.file_sent();
    relay(&mut scanner, &[7, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0], 2).unwrap();
    assert!(scanner.is_done());
}

#[test]
fn servers_that_break_the_protocol() {
    let cases: [(&[u8], Question); 5] = [
        (&[0, 0, 0, 1], Question::Results),
        (&[7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 2, 0], Question::Results),
        (&[1, 0, 0x20, 1, 0xfe, 0], Question::Simple),
        (&[1, 0, 0, 1, 3], Question::Prepare),
        (&[3, 0, 0, 1, 0, 0xfe, 1], Question::Simple),
    ];
    for (bytes, question) in cases {
        assert!(relay(&mut AnswerScanner::new(question, NO_EOF, NO_EOF), bytes, bytes.len()).is_err(), "{bytes:?}");
    }
}

#[test]
fn any_bytes_give_an_error_or_a_part() {
    let questions = [Question::Results, Question::Prepare, Question::Rows, Question::Simple, Question::Text];
    bolero::check!().with_type::<(u8, bool, Vec<u8>)>().for_each(|(question, eof, bytes)| {
        let question = questions[usize::from(*question) % questions.len()];
        let capabilities = if *eof { EOF } else { NO_EOF };
        let mut bytes = bytes.clone();
        let mut scanner = AnswerScanner::new(question, capabilities, Capabilities::NONE);
        if let Ok(scanned) = scanner.scan(&mut bytes) {
            assert!(scanned.forward <= scanned.end && scanned.end <= bytes.len());
        }
    });
}
