//! For `fuzz/`: what is read from outside, without a server around it.

use kendall_protocols::queue as wire;
use prost::Message;

use crate::identity::{LINE, Tokens};
use crate::operation::{Held, Limits, Operation, Selector, Take};
use crate::request;

/// The body of a gRPC call, of a kind that the first byte says: decoded, checked, and made into an
/// operation.
///
/// # Panics
/// When what was accepted breaks a bound that the database relies on.
pub fn call(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    let limits = Limits::default();
    match kind % 8 {
        0 => decode::<wire::SendRequest>(body, |asked| request::checked_send(asked, &limits)),
        1 => decode::<wire::ReceiveRequest>(body, |asked| {
            request::checked_receive(asked).map(|taking| taking.operation)
        }),
        2 => decode::<wire::LeaseRequest>(body, |asked| {
            request::checked_lease(asked).map(|taking| taking.operation)
        }),
        3 => decode::<wire::ReadRequest>(body, request::checked_read),
        4 => decode::<wire::AcknowledgeRequest>(body, request::checked_acknowledge),
        5 => decode::<wire::ExtendLeaseRequest>(body, request::checked_extend),
        6 => decode::<wire::ReturnMessageRequest>(body, request::checked_return),
        _ => decode::<wire::CreateQueueRequest>(body, request::checked_queue),
    }
}

fn decode<T: Message + Default>(
    body: &[u8],
    checked: impl FnOnce(T) -> Result<Operation, tonic::Status>,
) {
    let Ok(asked) = T::decode(body) else { return };
    match checked(asked) {
        Ok(operation) => hold(&operation),
        Err(status) => assert!(!status.message().is_empty(), "a refusal says why"),
    }
}

/// What the database's types and checks take for granted.
fn hold(operation: &Operation) {
    let id = |id: i64| assert!(id > 0, "an id below 1: {operation:?}");
    let selects = |selector: &Selector| {
        id(selector.client);
        id(selector.queue);
        selector.sender.into_iter().for_each(id);
    };
    let takes = |take: &Take| {
        selects(&take.selector);
        assert!(take.lease_ms >= 0);
    };
    let held = |held: &Held| [held.client, held.message, held.lease].map(id);
    match operation {
        Operation::Send(send) => {
            id(send.client);
            id(send.queue);
            send.receiver.into_iter().for_each(id);
            assert!(!send.content.contains('\0') && send.content.chars().count() <= 2000);
            assert!(send.data.is_none() || send.content.is_empty());
            assert!((0..=1000).contains(&send.priority) && send.delay_ms >= 0);
            if let Some(headers) = &send.headers {
                let read: std::collections::BTreeMap<String, String> =
                    serde_json::from_str(headers).expect("headers are JSON");
                assert!(!read.is_empty());
            }
        }
        Operation::Take(take) => takes(take),
        Operation::TakeOnce(take, most, _) => {
            takes(take);
            assert!(*most > 0);
        }
        Operation::Read(selector) => selects(selector),
        Operation::Acknowledge(one) => {
            held(one);
        }
        Operation::AcknowledgeOnce(all, _) => all.iter().for_each(|one| {
            held(one);
        }),
        Operation::ExtendLease(one, ms) => {
            held(one);
            assert!(*ms > 0);
        }
        Operation::Return(one, ms, reason) => {
            held(one);
            assert!(*ms >= 0 && !reason.contains('\0'));
        }
        Operation::CreateQueue(queue) => {
            assert!(!queue.name.is_empty() && !queue.name.contains('\0'));
            assert!(queue.max_deliveries.is_none_or(|most| most > 0));
        }
        other => panic!("made of no such request: {other:?}"),
    }
}

/// A message of a stream: the calls in it are what [`call`] sees one by one.
pub fn calls(bytes: &[u8]) {
    let Ok(calls) = wire::Calls::decode(bytes) else { return };
    let again = wire::Calls::decode(calls.encode_to_vec().as_slice());
    assert_eq!(again.as_ref(), Ok(&calls), "what was read is written as it was");
}

/// A file of tokens.
pub fn tokens(text: &str) {
    if let Err(Some((line, what))) = Tokens::parse(text, &LINE) {
        assert!(line <= text.lines().count() && !what.is_empty());
    }
}
