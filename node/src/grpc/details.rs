//! `google.rpc.ErrorInfo`: the reason word of a refusal, for programs (raft-and-storage.md 4.7).

use prost::Message;
use quorumsql_raft::command::Rejection;
use tonic::{Code, Status};

/// `google.rpc.Status`, which travels in `grpc-status-details-bin`.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
}

/// Column gRPC of the table, with the reason word.
pub(super) fn refused(rejection: &Rejection) -> Status {
    let (code, reason) = match (rejection.mysql_code, rejection.pgsql_state.as_str()) {
        (1290, _) => (Code::Unavailable, "READ_ONLY"),
        (1213, _) => (Code::Aborted, "CONFLICT"),
        (1153, _) => (Code::ResourceExhausted, "TOO_LARGE"),
        (1205, _) => (Code::ResourceExhausted, "QUEUE_FULL"),
        (_, "08007") => (Code::DeadlineExceeded, "OUTCOME_UNKNOWN"),
        _ => (Code::FailedPrecondition, "REFUSED"),
    };
    let info = ErrorInfo { reason: reason.into(), domain: "quorumsql".into() };
    let details = vec![Any { type_url: "type.googleapis.com/google.rpc.ErrorInfo".into(), value: info.encode_to_vec() }];
    let status = RpcStatus { code: code.into(), message: rejection.message.clone(), details };
    Status::with_details(code, rejection.message.clone(), status.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_their_text_and_get_code_and_reason() {
        for (mysql_code, pgsql_state, code, reason) in [
            (1290, "25006", Code::Unavailable, "READ_ONLY"),
            (1213, "40001", Code::Aborted, "CONFLICT"),
            (1153, "54000", Code::ResourceExhausted, "TOO_LARGE"),
            (1205, "53000", Code::ResourceExhausted, "QUEUE_FULL"),
            (1105, "08007", Code::DeadlineExceeded, "OUTCOME_UNKNOWN"),
            (1045, "28000", Code::FailedPrecondition, "REFUSED"),
        ] {
            let rejection = Rejection { mysql_code, mysql_state: String::new(), pgsql_state: pgsql_state.into(), message: "why".into() };
            let status = refused(&rejection);
            assert_eq!((status.code(), status.message()), (code, "why"));
            let details = RpcStatus::decode(status.details()).expect("google.rpc.Status").details;
            let info = ErrorInfo::decode(&details[0].value[..]).expect("google.rpc.ErrorInfo");
            assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "quorumsql"));
        }
    }
}
