use std::collections::VecDeque;
use std::rc::Rc;

use quorumsql_wire::pgsql::backend::tag;

use super::super::changes::Change;
use super::super::pins::PinSet;
use super::super::prepared::Statement;
use super::*;
use Expected::{CopyEnd, FunctionCall, OwnQuery, Sync};

#[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
const Bind: Expected = Expected::Bind(None);
#[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
const Execute: Expected = Expected::Execute { statement: None, pins: PinSet::NONE };
#[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
const Query: Expected = Expected::Query { changes: None, pins: PinSet::NONE };
#[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
const DescribeStatement: Expected = Expected::DescribeStatement(None);

#[allow(non_upper_case_globals, reason = "reads like the variant that it is")]
const OwnClose: Expected = Expected::OwnClose(None);

fn statement(id: u64) -> Rc<Statement> {
    Rc::new(Statement { id, ..Statement::default() })
}

fn parse(audience: Audience) -> Expected {
    Expected::Parse { audience, slot: Slot::Unnamed, named: None }
}

/// Feeds tags; `.` = forwarded, `-` = swallowed, `=` = replaced, `!` = unexpected; answers of our own follow as their tags.
fn run(due: Vec<Expected>, tags: &[u8]) -> (String, Responses) {
    let mut responses = Responses::default();
    due.into_iter().for_each(|expected| responses.push(expected));
    let mut seen = String::new();
    // An answer of our own at the head is due before the first message.
    responses.pop_own(&mut Vec::new());
    for &message in tags {
        let mut own = Vec::new();
        seen.push(match responses.on_message(message, &mut own, &mut Vec::new()) {
            Ok(Reply::Forward) => '.',
            Ok(Reply::Swallow) => '-',
            Ok(Reply::Replace(_)) => '=',
            Err(Unexpected(_)) => '!',
        });
        seen.extend(own.chunks(5).map(|message| message[0] as char));
    }
    (seen, responses)
}

#[test]
fn what_is_due_is_forwarded() {
    let named = Named { name: Box::default(), statement: statement(1) };
    let cases: Vec<(Vec<Expected>, &[u8], &str)> = vec![
        (vec![Query], b"TDDCZ", "....."),
        (vec![Query], b"TDCTDCINSAZ", "..........."),
        (vec![Query, Query], b"EZCZ", "...."),
        (vec![OwnQuery, Query], b"CTDCSZCZ", "----.-.."),
        (vec![Expected::Prepare(1), Query], b"31ZCZ", "---.."),
        (vec![Expected::Prepare(1), Query], b"EZEZ", "--.."),
        (vec![Expected::Question, Query], b"TDCZCZ", "----.."),
        (vec![Expected::Question, Query], b"EZCZ", "--.."),
        (vec![Expected::Answer { text: vec![1], forgets: None }], b"SIZ", ".=."),
        (vec![Expected::Answer { text: vec![1], forgets: None }], b"EZ", ".."),
        (vec![FunctionCall], b"VZ", ".."),
        (vec![parse(Audience::Client), Bind, DescribeStatement, Execute, Sync], b"12tTDCZ", "......."),
        (vec![parse(Audience::Proxy), Bind, Execute, Sync], b"12sZ", "-..."),
        (vec![Bind, OwnClose, Execute, OwnClose, Sync], b"2DCZ", ".3..3."),
        (vec![Expected::OwnParse(named), Bind, Sync], b"2Z", ".."),
        (vec![Bind, Execute, Sync, Bind, Execute, Sync], b"EZ2CZ", "....."),
        (vec![DescribeStatement, Sync], b"tEZ", "..."),
        (vec![Expected::Poison(vec![1]), Bind, Sync], b"EZ", "=."),
        (vec![Query], b"HddcCZ", "......"),
        (vec![Query], b"GCZ", "..."),
        (vec![Query], b"2", "!"),
        (vec![], b"Z", "!"),
        (vec![], b"NSA", "..."),
        (vec![Bind, Sync], b"Z", "!"),
    ];
    for (due, tags, expected) in cases {
        let text = format!("{due:?}");
        assert_eq!(run(due, tags).0, expected, "{text}");
    }
}

#[test]
fn after_an_error_without_sync_everything_is_skipped_until_one_is_sent() {
    let (_, mut responses) = run(vec![Bind, Execute], b"E");
    assert!(responses.is_skipping() && responses.is_empty() && responses.is_in_batch());
    responses.push(Sync);
    assert!(!responses.is_skipping() && !responses.is_in_batch());
}

#[test]
fn a_batch_of_which_all_is_answered_stays_open_until_its_sync() {
    let (_, mut responses) = run(vec![parse(Audience::Client), Bind, Execute], b"12C");
    assert!(responses.is_empty() && responses.is_in_batch() && !responses.is_idle());
    assert_eq!(responses.unfinished(), [Unfinished::OpenBatch]);
    responses.push(OwnClose);
    assert!(!responses.is_idle());
    let (_, mut responses) = run(vec![parse(Audience::Client), Bind, Execute, Sync], b"12CZ");
    assert!(responses.is_idle() && responses.unfinished().is_empty());
    responses.push(OwnClose);
    responses.pop_own(&mut Vec::new());
    assert!(responses.is_idle(), "nothing was sent");
}

#[test]
fn a_failed_parse_is_undone() {
    let named = Named { name: Box::from(&b"s"[..]), statement: statement(7) };
    let mut responses = Responses::default();
    responses.push(Expected::Parse { audience: Audience::Client, slot: Slot::Named(7), named: Some(named) });
    responses.push(parse(Audience::Client));
    responses.push(Sync);
    let mut note = Vec::new();
    responses.on_message(tag::ERROR, &mut Vec::new(), &mut note).unwrap();
    let [Outcome::NotParsed(Audience::Client, Slot::Unnamed), Outcome::Undefined(named), Outcome::NotParsed(_, Slot::Named(7))] = &note[..]
    else {
        panic!("{note:?}");
    };
    assert_eq!(&*named.name, b"s");
}

#[test]
fn each_statement_of_a_query_is_completed_on_its_own() {
    let mut responses = Responses::default();
    responses.push(Expected::Query { changes: Some(VecDeque::from([Change::Nothing, Change::ResetAll])), pins: PinSet::NONE });
    let statement = Rc::new(Statement { change: Some(Change::UnlistenAll), ..Statement::default() });
    responses.push(Expected::Execute { statement: Some(statement), pins: PinSet::NONE });
    assert_eq!((responses.complete(), responses.complete(), responses.complete()), (Some(Change::Nothing), Some(Change::ResetAll), None));
    responses.on_message(tag::READY, &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!(responses.complete(), Some(Change::UnlistenAll));
}

#[test]
fn a_sync_ahead_of_copy_data_is_not_answered() {
    let (_, mut responses) = run(vec![Bind, Execute, Sync], b"2G");
    assert!(responses.is_copy_in());
    responses.on_copy_end();
    responses.push(Sync);
    let mut note = Vec::new();
    for message in *b"CZ" {
        assert_eq!(responses.on_message(message, &mut Vec::new(), &mut note), Ok(Reply::Forward));
    }
    assert!(responses.is_empty());
}

#[test]
fn copy_data_that_was_sent_blindly() {
    let (seen, responses) = run(vec![Bind, Execute, CopyEnd, Sync], b"2GCZ");
    assert_eq!(seen, "....");
    assert!(responses.is_empty() && !responses.is_copy_in());
    for (due, tags) in [
        (vec![Query, CopyEnd], &b"GCZ"[..]),
        (vec![Query, Sync, CopyEnd], b"GCZ"),
        (vec![Query, Sync, CopyEnd, Sync], b"GCZZ"),
        (vec![Query, Sync, CopyEnd, Sync], b"EZZZ"),
        (vec![Query, CopyEnd, CopyEnd], b"GCGCZ"),
    ] {
        let mut responses = Responses::default();
        due.iter().for_each(|expected| responses.push(expected.clone()));
        assert!(!responses.is_in_batch(), "{due:?}");
        let (seen, responses) = run(due, tags);
        assert_eq!(seen, ".".repeat(tags.len()));
        assert!(responses.is_idle() && !responses.is_copy_in());
    }
    let (seen, responses) = run(vec![Bind, Execute, CopyEnd, Sync], b"2CZ");
    assert_eq!(seen, "...", "no COPY after all");
    assert!(responses.is_empty());
}

#[test]
fn what_was_skipped_is_undone_from_the_last_on() {
    let named = |id| Named { name: Box::from(&b"s"[..]), statement: statement(id) };
    let mut responses = Responses::default();
    for due in [Execute, Expected::OwnClose(Some(named(1))), Expected::OwnParse(named(2)), Expected::Unnamed(3, statement(3)), Query, Sync]
    {
        responses.push(due);
    }
    let (mut own, mut note) = (Vec::new(), Vec::new());
    responses.on_message(tag::ERROR, &mut own, &mut note).unwrap();
    let [Outcome::UnnamedLeft(3, _), Outcome::Undefined(defined), Outcome::NotClosedByClient(closed)] = &note[..] else {
        panic!("{note:?}");
    };
    assert_eq!((defined.statement.id, closed.statement.id, own.is_empty()), (2, 1, true));
}

#[test]
fn names_are_judged_by_what_is_due() {
    let execute = |change| {
        let statement = Rc::new(Statement { change: Some(change), ..Statement::default() });
        Expected::Execute { statement: Some(statement), pins: PinSet::NONE }
    };
    let define = |name: &[u8]| {
        let named = Named { name: name.into(), statement: statement(1) };
        Expected::Parse { audience: Audience::Client, slot: Slot::Named(1), named: Some(named) }
    };
    let mut responses = Responses::default();
    responses.push(execute(Change::Prepare("a".into())));
    assert_eq!((responses.prepares(b"a"), responses.prepares(b"b"), responses.is_naming()), (Some(true), None, true));
    responses.push(execute(Change::DeallocateAll));
    responses.push(define(b"a"));
    assert_eq!((responses.prepares(b"a"), responses.prepares(b"b")), (Some(false), Some(false)));
    assert_eq!((responses.defines(b"a"), responses.will_show(b"a"), responses.parsed().next()), (true, false, Some(1)));
    responses.push(Sync);
    assert_eq!((responses.will_show(b"a"), responses.will_show(b"b")), (true, false));
    (0..1000).for_each(|_| responses.push(Sync));
    assert_eq!((responses.is_long(), responses.is_naming(), responses.defines(b"a")), (true, false, false));
}

/// Whatever is sent and whatever comes, in any order: no panic, and a queue that is empty owes nothing.
#[test]
fn any_order_of_messages_is_survived() {
    const TAGS: &[u8] = b"TDCINEZ123ntsGHWdcVSA?";
    bolero::check!().with_type::<Vec<(bool, u8)>>().for_each(|steps| {
        let mut responses = Responses::default();
        let (mut own, mut note) = (Vec::new(), Vec::new());
        for (is_push, number) in steps {
            if *is_push {
                responses.push(match number % 10 {
                    0 if *number > 200 => Expected::Question,
                    0 if *number > 100 => Expected::OwnQuery,
                    0 => Expected::Query { changes: None, pins: PinSet::NONE },
                    1 => Expected::Parse { audience: Audience::Proxy, slot: Slot::Unnamed, named: None },
                    2 => Expected::Bind(None),
                    3 => Expected::DescribeStatement(None),
                    4 => Expected::Execute { statement: None, pins: PinSet::NONE },
                    5 => Expected::Close(Audience::Client),
                    6 => Expected::OwnClose(None),
                    7 => Expected::Poison(Vec::new()),
                    8 if *number > 100 => Expected::Answer { text: Vec::new(), forgets: None },
                    8 => Expected::FunctionCall,
                    _ => Expected::Sync,
                });
                if *number > 200 {
                    responses.on_copy_end();
                }
            } else {
                let message = TAGS[usize::from(*number) % TAGS.len()];
                let was_empty = responses.is_empty();
                let reply = responses.on_message(message, &mut own, &mut note);
                assert!(!was_empty || reply.is_err() || matches!(message, b'N' | b'S' | b'A'), "{} was not due", message as char);
            }
            assert!(!responses.unfinished().is_empty() || responses.is_own() || responses.is_idle());
        }
    });
}
