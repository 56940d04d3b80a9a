//! The usual batch as one statement: sends without a request id, or takes of the first message by
//! arrival of one queue.

use std::error::Error as StdError;

use kendall_protocols::queue::Message;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Error, Row};

use super::message::with_extra;
use super::{Call, Connection, Outcomes, Parameter, column, id, some_column};
use crate::operation::{Answer, Send, Take};

const SEND: &str = "SELECT done, ids FROM \
    send_together($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
const TAKE: &str = "SELECT done, places, ids, sender_ids, receiver_ids, priorities, contents, \
    sent_ats, deliveries, lease_ids, bodies, extras, marker \
    FROM take_together($1, $2, $3, $4)";

/// From the beginning of PostgreSQL's time, 2000, to that of Unix's, in microseconds.
const EPOCH_US: i64 = 946_684_800_000_000;

/// Sends that are all plain. `None`, and nothing done, where they are not, or when one of them is not to
/// succeed: the statement for any sends says which.
pub(super) async fn send(
    connection: &Connection,
    sends: &[&Send],
    executed: &(dyn Fn() + Sync),
) -> Result<Option<Outcomes>, Error> {
    if sends.is_empty() || sends.iter().any(|send| send.request.is_some()) {
        return Ok(None);
    }
    let parameters = vec![
        different(sends.iter().map(|send| send.client)),
        different(sends.iter().map(|send| send.queue)),
        different(sends.iter().filter_map(|send| send.receiver)),
        column(sends, |send| send.queue),
        column(sends, |send| send.client),
        // NULL where it is the same for all, as it nearly always is: PostgreSQL goes through no array then.
        some_column(sends, |send| send.receiver),
        column(sends, |send| send.content.as_str()),
        some_column(sends, |send| (send.priority != 0).then_some(send.priority)),
        some_column(sends, |send| (send.delay_ms > 0).then_some(send.delay_ms)),
        some_column(sends, |send| send.data.as_deref()),
        some_column(sends, |send| send.headers.as_deref()),
    ];
    let row = if sends.len() == 1 {
        done(Call::prepare(connection, SEND, parameters).await?.run(connection).await)?
    } else {
        run_and_commit(connection, parameters, executed).await?
    };
    let Some(row) = row else { return Ok(None) };
    let ids: Vec<i64> = row.get(1);
    Ok(Some(ids.into_iter().map(|sent| Ok(Answer::Number(id(Some(sent))))).collect()))
}

/// Takes that all want the first message of one queue, and the marker of their transaction; `None` as above.
pub(super) async fn take(
    connection: &Connection,
    takes: &[&Take],
) -> Result<Option<(Outcomes, Option<String>)>, Error> {
    let Some(first) = takes.first() else { return Ok(None) };
    let queue = first.selector.queue;
    let alike = |take: &&Take| {
        let selector = &take.selector;
        selector.queue == queue && selector.sender.is_none() && !selector.by_priority
    };
    if !takes.iter().all(alike) {
        return Ok(None);
    }
    let leases = takes.iter().any(|take| take.lease_ms > 0);
    let parameters: Vec<Parameter<'_>> = vec![
        different(takes.iter().map(|take| take.selector.client)),
        Box::new(queue),
        column(takes, |take| take.selector.client),
        if leases { column(takes, |take| take.lease_ms) } else { Box::new(None::<Vec<i64>>) },
    ];
    let row = done(Call::prepare(connection, TAKE, parameters).await?.run(connection).await)?;
    Ok(row.map(|row| (taken(&row, id(Some(queue)), takes.len()), row.get(12))))
}

fn different(ids: impl Iterator<Item = i64>) -> Parameter<'static> {
    let mut ids: Vec<i64> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    Box::new(ids)
}

/// Sends in a transaction, all of which is sent together; says when only its commit is left.
async fn run_and_commit(
    connection: &Connection,
    parameters: Vec<Parameter<'_>>,
    executed: &(dyn Fn() + Sync),
) -> Result<Option<Row>, Error> {
    // Known before: it would be asked for within the transaction, and behind the commit.
    let call = Call::prepare(connection, SEND, parameters).await?;
    let run = async {
        let rows = call.run(connection).await;
        executed();
        rows
    };
    let (begun, rows, committed) = tokio::join!(
        biased;
        connection.batch_execute("BEGIN"),
        run,
        // Of a statement that failed it is a ROLLBACK.
        connection.batch_execute("COMMIT"),
    );
    begun?;
    let row = done(rows)?;
    committed?;
    Ok(row)
}

/// The row, unless it says that nothing was done.
fn done(rows: Result<Vec<Row>, Error>) -> Result<Option<Row>, Error> {
    match rows {
        Ok(rows) => Ok(rows.into_iter().next().filter(|row| row.get(0))),
        Err(error) if breaks_a_key(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Class 23: a queue or receiver that is not there, a message to oneself.
fn breaks_a_key(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("23"))
}

/// What each taker got.
fn taken(row: &Row, queue_id: u64, takers: usize) -> Outcomes {
    let places: Option<Vec<i64>> = row.get(1);
    let leases: Option<Vec<Option<i64>>> = row.get(9);
    let mut leases = leases.unwrap_or_default().into_iter();
    let mut messages: Vec<(Message, u64)> = Columns::of(row)
        .messages(queue_id)
        .map(|message| (message, id(leases.next().flatten())))
        .collect();
    let mut answers: Vec<_> = (0..takers).map(|_| Ok(Answer::Message(None))).collect();
    if let Some(places) = places {
        for (place, message) in places.into_iter().zip(messages) {
            let answer = usize::try_from(place - 1).ok().and_then(|place| answers.get_mut(place));
            if let Some(answer) = answer {
                *answer = Ok(Answer::Message(Some(message)));
            }
        }
    } else {
        // The first request gets the first message.
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
    bodies: Vec<Option<Vec<u8>>>,
    extras: Vec<Option<String>>,
}

impl Columns {
    fn of(row: &Row) -> Self {
        fn column<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Vec<T> {
            row.get::<_, Option<Vec<T>>>(place).unwrap_or_default()
        }
        Self {
            ids: column(row, 2),
            senders: column(row, 3),
            receivers: column(row, 4),
            priorities: column(row, 5),
            contents: column(row, 6),
            sent_at: column(row, 7),
            deliveries: column(row, 8),
            bodies: column(row, 10),
            extras: column(row, 11),
        }
    }

    fn messages(self, queue_id: u64) -> impl Iterator<Item = Message> {
        // Addressed ones are taken with their places; of the others there is no column.
        let mut receivers = self.receivers.into_iter();
        // Nor where none of them has any.
        let (mut bodies, mut extras) = (self.bodies.into_iter(), self.extras.into_iter());
        let rest = self.priorities.into_iter().zip(self.sent_at).zip(self.deliveries);
        self.ids.into_iter().zip(self.senders).zip(self.contents).zip(rest).map(
            move |(((message, sender), content), ((priority, sent_at), deliveries))| {
                let plain = Message {
                    message_id: id(Some(message)),
                    queue_id,
                    sender_id: id(Some(sender)),
                    receiver_id: id(receivers.next().flatten()),
                    priority,
                    content,
                    sent_at_us: sent_at.0,
                    deliveries: u32::try_from(deliveries).unwrap_or_default(),
                    ..Message::default()
                };
                with_extra(plain, bodies.next().flatten(), extras.next().flatten())
            },
        )
    }
}

/// A `timestamptz` as microseconds since 1970.
struct Micros(i64);

impl<'a> FromSql<'a> for Micros {
    fn from_sql(
        _: &Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn StdError + Sync + std::marker::Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_US)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TIMESTAMPTZ
    }
}
