//! `kendall queue watch`: what the queues hold, every second.

use std::time::Duration;

use kendall_protocols::queue::QueueStatisticsRequest;
use serde_json::{Value, json};

use super::call::{Caller, refused, statistics};
use crate::exit::{Exit, exit_with};

const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn watch(
    mut caller: Caller,
    wanted: Vec<String>,
    times: Option<u64>,
) -> anyhow::Result<Exit> {
    let mut ticks = tokio::time::interval(PERIOD);
    let mut left = times.unwrap_or(u64::MAX);
    while left > 0 {
        ticks.tick().await;
        left -= 1;
        let queues = caller.queues().await?;
        if let Some(unknown) = wanted.iter().find(|name| !queues.contains_key(*name)) {
            let text = format!("there is no queue `{unknown}`");
            return Err(exit_with(Exit::Refused, text));
        }
        let mut rows: Vec<Value> = Vec::new();
        for (name, queue_id) in queues {
            if wanted.is_empty() || wanted.contains(&name) {
                let request = QueueStatisticsRequest { queue_id };
                let told = caller.queue.queue_statistics(request).await.map_err(refused)?;
                rows.push(statistics(queue_id, &told.into_inner()));
            }
        }
        caller.print(&json!({ "queues": rows }))?;
    }
    Ok(Exit::Done)
}
