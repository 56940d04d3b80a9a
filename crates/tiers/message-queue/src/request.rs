//! Requests checked and made into operations.

use std::collections::BTreeMap;

use kendall_protocols::queue as wire;
use md5::{Digest as _, Md5};
use tonic::Status;
use uuid::Uuid;

use crate::operation::{
    HEADER_BYTES, HEADERS, HIGHEST_PRIORITY, Held, LONGEST_MS, Limits, Listing, NAME_CHARACTERS,
    NewQueue, Operation, REASON_CHARACTERS, RequestId, Selector, Send, Take,
};
use crate::refusal::too_long;

/// Messages of a listing by default, and at most.
const LISTED: u32 = 100;
const MOST_LISTED: u32 = 1000;

/// Numbers that are stored with a request id, beside the content.
pub(crate) const SEND: i16 = 0;
pub(crate) const RECEIVE: i16 = 1;
pub(crate) const LEASE: i16 = 2;
pub(crate) const ACKNOWLEDGE: i16 = 3;
pub(crate) const RECEIVE_BATCH: i16 = 4;
pub(crate) const LEASE_BATCH: i16 = 5;
pub(crate) const ACKNOWLEDGE_BATCH: i16 = 6;

/// A take, and how long it may wait for a message.
#[derive(Debug, Clone)]
pub(crate) struct Taking {
    pub(crate) operation: Operation,
    pub(crate) selector: Selector,
    pub(crate) wait_ms: u64,
    /// When an answer that takes messages away must leave.
    pub(crate) due_ns: Option<u64>,
}

pub(crate) fn checked_queue(request: wire::CreateQueueRequest) -> Result<Operation, Status> {
    let max_deliveries = deliveries(request.max_deliveries)?;
    let retention_ms = milliseconds(request.retention_ms, "retention_ms")?;
    let archive_ms = milliseconds(request.archive_ms, "archive_ms")?;
    Ok(Operation::CreateQueue(NewQueue {
        name: name(request.name)?,
        max_deliveries: (max_deliveries > 0).then_some(max_deliveries),
        dead_letter: optional_id(request.dead_letter_queue_id, "dead_letter_queue_id")?,
        retention_ms: (retention_ms > 0).then_some(retention_ms),
        archive_ms: (archive_ms > 0).then_some(archive_ms),
    }))
}

/// A send, checked and made into an operation.
pub(crate) fn checked_send(
    request: wire::SendRequest,
    limits: &Limits,
) -> Result<Operation, Status> {
    let limit = limits.content_characters;
    // Bytes first: counting the characters of what cannot fit would be wasted.
    if request.content.len() > 4 * limit
        || request.content.chars().count() > limit
        || request.data.len() > 4 * limit
    {
        return Err(too_long(limit));
    }
    if !request.content.is_empty() && !request.data.is_empty() {
        return Err(Status::invalid_argument("a message has content or data, not both"));
    }
    if !(0..=HIGHEST_PRIORITY).contains(&request.priority) {
        return Err(Status::invalid_argument(format!(
            "priority is {}; it goes from 0 to {HIGHEST_PRIORITY}",
            request.priority
        )));
    }
    let client = id(request.client_id, "client_id")?;
    let repeatable = if request.request_id.is_empty() {
        None
    } else {
        let stands_for =
            wire::SendRequest { client_id: 0, request_id: Vec::new(), ..request.clone() };
        request_id(&request.request_id, SEND, &stands_for)?
    };
    Ok(Operation::Send(Send {
        client,
        queue: id(request.queue_id, "queue_id")?,
        receiver: optional_id(request.receiver_id, "receiver_id")?,
        content: text(request.content, "content")?,
        data: (!request.data.is_empty()).then_some(request.data),
        headers: headers(&request.headers)?,
        priority: request.priority,
        delay_ms: milliseconds(request.delay_ms, "delay_ms")?,
        request: repeatable,
    }))
}

pub(crate) fn checked_receive(request: wire::ReceiveRequest) -> Result<Taking, Status> {
    let wire::ReceiveRequest { client_id, queue_id, order, sender_id, wait_ms, .. } = request;
    let selector = selector(client_id, queue_id, sender_id, order)?;
    let take = Take { selector, lease_ms: 0 };
    let once = request_id(
        &request.request_id,
        RECEIVE,
        &wire::ReceiveRequest { client_id: 0, wait_ms: 0, request_id: Vec::new(), ..request },
    )?;
    Ok(Taking { operation: taking_once(take, once), selector, wait_ms, due_ns: None })
}

pub(crate) fn checked_lease(request: wire::LeaseRequest) -> Result<Taking, Status> {
    let wire::LeaseRequest { client_id, queue_id, order, sender_id, wait_ms, lease_ms, .. } =
        request;
    let selector = selector(client_id, queue_id, sender_id, order)?;
    let take = Take { selector, lease_ms: lease(lease_ms)? };
    let once = request_id(
        &request.request_id,
        LEASE,
        &wire::LeaseRequest { client_id: 0, wait_ms: 0, request_id: Vec::new(), ..request },
    )?;
    Ok(Taking { operation: taking_once(take, once), selector, wait_ms, due_ns: None })
}

pub(crate) fn taking_once(take: Take, once: Option<RequestId>) -> Operation {
    match once {
        Some(once) => Operation::TakeOnce(take, 1, once),
        None => Operation::Take(take),
    }
}

pub(crate) fn checked_read(request: wire::ReadRequest) -> Result<Operation, Status> {
    let wire::ReadRequest { client_id, queue_id, order, sender_id } = request;
    selector(client_id, queue_id, sender_id, order).map(Operation::Read)
}

pub(crate) fn checked_acknowledge(request: wire::AcknowledgeRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    let once = request_id(
        &request.request_id,
        ACKNOWLEDGE,
        &wire::AcknowledgeRequest { client_id: 0, request_id: Vec::new(), ..request },
    )?;
    Ok(match once {
        Some(once) => Operation::AcknowledgeOnce(vec![held], once),
        None => Operation::Acknowledge(held),
    })
}

pub(crate) fn checked_extend(request: wire::ExtendLeaseRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    Ok(Operation::ExtendLease(held, lease(request.lease_ms)?))
}

/// A message that is given back, checked.
pub(crate) fn checked_return(request: wire::ReturnMessageRequest) -> Result<Operation, Status> {
    let held = held(request.client_id, request.message_id, request.lease_id)?;
    let delay_ms = milliseconds(request.delay_ms, "delay_ms")?;
    if request.reason.chars().count() > REASON_CHARACTERS {
        return Err(Status::invalid_argument(format!(
            "the reason is longer than {REASON_CHARACTERS} characters"
        )));
    }
    Ok(Operation::Return(held, delay_ms, text(request.reason, "reason")?))
}

pub(crate) fn id(value: u64, field: &str) -> Result<i64, Status> {
    match i64::try_from(value) {
        Ok(id) if id > 0 => Ok(id),
        _ => {
            let text = format!("{field} is {value}; ids are from 1 to {}", i64::MAX);
            Err(Status::invalid_argument(text))
        }
    }
}

pub(crate) fn optional_id(value: u64, field: &str) -> Result<Option<i64>, Status> {
    if value == 0 { Ok(None) } else { id(value, field).map(Some) }
}

pub(crate) fn name(name: String) -> Result<String, Status> {
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS {
        return Err(Status::invalid_argument(format!(
            "a name has 1 to {NAME_CHARACTERS} characters; this has {}",
            name.chars().count()
        )));
    }
    text(name, "name")
}

/// PostgreSQL's text holds every character but NUL.
pub(crate) fn text(text: String, field: &str) -> Result<String, Status> {
    if text.contains('\0') {
        return Err(Status::invalid_argument(format!(
            "{field} holds a NUL character, which PostgreSQL's text cannot; encode binary content"
        )));
    }
    Ok(text)
}

pub(crate) fn milliseconds(value: u64, field: &str) -> Result<i64, Status> {
    match i64::try_from(value) {
        Ok(ms) if value <= LONGEST_MS => Ok(ms),
        _ => Err(Status::invalid_argument(format!(
            "{field} is {value}; at most {LONGEST_MS} (a hundred years)"
        ))),
    }
}

pub(crate) fn lease(ms: u64) -> Result<i64, Status> {
    if ms == 0 {
        return Err(Status::invalid_argument("lease_ms is 0; a lease has a length"));
    }
    milliseconds(ms, "lease_ms")
}

/// The id of a request and its content: all fields but the client, the wait and the id
/// itself.
pub(crate) fn request_id(
    bytes: &[u8],
    operation: i16,
    stands_for: &impl prost::Message,
) -> Result<Option<RequestId>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let id = Uuid::from_slice(bytes).map_err(|_| {
        Status::invalid_argument(format!(
            "request_id has {} bytes; it has 16, such as those of a UUID, or none",
            bytes.len()
        ))
    })?;
    let digest = Uuid::from_bytes(Md5::digest(stands_for.encode_to_vec()).into());
    Ok(Some(RequestId { id, operation, digest }))
}

pub(crate) fn headers(headers: &BTreeMap<String, String>) -> Result<Option<String>, Status> {
    if headers.is_empty() {
        return Ok(None);
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > HEADERS || bytes > HEADER_BYTES {
        return Err(Status::invalid_argument(format!(
            "{} headers of {bytes} bytes; at most {HEADERS} of {HEADER_BYTES} bytes together",
            headers.len()
        )));
    }
    if headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(Status::invalid_argument("a header holds a NUL character"));
    }
    Ok(Some(serde_json::to_string(headers).expect("texts are JSON")))
}

pub(crate) fn deliveries(value: u32) -> Result<i32, Status> {
    i32::try_from(value).map_err(|_| Status::invalid_argument("max_deliveries is too large"))
}

pub(crate) fn listing(queue: u64, after: u64, limit: u32) -> Result<Listing, Status> {
    let limit = if limit == 0 { LISTED } else { limit.min(MOST_LISTED) };
    Ok(Listing {
        queue: id(queue, "queue_id")?,
        sender: None,
        after: optional_id(after, "after_message_id")?.unwrap_or_default(),
        limit: i32::try_from(limit).unwrap_or(i32::MAX),
    })
}

pub(crate) fn selector(
    client: u64,
    queue: u64,
    sender: u64,
    order: i32,
) -> Result<Selector, Status> {
    let order = wire::Order::try_from(order).map_err(|_| {
        Status::invalid_argument(format!("order is {order}; 0 is arrival, 1 is priority"))
    })?;
    Ok(Selector {
        client: id(client, "client_id")?,
        queue: id(queue, "queue_id")?,
        sender: optional_id(sender, "sender_id")?,
        by_priority: order == wire::Order::Priority,
    })
}

pub(crate) fn held(client: u64, message: u64, lease: u64) -> Result<Held, Status> {
    Ok(Held {
        client: id(client, "client_id")?,
        message: id(message, "message_id")?,
        lease: id(lease, "lease_id")?,
    })
}
