//! What administrators ask of queues: changes, dead letters, archives.

use kendall_protocols::queue as wire;
use kendall_units::Seconds;
use serde_json::{Value, json};

use super::call::{Caller, Client, LONG, milliseconds};
use super::flags::Change;
use super::show;
use crate::exit::refused;

/// Rows that one listing asks for at a time.
const PAGE: u32 = 1000;

impl Caller {
    pub(super) async fn change(&mut self, change: Change) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(&change.queue).await?;
        let paused = (change.pause || change.resume).then_some(change.pause);
        let dead_letter_queue_id = match &change.dead_letters {
            Some(name) if name.is_empty() => Some(0),
            Some(name) => Some(self.queue_id(name).await?),
            None => None,
        };
        let ms = |time: Option<Seconds>| time.map(milliseconds);
        let request = wire::ChangeQueueRequest {
            queue_id,
            name: change.rename,
            max_deliveries: change.max_deliveries,
            dead_letter_queue_id,
            retention_ms: ms(change.retention),
            archive_ms: ms(change.archive),
            paused,
        };
        if request == (wire::ChangeQueueRequest { queue_id, ..Default::default() }) {
            let text = "nothing to change; name a change, such as --pause or --rename NAME";
            return Err(refused(text));
        }
        self.ask(request, async |queue, request| queue.change_queue(request).await).await?;
        self.statistics(queue_id).await
    }

    pub(super) async fn dead_letters(
        &mut self,
        queue: &str,
        from: Option<String>,
    ) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(queue).await?;
        let sender_id = match from {
            Some(name) => self.hello(name).await?,
            None => 0,
        };
        let mut found: Vec<Value> = Vec::new();
        let mut after_message_id = 0;
        loop {
            let request =
                wire::ListDeadLettersRequest { queue_id, sender_id, after_message_id, limit: PAGE };
            let call = async |queue: &mut Client, request| queue.list_dead_letters(request).await;
            let page = self.ask(request, call).await?.messages;
            let Some(last) = page.last() else { return Ok(json!({ "dead_letters": found })) };
            after_message_id = last.message_id;
            found.extend(page.iter().map(show::message));
        }
    }

    pub(super) async fn redrive(
        &mut self,
        queue: &str,
        message_ids: Vec<u64>,
        to: Option<String>,
    ) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(queue).await?;
        let target_queue_id = match to {
            Some(name) => self.queue_id(&name).await?,
            None => 0,
        };
        let request = wire::RedriveRequest { queue_id, message_ids, target_queue_id };
        let call = async |queue: &mut Client, request| queue.redrive(request).await;
        Ok(json!({ "moved": self.ask_and_wait(request, LONG, call).await?.moved }))
    }

    pub(super) async fn archived(&mut self, queue: &str) -> anyhow::Result<Value> {
        let queue_id = self.queue_id(queue).await?;
        let mut found: Vec<Value> = Vec::new();
        let mut after_message_id = 0;
        loop {
            let request = wire::ListArchivedRequest { queue_id, after_message_id, limit: PAGE };
            let call = async |queue: &mut Client, request| queue.list_archived(request).await;
            let page = self.ask(request, call).await?.messages;
            let last = page.last().and_then(|kept| kept.message.as_ref());
            let Some(last) = last else { return Ok(json!({ "archived": found })) };
            after_message_id = last.message_id;
            let one = |kept: &wire::ArchivedMessage| {
                json!({
                    "message": kept.message.as_ref().map(show::message),
                    "taken_by": kept.taken_by,
                    "how": if kept.received { "received" } else { "acknowledged" },
                    "done_at_us": kept.done_at_us,
                })
            };
            found.extend(page.iter().map(one));
        }
    }
}
