//! Answers of operations made into responses.

use kendall_protocols::queue as wire;
use tonic::{Code, Status};

use crate::operation::{Answer, Limits};
use crate::refusal::Refusal;

/// Bytes of an answer with many messages: no client accepts more unless it was configured to, and what it does
/// not accept is lost to it.
pub(crate) const ANSWER_BYTES: usize = 4 << 20;
/// Bytes of a message beside its content, headers and reason, at most.
pub(crate) const FACTS_BYTES: usize = 160;

/// The answer to an acknowledgement.
pub(crate) fn acknowledged(answer: &Answer, limits: &Limits) -> Result<(), Status> {
    match answer {
        Answer::Codes(codes) => codes.iter().try_for_each(|code| as_result(*code, limits)),
        _ => Ok(()),
    }
}

pub(crate) fn as_result(code: i32, limits: &Limits) -> Result<(), Status> {
    if code == 0 { Ok(()) } else { Err(Refusal(code).status(limits)) }
}

pub(crate) fn sent(answer: Answer) -> Result<wire::SendResponse, Status> {
    Ok(wire::SendResponse { message_id: number(answer)? })
}

pub(crate) fn received(answer: Answer) -> Result<wire::ReceiveResponse, Status> {
    Ok(wire::ReceiveResponse { message: message(answer)?.map(|(message, _)| message) })
}

pub(crate) fn read(answer: Answer) -> Result<wire::ReadResponse, Status> {
    Ok(wire::ReadResponse { message: message(answer)?.map(|(message, _)| message) })
}

pub(crate) fn leased(answer: Answer) -> Result<wire::LeaseResponse, Status> {
    let (message, lease_id) = message(answer)?.unzip();
    Ok(wire::LeaseResponse { message, lease_id: lease_id.unwrap_or_default() })
}

/// As many of these as go into an answer; one, at least.
pub(crate) fn within_an_answer<T>(all: Vec<T>, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut left = ANSWER_BYTES;
    let fits = |item: &T| {
        let first = left == ANSWER_BYTES;
        let its = bytes(item) + FACTS_BYTES;
        left = left.saturating_sub(its);
        first || left > 0
    };
    let fitting = all.iter().map(fits).take_while(|fits| *fits).count();
    all.into_iter().take(fitting).collect()
}

pub(crate) fn number(answer: Answer) -> Result<u64, Status> {
    match answer {
        Answer::Number(number) => Ok(number),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn message(answer: Answer) -> Result<Option<(wire::Message, u64)>, Status> {
    Ok(messages(answer)?.pop())
}

pub(crate) fn messages(answer: Answer) -> Result<Vec<(wire::Message, u64)>, Status> {
    match answer {
        Answer::Message(found) => Ok(found.into_iter().collect()),
        Answer::Messages(found) => Ok(found),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn codes(answer: Answer) -> Result<Vec<i32>, Status> {
    match answer {
        Answer::Codes(codes) => Ok(codes),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn unexpected(answer: &Answer) -> Status {
    Status::new(Code::Internal, format!("an answer of another operation: {answer:?}"))
}
