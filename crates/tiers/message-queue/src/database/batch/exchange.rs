//! The usual batch as one statement: sends, and takes of the first message by arrival of one queue.

use std::error::Error as StdError;

use kendall_protocols::queue::Message;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Error, Row};

use super::{
    Answers, Call, Connection, Gathered, Kinds, Operation, Parameter, as_send, as_take, chosen,
    column, id,
};
use crate::operation::{Answer, Limits, Refusal, Take};

const EXCHANGE: &str = "SELECT done, sent_ids, places, ids, sender_ids, receiver_ids, \
    message_priorities, message_contents, sent_ats, deliveries, lease_ids \
    FROM exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// From the beginning of PostgreSQL's time, 2000, to that of Unix's, in microseconds.
const EPOCH_US: i64 = 946_684_800_000_000;

/// The statement's parameters.
pub(super) struct Exchange<'a> {
    parameters: Vec<Parameter<'a>>,
}

/// A batch of this kind, if it is one. It need not have both sends and takes.
pub(super) fn write<'a>(operations: &[&'a Operation], kinds: &Kinds) -> Option<Exchange<'a>> {
    if !kinds.others.is_empty() || !kinds.acknowledgements.is_empty() {
        return None;
    }
    let sends = chosen(operations, &kinds.sends, as_send);
    let takes = chosen(operations, &kinds.takes, as_take);
    if sends.iter().any(|send| send.request.is_some()) || !first_of_one_queue(&takes) {
        return None;
    }
    let mut people: Vec<i64> = sends.iter().map(|send| send.client).collect();
    people.extend(takes.iter().map(|take| take.selector.client));
    people.sort_unstable();
    people.dedup();
    let leases = takes.iter().any(|take| take.lease_ms > 0);
    Some(Exchange {
        parameters: vec![
            Box::new(people),
            some_column(&sends, |send| send.queue),
            some_column(&sends, |send| send.client),
            some_column(&sends, |send| send.receiver),
            some_column(&sends, |send| send.content.as_str()),
            some_column(&sends, |send| send.priority),
            some_column(&sends, |send| send.delay_ms),
            Box::new(takes.first().map(|take| take.selector.queue)),
            some_column(&takes, |take| take.selector.client),
            if leases { column(&takes, |take| take.lease_ms) } else { Box::new(None::<Vec<i64>>) },
        ],
    })
}

fn first_of_one_queue(takes: &[&Take]) -> bool {
    let Some(first) = takes.first() else { return true };
    takes.iter().all(|take| {
        let selector = &take.selector;
        selector.queue == first.selector.queue && selector.sender.is_none() && !selector.by_priority
    })
}

/// NULL where there is none.
fn some_column<'a, T, V>(items: &[&'a T], value: impl Fn(&'a T) -> V) -> Parameter<'a>
where
    V: tokio_postgres::types::ToSql + Sync + Send + 'a,
{
    if items.is_empty() { Box::new(None::<Vec<V>>) } else { column(items, value) }
}

impl Exchange<'_> {
    /// The answers; `None`, and nothing done, when one of the operations is not to succeed: the
    /// statements for each kind say which.
    pub(super) async fn perform(
        self,
        connection: &Connection,
        operations: &[&Operation],
        kinds: &Kinds,
        limits: &Limits,
    ) -> Result<Option<Answers>, Error> {
        let statement = connection.prepare_cached(EXCHANGE).await?;
        let call = Call { statement, parameters: self.parameters };
        let rows = match Call::run(Some(&call), connection).await {
            Ok(rows) => rows,
            Err(error) if breaks_a_key(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(row) = rows.first().filter(|row| row.get(0)) else { return Ok(None) };
        let mut answers = Gathered::new(operations.len(), limits);
        let sent: Option<Vec<i64>> = row.get(1);
        let sent = sent.unwrap_or_default().into_iter().map(|sent| Answer::Number(id(Some(sent))));
        answers.put(&kinds.sends, sent.map(Ok).collect());
        answers.put(&kinds.takes, taken(row, operations, kinds));
        Ok(Some(answers.all()))
    }
}

/// Class 23: a queue or receiver that is not there, a message to oneself.
fn breaks_a_key(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("23"))
}

/// What each taker got.
fn taken(row: &Row, operations: &[&Operation], kinds: &Kinds) -> Vec<Result<Answer, Refusal>> {
    let count = kinds.takes.len();
    let queue_id = kinds.takes.first().and_then(|place| as_take(operations[*place]));
    let queue_id = id(queue_id.map(|take| take.selector.queue));
    let places: Option<Vec<i64>> = row.get(2);
    let leases: Option<Vec<Option<i64>>> = row.get(10);
    let mut leases = leases.unwrap_or_default().into_iter();
    let mut messages: Vec<(Message, u64)> = Columns::of(row)
        .messages(queue_id)
        .map(|message| (message, id(leases.next().flatten())))
        .collect();
    let mut answers: Vec<_> = (0..count).map(|_| Ok(Answer::Message(None))).collect();
    if let Some(places) = places {
        for (place, message) in places.into_iter().zip(messages) {
            let answer = usize::try_from(place - 1).ok().and_then(|place| answers.get_mut(place));
            if let Some(answer) = answer {
                *answer = Ok(Answer::Message(Some(message)));
            }
        }
    } else {
        // Whoever asked first gets what was sent first.
        messages.sort_unstable_by_key(|(message, _)| message.message_id);
        for (answer, message) in answers.iter_mut().zip(messages) {
            *answer = Ok(Answer::Message(Some(message)));
        }
    }
    answers
}

/// Messages as columns; empty where there are none.
struct Columns {
    ids: Vec<i64>,
    senders: Vec<i64>,
    receivers: Vec<Option<i64>>,
    priorities: Vec<i32>,
    contents: Vec<String>,
    sent_at: Vec<Micros>,
    deliveries: Vec<i32>,
}

impl Columns {
    fn of(row: &Row) -> Self {
        fn column<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Vec<T> {
            row.get::<_, Option<Vec<T>>>(place).unwrap_or_default()
        }
        Self {
            ids: column(row, 3),
            senders: column(row, 4),
            receivers: column(row, 5),
            priorities: column(row, 6),
            contents: column(row, 7),
            sent_at: column(row, 8),
            deliveries: column(row, 9),
        }
    }

    fn messages(self, queue_id: u64) -> impl Iterator<Item = Message> {
        // Addressed ones are taken with their places; of the others there is no column.
        let mut receivers = self.receivers.into_iter();
        let rest = self.priorities.into_iter().zip(self.sent_at).zip(self.deliveries);
        self.ids.into_iter().zip(self.senders).zip(self.contents).zip(rest).map(
            move |(((message, sender), content), ((priority, sent_at), deliveries))| Message {
                message_id: id(Some(message)),
                queue_id,
                sender_id: id(Some(sender)),
                receiver_id: id(receivers.next().flatten()),
                priority,
                content,
                sent_at_us: sent_at.0,
                deliveries: u32::try_from(deliveries).unwrap_or_default(),
            },
        )
    }
}

/// A `timestamptz` as microseconds since 1970.
struct Micros(i64);

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_US)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}
