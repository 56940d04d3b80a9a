//! What few messages have beside the rest: binary content, headers, and of dead letters what they were.

use std::collections::BTreeMap;

use kendall_protocols::queue::{DeadLetter, Message};
use serde::{Deserialize, Serialize};

/// `extra_of` in SQL.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Extra {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_queue_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin_receiver_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_at_us: Option<i64>,
}

/// The message with all that it has.
pub(super) fn with_extra(
    mut message: Message,
    data: Option<Vec<u8>>,
    extra: Option<String>,
) -> Message {
    message.data = data.unwrap_or_default();
    let Some(extra) = extra else { return message };
    let extra: Extra = match serde_json::from_str(&extra) {
        Ok(extra) => extra,
        Err(error) => {
            // The functions write it; by hand anything could be there.
            tracing::warn!(%error, message_id = message.message_id, "a message's headers cannot be read");
            return message;
        }
    };
    message.headers = extra.headers;
    message.dead_letter = extra.dead_at_us.map(|died_at_us| DeadLetter {
        origin_queue_id: extra.origin_queue_id.unwrap_or_default(),
        receiver_id: extra.origin_receiver_id.unwrap_or_default(),
        reason: extra.reason.unwrap_or_default(),
        deliveries: extra.deliveries.unwrap_or_default(),
        died_at_us,
    });
    message
}

/// The same as JSON, for a message that is put back; `None` where it has nothing of it.
pub(super) fn extra_of(message: &Message) -> Option<String> {
    let dead = message.dead_letter.as_ref();
    if message.headers.is_empty() && dead.is_none() {
        return None;
    }
    let some = |id: u64| (id > 0).then_some(id);
    let extra = Extra {
        headers: message.headers.clone(),
        origin_queue_id: dead.and_then(|dead| some(dead.origin_queue_id)),
        origin_receiver_id: dead.and_then(|dead| some(dead.receiver_id)),
        reason: dead.map(|dead| dead.reason.clone()),
        deliveries: dead.map(|dead| dead.deliveries),
        dead_at_us: dead.map(|dead| dead.died_at_us),
    };
    Some(serde_json::to_string(&extra).expect("texts and numbers are JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_has_beside_the_rest_comes_back() {
        let headers = BTreeMap::from([("a".to_owned(), "\"b\"\n".to_owned())]);
        let dead = DeadLetter {
            origin_queue_id: 3,
            receiver_id: 0,
            reason: "it was returned".into(),
            deliveries: 2,
            died_at_us: 5,
        };
        let whole = Message { headers, dead_letter: Some(dead), ..Message::default() };
        assert_eq!(with_extra(Message::default(), None, extra_of(&whole)), whole);
        assert_eq!(extra_of(&Message::default()), None);
        let unreadable = with_extra(Message::default(), Some(vec![7]), Some("{".into()));
        assert_eq!(unreadable, Message { data: vec![7], ..Message::default() });
    }
}
